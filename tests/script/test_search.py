import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.profile.store import load
from gpudoc.script.cell import Isolation, what_can_be
from gpudoc.script.remember import remembered
from gpudoc.script.search import document, gpus_of, isolate, run
from gpudoc.tune.options import SearchOptions
from tests.script.family import alive, marked
from tests.script.pretended import result_of, searched
from tests.script.scripts import HUNGRY, WAITING, written

PLACE = () if what_can_be().is_whole else ("--in-place",)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def asked(words, **typed):
    return SearchOptions(command=tuple(words), in_place=bool(PLACE), **typed)


class Said:
    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)

    def advance(self, done, total, text):
        pass


def test_a_look_alone_writes_nothing_and_says_its_plan_before_the_first_launch(here):
    said = Said()
    found = run(asked((*written(here, WAITING), "--wait", "0.005", "--step", "0.02"), only="look"), said)
    assert found.profile is None
    assert found.launches == 1
    assert said.lines[0].startswith("plan: 1 launch of the script")
    assert found.look.training.place == "train.py:22"
    told = document(found)
    assert told["schema"] == "gpudoc.tune.v1"
    assert (told["profile"], told["path"]) == (None, None)
    assert told["script"]["training"] == "train.py:22"
    assert [loader["place"] for loader in told["script"]["loaders"]] == ["train.py:21", "train.py:22"]
    json.dumps(told)
    assert sorted(path.name for path in here.iterdir()) == ["train.py", *(["started.txt"] if PLACE else [])]


@pytest.mark.slow
def test_a_waiting_script_gets_workers_a_gain_and_a_profile_that_is_found_again(here):
    words = written(here, WAITING)
    found = run(asked((*words, "--epochs", "3"), only="loader", budget="5m"))
    # a batch takes 80 ms, a step 40 ms and more: two workers feed it
    assert 2 <= found.findings.feed.num_workers <= 4
    assert found.findings.gain.ratio.low > 1.5
    assert f"train.py:22: DataLoader(..., num_workers={found.findings.feed.num_workers}," in str(found.lines[0])
    assert load(found.stored.path) == found.profile
    again = remembered([*words, "--epochs", "90"], found.profile.hardware)
    assert again.profile == found.profile


@pytest.mark.slow
def test_the_largest_batch_of_a_command_is_proved_from_both_sides_in_fresh_processes(here):
    words = (*written(here, HUNGRY), "{batch}")
    found = run(asked(words, only="batch", goal="largest", budget="15m", memory_limit="768MiB"))
    largest = found.findings.largest
    assert largest.is_proved
    assert found.findings.lever == "flag"
    ran = {row.batch for row in found.profile.evidence.trials if row.fits}
    failed = {row.batch: row.end for row in found.profile.evidence.trials if not row.fits}
    assert largest.batch in ran
    assert failed[largest.fails_at] == "oom_host"
    assert largest.fails_at - largest.batch <= max(4, largest.batch // 100)
    # 1 MiB a sample, beside what Python, torch and the data take
    assert 200 <= largest.batch <= 700


def tuning(words, environment, *more):
    command = [sys.executable, "-m", "tests.tune.quiet", "tune", *PLACE, *more, "--json", "--", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.slow
def test_an_interrupted_search_keeps_what_was_found_and_leaves_nothing_running(here):
    environment, words = marked(), written(here, WAITING)
    with tuning(words, environment, "--only", "loader") as process:
        for line in process.stderr:
            if "loader: a batch costs" in line:
                process.send_signal(signal.SIGINT)
                break
        told, _ = process.communicate()
    assert process.returncode == 130
    found = json.loads(told)
    assert found["script"]["interrupted"]
    # one worker has run, and is faster
    assert found["profile"]["script"]["tuned"] == ["loader"]
    assert load(found["path"])
    assert alive(environment) == []
    with tuning(words, environment, "--only", "loader") as process:
        said = next((line for line in process.stderr if "continuing with" in line), "")
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert "continuing with 1 trial" in said
    assert alive(environment) == []


def test_ctrl_c_during_the_look_says_that_nothing_is_written(here, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("gpudoc.script.trial.Launches.look", interrupted)
    with pytest.raises(GpudocError, match=r"interrupted while looking at train\.py.*nothing was written") as refused:
        run(asked(written(here, WAITING)))
    assert refused.value.exit_code == ExitCode.INTERRUPTED
    assert [path.name for path in here.iterdir()] == ["train.py"]


def test_trials_that_cannot_be_isolated_are_refused_unless_somebody_says_so(here):
    options = SearchOptions(command=tuple(written(here, "pass")))
    nothing = Isolation(why_not=("no user namespaces",))
    with pytest.raises(GpudocError, match="what they write stays and they reach the network") as told:
        isolate(options, nothing, None)
    assert told.value.exit_code == 2
    assert "--in-place" in told.value.hint
    with pytest.raises(GpudocError, match="no user namespaces"):
        isolate(options, nothing, lambda why: False)
    questions = []
    assert not isolate(options, nothing, lambda why: questions.append(why) or True)
    assert "no user namespaces" in questions[0]
    assert not isolate(
        SearchOptions(command=tuple(written(here, "pass")), in_place=True), Isolation(files=True, network=True), None
    )


def test_a_network_that_cannot_be_taken_away_is_asked_for_or_allowed(here):
    files_only = Isolation(files=True, why_not=("no network namespaces",))
    words = written(here, "pass")
    with pytest.raises(GpudocError, match="they reach the network"):
        isolate(SearchOptions(command=tuple(words)), files_only, None)
    assert isolate(SearchOptions(command=tuple(words), allow="network"), files_only, None)
    assert isolate(SearchOptions(command=tuple(words)), files_only, lambda why: True)
    assert isolate(SearchOptions(command=tuple(words)), Isolation(files=True, network=True), None)


def test_a_command_without_torch_is_an_error_and_not_a_profile(here):
    with pytest.raises(GpudocError, match="without importing torch") as told:
        run(asked(written(here, "print('done')")))
    assert told.value.exit_code is ExitCode.NOT_DONE


def test_the_gpus_of_a_search_are_those_that_the_script_was_seen_on():
    seen = searched()[1].look
    assert list(gpus_of(seen)) == []
    assert list(gpus_of(replace(seen, device="cuda:1"))) == [1]
    assert list(gpus_of(replace(seen, device="cuda:0", ranks=2))) == [0, 1]


def test_the_document_of_a_search_holds_profile_lines_and_gain():
    told = document(result_of(*searched()))
    assert told["profile"]["schema"] == "gpudoc.profile.v1"
    assert told["script"]["lines"][0]["at"] == "train.py:7"
    assert told["script"]["gain"]["low"] <= told["script"]["gain"]["ratio"]
    assert told["script"]["lever"] == "loader"


def test_an_interrupted_result_ends_with_its_own_code():
    options, found, session = searched(only="loader")
    assert result_of(options, found, session).exit_code == 0
    assert result_of(options, found, session, interrupted=True).exit_code == 130
    assert os.environ.get("GPUDOC_SCRIPT_FOLDER") is None
