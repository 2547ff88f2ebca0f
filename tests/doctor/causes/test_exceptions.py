"""What doctor says of ordinary exceptions: the cause, the line of whose code, and nothing about the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoc.doctor.registry import CATALOGUE
from gpudoc.knowledge import signature_rows
from gpudoc.knowledge.signature_rows import CODE, load_folder
from tests.doctor.causes.judge import first, first_is, report_of, silent
from tests.facts.readers.test_tracebacks import NOTEBOOK, PLAIN

ROWS = load_folder(Path(signature_rows.__file__).parent / "signatures", examples=True, families=(CODE,))
MESSAGE = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)"


def at_line(message: str) -> str:
    """A traceback that ends with this exception, at one line of a user."""
    return PLAIN.replace(MESSAGE, message)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_an_example_of_a_row_is_its_cause_at_the_user_s_line_and_nothing_of_the_machine(row):
    for text in row.examples:
        alone = report_of(text)
        assert (alone.verdict, alone.findings[0].id) == ("broken", row.cause), text
        if text.startswith(("python: ", "train.py: ")):
            continue
        report = report_of(at_line(text))
        assert report.findings[0].id == row.cause, text
        assert report.findings[0].title.startswith("train.py:8 `return self.b(h)`: ")
        assert {CATALOGUE[f.id].family for f in report.findings} <= {"code", CATALOGUE[row.cause].family}


def test_the_title_says_the_line_and_the_numbers_in_the_names_of_the_code():
    for text in (PLAIN, NOTEBOOK):
        report = report_of(text)
        assert report.findings[0].title.endswith("`return self.b(h)`: h has 20 features, b wants 30")
    assert report_of(MESSAGE).findings[0].title == "The input has 20 features, the layer wants 30"
    assert report_of(MESSAGE.partition(": ")[2]).findings[0].id == "shape_mismatch"


def test_an_exception_that_no_row_knows_is_the_program_s():
    report = report_of(at_line("my.lib.OddError: the flux is 7"))
    (finding,) = report.findings
    assert (report.verdict, finding.id) == ("broken", "error_in_code")
    assert finding.title == "train.py:8 `return self.b(h)`: OddError: the flux is 7"
    assert [o.origin for o in finding.evidence] == ["line 4", "line 8"]


def test_without_a_line_of_the_user_the_library_s_is_named():
    report = report_of(
        'Traceback (most recent call last):\n  File "/usr/lib/python3.10/json/decoder.py", line 3, in go\n    raise E\nOddError: 7\n'
    )
    assert (report.findings[0].title, report.findings[0].evidence[0].fact) == (
        "decoder.py:3 `raise E`: OddError: 7",
        "Python's code",
    )


CONFIG = 'Traceback (most recent call last):\n  File "/home/ann/cfg.py", line 3, in load\n    return c["lr"]\nKeyError: \'lr\'\n\n'
DIRECT = "The above exception was the direct cause of the following exception:\n\n"
HANDLING = "During handling of the above exception, another exception occurred:\n\n"
RAISED = 'Traceback (most recent call last):\n  File "/home/ann/train.py", line 9, in <module>\n    raise OddError("bad config")\nOddError: bad config\n'
FALLBACK = "Traceback (most recent call last):\n  File \"/home/ann/train.py\", line 9, in <module>\n    return c.lr\nAttributeError: 'dict' object has no attribute 'lr'\n"


def test_text_that_a_file_evaluates_is_no_place_where_that_file_shows():
    error = """Traceback (most recent call last):
  File "fit.py", line 12, in main
    names = eval(arguments.names)
  File "<string>", line 1, in <module>
