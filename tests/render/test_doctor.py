from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor import document
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Crashed, Evidence, Finding, Observation, Remedy, Skipped
from gpudoc.facts.model import Driver, Gpu, Machine, PythonFacts, TorchBuild
from gpudoc.render.doctor import cards_of, headline, marked, render
from gpudoc.render.doctor_output import render_markdown
from gpudoc.render.doctor_page import render_page
from gpudoc.units import GIB
from tests.doctor.causes.judge import report_of
from tests.machines.built import gpu, machine

SEEN = Observation("said", "an epoch takes an hour", "line 3")
LONG = (
    "PyTorch version: 2.6.0+cu124\nNvidia driver version: 470.57.02\n"
    "GPU models and configuration: GPU 0: NVIDIA A10\n"
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 22.20 GiB total capacity; 18.10 GiB "
    "already allocated; 1.10 GiB free; 19.60 GiB reserved in total by PyTorch) batch_size=32\n"
    "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)\n"
    "in docker, during validation, Adam"
)


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        "RuntimeError: CUDA error: device-side assert triggered",
        "eggs and flour",
        "Epoch 1 step 2 loss 3.0",
        "RuntimeError: CUDA error: strange\n" + "x" * 3000,
        "Failed to initialize NVML: Unknown Error",
    ],
)
def test_the_first_screen_has_at_most_twelve_lines_that_fit_a_terminal(text):
    lines = render(report_of(text)).splitlines()
    assert len(lines) <= 12
    assert all(len(line) <= 80 or line.lstrip().startswith("$") for line in lines)


def test_line_one_is_the_machine_then_come_cause_evidence_fix_and_what_next():
    report = report_of(LONG)
    lines = render(report).splitlines()
    assert lines[0] == "NVIDIA A10 · driver 470.57.02 · torch 2.6.0+cu124"
    assert lines[1].startswith("✗ ")
    assert f"[driver_too_old, {report.findings[0].confidence:.0%} sure]" in " ".join(lines[1:3])
    assert any(line.startswith("  seen: ") for line in lines)
    assert any(line.startswith("  fix: ") for line in lines)
    assert lines[-1].startswith("next: gpudoc doctor --verbose")


def test_a_line_that_shows_two_facts_is_quoted_once():
    said = "40 minutes an epoch, 30 % utilisation, num_workers=0, JPEGs on a NAS. Why so slow?\n"
    report = report_of(said)
    assert len([o for o in report.findings[0].evidence if "num_workers=0" in o.value]) > 1
    assert render(report, width=120).count("num_workers=0") == 1


def test_a_text_of_no_known_form_is_called_so_in_plain_words():
    said = render(report_of("The quick brown fox jumps over the lazy dog."), width=120)
    assert "read: text that is neither a report nor a log that gpudoc knows" in said


def test_a_log_without_a_machine_says_what_was_read():
    assert headline(report_of("Epoch 1 step 2 loss 3.0")).startswith("read: training log")


def test_words_about_gpus_are_no_report_of_one():
    said = headline(report_of("My kernel dies when I call model.cuda() in torch."))
    assert said == "read: text about GPUs, text about PyTorch"


def test_the_log_of_a_server_that_started_is_healthy():
    report = report_of("WARNING Chunked prefill is on. If it fails, disable it.\nINFO: Application startup complete.")
    assert (report.verdict, headline(report)) == ("healthy", "read: server log")


def test_a_healthy_machine_says_how_much_was_checked_and_what_to_try_next():
    two = Machine(
        gpus=(Gpu(index=0, name="NVIDIA L4", memory_total_bytes=24 * GIB), Gpu(index=1, name="NVIDIA L4")),
        driver=Driver(module_version="550.54.15", cuda_version=(12, 4)),
        python=PythonFacts(version="3.11.7", executable="/venv/bin/python"),
        torch=TorchBuild(version="2.6.0", is_available=True),
    )
    report = diagnose(Evidence(source="machine", machine=two), finders=(), catalogue={})
    lines = render(report).splitlines()
    assert lines[:2] == [
        "2 × NVIDIA L4 24 GiB · driver 550.54.15 (CUDA 12.4) · torch 2.6.0",
        "  Python 3.11.7 (/venv/bin/python)",
    ]
    assert lines[2].startswith("No problem found: 0 checks passed")
    assert "gpudoc bench" in lines[-1]


def test_a_guess_has_the_same_likelihood_on_every_screen():
    one = Finding(id="training_on_cpu", severity="info", confidence=0.43, evidence=(SEEN,), title="Slow", is_guess=True)
    report = replace(report_of("torch 2.6: why is it so strange?"), verdict="unknown", findings=(one,), unexplained=())
    lines = render(report, width=100).splitlines()
    assert "? I don't know the cause: nothing in this text proves one." in lines
    assert "  by its words perhaps: Slow  [training_on_cpu, a guess, 43% likely]" in lines
    assert "    seen: an epoch takes an hour  (line 3)" in lines
    for told in (render_page(report), render_markdown(report), render(report, verbose=True)):
        assert "a guess, 43% likely" in told
    assert document.dump(report)["findings"][0]["confidence"] == 0.43


