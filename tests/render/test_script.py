import json
from dataclasses import replace

from gpudoc.render.script import as_text, headline, show, train_command
from gpudoc.tune.options import SearchOptions
from tests.script.pretended import result_of, searched


def looked(**changes):
    options, found, session = searched(only="look")
    return result_of(options, found, session, profile=None, stored=None, launches=1, **changes)


def test_a_search_says_what_the_script_is_what_was_found_why_and_what_to_type():
    text = as_text(result_of(*searched()), verbose=True)
    for part in (
        "as it is: python train.py",
        "train.py:7: trains, batch 8, 0 workers",
        "74% of it waiting for data",
        "largest batch",
        "num_workers 3:",
        "  train.py:7: DataLoader(..., num_workers=3, prefetch_factor=2,",
        "  if you write persistent_workers=True there, the second and later epochs are shuffled differently",
        "offered batch     16 (the script's own: 8)",
        "  train.py:7: DataLoader(..., batch_size=16)",
        "from batch 16 on the steps waited for data",
        "rules of scaling",
        "loader     3 workers x 2",
        "profile  /profiles/p.yaml",
        "gpudoc train --profile auto -- python train.py",
    ):
        assert part in text, part


def test_the_first_line_is_the_gain_over_the_script_as_it_is():
    first, second = as_text(result_of(*searched())).splitlines()[:2]
    assert first.startswith("About 3.86 times (each measured once) as fast as the script as it is: 286 samples/s, 74")
    assert second == "21 launches in 1 min 00 s"
    assert headline(result_of(*searched(), interrupted=True)).startswith("Interrupted; this is the best so far. ")


def test_a_gain_is_not_claimed_where_none_was_measured():
    options, found, session = searched(only="batch")
    said = headline(result_of(options, found, session))
    assert said.startswith("Not compared with the script as it is: tried ")
    assert "--allow batch compares it" in said
    found.feed, found.why_kept, found.kept_default = None, "lost", True
    assert "none is faster than the script as it is: 74.1 samples/s" in headline(result_of(options, found, session))


def test_a_search_that_had_no_time_names_the_command_that_has():
    options, found, session = searched(only="look")
    options = replace(options, only="loader")
    found.kept_default, found.needed_s = True, 100.0
    assert headline(result_of(options, found, session)) == (
        "Not searched: the budget is too small for a first comparison. A search takes about 1 min 40 s: "
        "gpudoc tune --only loader --budget 100s -- python train.py"
    )


def test_a_look_says_the_script_and_how_to_tune_it():
    text = as_text(looked())
    assert text.startswith("looked: 1 launch in 1 min 00 s\n")
    assert "next     gpudoc tune -- python train.py" in text
    assert "why" not in text


def test_a_look_on_a_gpu_says_its_tf32_and_what_the_allocator_took():
    options, found, session = searched(only="look")
    found.look = replace(found.look, device="cuda:0", device_name="NVIDIA A100", tf32=False)
    text = as_text(result_of(options, found, session, profile=None, stored=None, launches=1))
    assert "NVIDIA A100, fp32, TF32 off" in text
    assert "reserved by torch's allocator" in text


def test_the_command_to_train_has_the_batch_where_the_placeholder_stood():
    _, found, session = searched(goal="largest")
    words = ("python", "train.py", "-b", "{batch}")
    found.lever = "flag"
    result = result_of(SearchOptions(command=words), found, session)
    assert train_command(result) == f"gpudoc train --profile auto -- python train.py -b {found.batch}"
    found.choice = None
    assert train_command(result) == "gpudoc train --profile auto -- python train.py -b 8"


def test_a_batch_that_was_allowed_is_trained_with():
    options, found, session = searched(allow="batch")
    assert "--allow batch" in train_command(result_of(options, found, session))


def test_json_is_one_document(capsys):
    show(result_of(*searched()), as_json=True, plain=True, verbose=False)
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "gpudoc.tune.v1"


def test_a_busy_machine_is_said_on_the_third_line_and_once():
    asked, found, session = searched()
    last = session.journal.trials[-1]
    told = {**last.measured, "other_cpus": 1.5, "busy_share": 1.0}
    session.journal.trials[-1] = last.model_copy(update={"measured": told})
    lines = as_text(result_of(asked, found, session)).splitlines()
    assert lines[2].startswith("! other processes kept up to 1.5 CPUs busy during 1 of ")
    assert sum("CPUs busy" in line for line in lines) == 1