NameError: name 'cifar' is not defined"""
    assert "fit.py:12" in report_of(error).findings[0].title


def test_of_a_chain_the_exception_that_began_it_counts():
    for link in (DIRECT, HANDLING):
        assert (
            report_of(CONFIG + link + RAISED).findings[0].title == "cfg.py:3 `return c[\"lr\"]`: there is no key 'lr'"
        )


def test_where_an_expected_exception_was_handled_the_failure_of_the_handler_counts():
    assert report_of(CONFIG + HANDLING + FALLBACK).findings[0].id == "missing_attribute"


test_what_is_proven_of_the_machine_stands_before_an_error_of_code = first_is([
    ("oom_capacity", at_line("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 40.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 22.00 GiB is free.")),
    ("cuda_in_forked_worker", at_line("RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method")),
    ("torch_not_installed", at_line("ModuleNotFoundError: No module named 'torch'")),
])  # fmt: skip
test_what_asks_a_program_to_end_is_no_error_of_it = silent([at_line("KeyboardInterrupt"), at_line("SystemExit: 0")])


def test_an_exception_that_training_survives_is_a_warning():
    lived = "epoch 1 loss 2.3\n" + CONFIG + "epoch 2 loss 2.1\nepoch 3 loss 2.0\n"
    report = report_of(lived)
    assert (report.verdict, report.findings[0].severity) == ("warning", "warning")
    assert report_of("epoch 1 loss 2.3\n" + CONFIG).verdict == "broken"


def test_the_failure_counts_and_not_who_reports_it():
    echo = 'Traceback (most recent call last):\n  File "/home/ann/launch.py", line 2, in <module>\n    run()\nBrokenPipeError: [Errno 32] Broken pipe\n\n'
    assert report_of(echo + CONFIG).findings[0].title.startswith("cfg.py:3")


def test_the_screen_says_that_the_code_is_wrong_and_not_the_gpu():
    from gpudoc.render.doctor import render

    assert "This is an error in the code, not of the GPU." in render(report_of(PLAIN))
    assert "not of the GPU" not in render(report_of("ModuleNotFoundError: No module named 'torch'"))
    assert first(PLAIN) == "shape_mismatch"


def test_a_cause_of_the_machine_that_an_exception_shows_names_the_user_s_line_too():
    report = report_of(at_line("IndexError: Target 10 is out of bounds."))
    assert report.findings[0].id == "label_out_of_range"
    assert [o.value for o in report.findings[0].evidence][1] == "train.py:8 in forward: return self.b(h)"


def test_a_program_that_a_person_ended_is_not_wrong():
    stopped = "epoch 3 step 5 loss 2.3\n^C" + at_line("KeyboardInterrupt").removesuffix("\n")
    assert report_of(stopped).verdict == "healthy"
    assert report_of(at_line("ValueError: 7")).verdict == "broken"


def test_the_last_numbers_of_a_progress_bar_are_no_training_that_goes_on():
    bar = "Epoch 0:  12%|#   | 12/100 [00:0{}<00:20,  4.2it/s, v_num=3]\n"
    assert report_of(bar.format(3) + CONFIG + bar.format(4) + bar.format(5)).verdict == "broken"


def test_a_traceback_that_is_cut_asks_for_its_end():
    report = report_of("\n".join(PLAIN.splitlines()[:-1]))
    assert report.verdict == "unknown"
    assert "last lines of the traceback" in report.deciding_facts[0]


STACK = "RuntimeError: stack expects each tensor to be equal size, but got [3, 8] at entry 0 and [3, 9] at entry 1"


def test_a_stack_of_the_user_s_is_a_matter_of_shapes_and_one_of_the_loader_s_of_samples():
    assert first(at_line(STACK)) == "shape_mismatch"
    collate = (
        'File "/opt/lib/python3.12/site-packages/torch/utils/data/_utils/collate.py", line 2, in default_collate\n'
    )
    assert first(at_line(f"  {collate}    return torch.stack(batch)\n{STACK}")) == "collate_failed"
    assert first(PLAIN.replace("in forward", "in my_collate_fn").replace(MESSAGE, STACK)) == "collate_failed"


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("load() missing 1 required positional argument: 'Loader'\nthat is line 168 in train.py", "train.py:168: load()"),
        ("In src/train.py, line 7: load() missing 2 required positional arguments: 'a' and 'b'. Help!", "train.py:7: load()"),
        ("TypeError: fit() missing 1 required positional argument: 'x'\nThis is line 12 of net.py", "net.py:12: fit()"),
        ("step() got an unexpected keyword argument `lr`", "Step() got"),
        ('TypeError: step() got an unexpected keyword argument "lr"', "Step() got"),
    ],
)  # fmt: skip
def test_a_message_without_its_type_is_read_with_the_line_that_a_sentence_names(said, title):
    finding = report_of(said).findings[0]
    assert finding.id == "wrong_argument"
    assert finding.title.lower().startswith(title.lower())
    assert not finding.title.endswith("Help!")


@pytest.mark.parametrize(
    ("one", "other", "cause"),
    [
        ("torch.FloatTensor", "torch.DoubleTensor", "dtype_mismatch"),
        ("torch.cuda.FloatTensor", "torch.cuda.LongTensor", "dtype_mismatch"),
        ("torch.cuda.FloatTensor", "torch.FloatTensor", "device_mismatch"),
        ("torch.FloatTensor", "torch.cuda.FloatTensor", "device_mismatch"),
    ],
)
def test_the_words_of_old_torch_tell_number_formats_from_devices(one, other, cause):
    assert first(f"Expected object of type {one} but found type {other} for argument #2 'mat2'") == cause


STOPPED = (
    'Traceback (most recent call last):\n  File "train.py", line 31, in <module>\n    x, y = next(it)\nStopIteration\n'
)


def test_an_iterator_without_items_is_named_though_its_exception_has_no_message():
    report = report_of(STOPPED)
    assert [finding.id for finding in report.findings] == ["iterator_exhausted"]
    assert report.findings[0].title.startswith("train.py:31")


def test_a_kernels_assertion_is_shown_with_the_line_of_the_exception_below_it():
    text = (
        "/pytorch/aten/src/THCUNN/ClassNLLCriterion.cu:108: block: [0,0,0], thread: [0,0,0] Assertion `t >= 0 && t < "
        'n_classes` failed.\nTraceback (most recent call last):\n  File "train.py", line 379, in train_model\n    '
        "running_loss += loss.item() * now_batch_size\nRuntimeError: CUDA error: device-side assert triggered\n"
    )
    found = report_of(text).findings[0]
    assert found.id == "label_out_of_range"
    assert any("train.py:379" in seen.value for seen in found.evidence)


STEPS = "".join(f"epoch 0 step {10 * n} loss {2.5 - n / 10:.2f} 12.1 it/s\n" for n in range(1, 5))
WARNED = (
    "[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign "
    "requested address).\n"
)


def test_what_a_log_warned_of_before_it_trained_on_is_no_fault():
    report = report_of(WARNED + STEPS)
    assert report.verdict == "healthy"
    assert {finding.severity for finding in report.findings} == {"info"}


@pytest.mark.parametrize("text", [WARNED, STEPS + WARNED, WARNED.replace("[W ", "[E ") + STEPS])
def test_a_warning_that_nothing_follows_or_an_error_counts(text):
    assert report_of(text).verdict == "broken"


LAYERS = "".join(f"layer{n} = nn.Conv2d({n}, {n + 1}, 3)\n" for n in range(1, 40))


def test_a_message_in_the_title_of_a_long_text_is_known_without_the_name_of_an_exception():
    told = "Expected more than 1 value per channel when training\n\nI call fit with a batch size of five.\n"
    assert first(told + LAYERS + "After the first epoch it stops.\n") == "batch_of_one"
    # further below it may be anybody's
    assert first("I call fit with a batch size of five.\n" * 4 + LAYERS + told) != "batch_of_one"


def test_the_title_names_the_exception_of_a_traceback_that_is_cut():
    frames = "".join(f'  File "tasks.py", line {n}, in step{n}\n    step{n + 1}()\n' for n in range(20, 40))
    head = "Traceback (most recent call last):\n" + frames
    text = f"train.py stops. KeyError: 'load_to_memory'\n\n{head}  File \"/env/lib/site-pack\n"
    found = report_of(text).findings[0]
    assert (found.id, "tasks.py:39" in found.title, "'load_to_memory'" in found.title) == ("missing_key", True, True)
    # a traceback that is whole says itself what was raised
    whole = f"train.py stops. KeyError: 'load_to_memory'\n\n{head}IndexError: list index out of range\n"
    assert first(whole) == "index_out_of_range"