def test_a_healthy_text_says_what_was_seen_and_a_solved_one_that_it_is_over():
    state = Observation("gpu", "GPU 0 98 % busy, 18 GiB of 24 GiB used", "")
    report = replace(report_of("torch 2.6: an epoch takes 5 minutes"), verdict="healthy", understood=(state,))
    assert render(report).splitlines()[1] == "GPU 0 98 % busy, 18 GiB of 24 GiB used: looks healthy."
    over = replace(report, understood=(Observation("solved", "It works now", "line 9"),))
    assert render(over).splitlines()[1] == "It says itself that the trouble is over: It works now  (line 9)"


def test_a_question_gets_its_answer_and_no_word_of_faults():
    lines = render(report_of("How many num_workers for 8 CPU cores?")).splitlines()
    assert lines[1] == "This is a question; nothing in it is wrong."
    assert "    $ gpudoc tune --only loader -- python train.py" in lines
    assert not any("error" in line.lower() for line in lines)
    nothing = render(report_of("How do I change the colour of my hair with CUDA?"))
    assert "hold no answer to it" in nothing


def test_a_line_that_is_quoted_whole_is_not_quoted_in_part_too():
    whole = Observation("text", "loss: 2.31 at step 100 of the run", "line 4")
    part = Observation("loss", "2.31 at step 100 of the run", "line 4")
    again = Observation("text", "loss: 2.31 at step 100 of the run", "line 9")
    found = Finding(id="compute_bound", confidence=0.9, evidence=(part, whole, again), title="x")
    report = replace(report_of("torch 2.6"), verdict="broken", findings=(found,))
    assert [line for line in render(report).splitlines() if "seen" in line] == [f"  seen: {whole.value}  (line 4)"]


def test_an_unknown_fault_names_the_facts_that_would_decide():
    text = render(report_of("Traceback (most recent call last):\nRuntimeError: CUDA error: strange"))
    assert "I don't know the cause" in text
    assert "seen: RuntimeError: CUDA error: strange  (line 2)" in text
    assert text.count("collect next:") == 1


def test_driver_and_torch_stand_whole_however_long_the_rest_is():
    eight = Machine(
        gpus=tuple(
            Gpu(index=n, name=f"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition {n % 3}") for n in range(8)
        ),
        driver=Driver(module_version="580.105.08", cuda_version=(13, 0)),
        python=PythonFacts(version="3.11.7", executable="/a/very/long/way/to/a/virtual/environment/venv/bin/python"),
        torch=TorchBuild(version="2.13.0.dev20261101+cu130"),
    )
    report = diagnose(Evidence(source="machine", machine=eight), finders=(), catalogue={})
    text = render(report)
    assert "driver 580.105.08 (CUDA 13.0)" in text
    assert "torch 2.13.0.dev20261101+cu130" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_log_of_losses_is_told_what_it_cannot_show():
    lines = render(report_of("Epoch 1 step 2 loss 3.0\nEpoch 1 step 3 loss 2.9")).splitlines()
    assert lines[1] == "No error recognised in this text; it says nothing of driver, GPU or PyTorch."
    assert not any("passed" in line for line in lines)


def test_a_text_with_facts_counts_only_what_they_settle():
    text = render(report_of("PyTorch version: 2.6.0+cu124\nNvidia driver version: 560.35.03"))
    assert "No problem found in what this text says: 3 checks passed" in text
    assert "driver 1" in text
    assert "it says nothing of GPU" in text


def test_documentation_is_said_to_be_that():
    guide = "# A\n\n[a](b.md) [c](d.md)\n\n## B\n\n```\nx\n```\n\n## C\n\n```\ny\n```\n\n## D\n\nCUDA out of memory\n"
    assert "? This is documentation, not what a machine said" in render(report_of(guide))


def test_checks_are_grouped_by_area_and_skipped_ones_say_why():
    from gpudoc.doctor.model import Skipped

    report = replace(
        report_of("Epoch 1 step 2 loss 3.0"),
        source="machine",
        passed=("gpu_ecc_error", "thermal_throttle", "driver_too_old"),
        skipped=(Skipped("nvlink_error", "GPU 3: the GPU is lost"), Skipped("oom_other_process", "no permission")),
    )
    text = render(report)
    assert "  ✓ GPU        2 checks passed, 1 not made: GPU 3: the GPU is lost\n" in text
    assert "  ✓ driver     1 check passed\n" in text
    assert "  – memory     1 not made: no permission\n" in text
    assert "No problem found in the 3 checks that could be made; 2 could not be made" in text
    whole = render(report, verbose=True)
    assert "GPU: gpu_ecc_error, thermal_throttle" in whole
    assert "GPU: nvlink_error: GPU 3: the GPU is lost" in whole


def test_the_driver_is_known_from_nvml_where_the_kernel_module_hides_it():
    report = diagnose(Evidence(source="machine", machine=Machine(driver=Driver(nvml_driver_version="580.82.07"))))
    assert "driver 580.82.07" in headline(report)


def test_the_gpus_of_a_finding_stand_in_its_title():
    from gpudoc.doctor.model import Card

    def shown(*numbers, title="Memory errors"):
        cards = tuple(Card(index=n) for n in numbers)
        return cards_of(Finding(id="x", confidence=1, evidence=(), title=title, cards=cards))

    assert shown(3) == ": GPU 3"
    assert shown(0, 4) == ": GPU 0, 4"
    assert shown(*range(8), title="NVLinks of a GPU are down") == ": GPU 0 to 7"
    assert shown(2, title="The GPU no longer answers on the PCIe bus") == ": GPU 2"
    assert shown() == shown(1, title="1 of 8 GPUs is full") == ""


def test_verbose_holds_everything():
    report = report_of(LONG)
    text = render(report, verbose=True)
    for finding in report.findings:
        assert finding.title in text
        assert finding.why in text
        assert all(remedy.say in text for remedy in finding.fix)
    assert "not checked (" in text
    assert "passed (" in text


def test_a_fleet_names_the_odd_machine_on_line_one():
    from gpudoc.doctor import fleet

    def report(driver, torch):
        machine = Machine(driver=Driver(module_version=driver), torch=TorchBuild(version=torch))
        return diagnose(Evidence(source="machine", machine=machine), finders=(), catalogue={})

    alike = [(f"n{i}", report("550.54.15", "2.6.0")) for i in range(3)]
    lines = render(fleet.compare([*alike, ("bad", report("535.54.03", "2.5.0"))])).splitlines()
    assert lines[0] == "4 machines compared; the odd one: bad (2 differences)"
    assert "also: torch differs: bad" in lines
    assert render(fleet.compare(alike)).splitlines()[1].startswith("No problem found")


def test_a_step_that_ends_work_is_marked_on_every_screen():
    report = report_of("NVRM: Xid (PCI:0000:3b:00): 109, pid=1, CTXSW_TIMEOUT")
    marked = "fix: disruptive: Reset the GPU at 0000:3b:00.0"
    assert marked in render(report)
    assert marked in render(report, verbose=True)


def test_a_machine_with_a_fault_has_a_line_for_each_area_and_the_worst_mark_in_it():
    lost = Gpu(index=2, lost=True, nvml_code=15)
    report = diagnose(Evidence(source="machine", machine=machine(gpu(0), gpu(1), lost)))
    lines = render(report).splitlines()
    assert "  ✗ GPU        The GPU no longer answers on the PCIe bus: GPU 2" in lines
    assert any(line.startswith("  ✓ PyTorch    15 checks passed") for line in lines)
    assert any(line.startswith("  – driver     2 checks passed, 21 not made: ") for line in lines)
    assert not any(line.startswith("also:") for line in lines)


def test_a_machine_without_a_gpu_is_not_simply_well():
    here = Machine(gpus=(), pci=(), python=PythonFacts(version="3.11.7"))
    text = " ".join(render(diagnose(Evidence(source="machine", machine=here))).split())
    assert "– GPU There is no GPU here" in text
    assert "There is no GPU here. No problem found in the" in text
    assert "could not be made" in text


def test_what_is_noted_of_the_past_is_not_wrong_now():
    noted = Finding(id="host_oom_killed", severity="info", confidence=0.8, evidence=(SEEN,))
    report = replace(
        report_of("Epoch 1 step 2 loss 3.0"), source="machine", findings=(noted,), passed=("driver_too_old",)
    )
    assert "Nothing is wrong now: 1 check passed" in render(report)
    assert "roblem found" not in render(report)
    faint = replace(report, findings=(replace(noted, confidence=0.1),))
    assert "No problem found: 1 check passed" in render(faint)


def test_a_check_that_was_not_made_says_why_and_not_by_which_fact():
    skipped = (Skipped("gpu_newer_than_wheel_archs", "torch.arch_list: torch is not built for CUDA or ROCm"),)
    report = replace(report_of("Epoch 1 step 2 loss 3.0"), source="machine", findings=(), skipped=skipped)
    assert "1 not made: torch is not built for CUDA or ROCm" in render(report)


def test_a_check_that_failed_itself_is_no_check_that_passed():
    report = replace(
        report_of("Epoch 1 step 2 loss 3.0"), source="machine", crashed=(Crashed("thermal_throttle", "KeyError"),)
    )
    assert "  ! GPU        1 check failed: thermal_throttle\n" in render(report)


def test_on_a_slim_screen_the_fix_stands_whole():
    text = render(report_of(LONG), width=40)
    assert "    $ sudo apt install nvidia-driver-580\n" in text
    assert all(len(line) <= 40 or line.lstrip().startswith("$") for line in text.splitlines())


def test_a_disruptive_step_says_so_before_anything_else():
    assert marked(Remedy(say="Reboot.", disruptive=True)) == "disruptive: Reboot."
    assert marked(Remedy(say="Look.")) == "Look."
