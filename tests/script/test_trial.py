import pytest

from gpudoc.process.openmp import WAITING as WAITING_VARIABLES
from gpudoc.profile.model import Loader
from gpudoc.script.cell import what_can_be
from gpudoc.script.command import Command
from gpudoc.script.look import look_at
from gpudoc.script.outcome import refusal
from gpudoc.script.trial import Launches
from gpudoc.tune.trial.messages import End, TrialRequest, Variant
from tests.script.family import alive, marked
from tests.script.scripts import HUNGRY, RANKS, WAITING, written

IN_A_CELL = pytest.mark.skipif(not what_can_be().files, reason="no cell here")


def launches_of(tmp_path, words, **changes):
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    known = {"command": Command(words), "scratch": scratch, "isolated": what_can_be().files, "starting": marked()}
    return Launches(**{**known, **changes})


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    # a look goes on for so long, whatever it has seen
    monkeypatch.setattr("gpudoc.script.trial.LOOK_S", 1.0)
    return folder


@IN_A_CELL
def test_a_look_tells_the_script_and_a_trial_takes_its_order_and_neither_leaves_anything(tmp_path, here):
    launches = launches_of(tmp_path, (*written(here, WAITING), "--wait", "0.005", "--step", "0.02"))
    told = launches.look(launches.command.words, patience_s=120)
    # the import of torch alone keeps a CPU busy for seconds, and nobody else did that
    assert told.beside.share - told.beside.other_share > 0.05
    look = look_at(told.seen, warm_steps=3, start_s=told.start_s)
    assert (look.training.place, look.batch, look.ranks, look.device) == ("train.py:22", 8, 1, "cpu")
    assert [loader.place for loader in look.loaders] == ["train.py:21", "train.py:22"]
    assert look.wait_share > 0.4
    assert look.torch

    launches.keys, launches.lever = (look.training.key,), "loader"
    request = TrialRequest(kind="loader", batches=(16,), feed=Loader(num_workers=4), steps=6)
    trial = launches.run(request, patience_s=120)
    assert trial.fits
    assert trial.measured["loader_batch"] == 16
    # built as ordered, whatever that brings on a busy machine
    (seen,) = launches.last.seen
    assert [loader.num_workers for loader in seen.loaders if loader.place == "train.py:22"] == [4]
    assert trial.measured["samples_per_s"] > 0
    assert trial.refused == {}

    assert not (here / "started.txt").exists()
    assert list(launches.scratch.iterdir()) == []
    assert alive(launches.starting) == []


def test_the_batch_is_put_into_the_command_and_the_memory_limit_is_real(tmp_path, here):
    words = (*written(here, HUNGRY), "{batch}")
    launches = launches_of(tmp_path, words, lever="flag", batch_limit_bytes=768 << 20)
    fits = launches.run(TrialRequest(kind="fit", batches=(8,), steps=2), patience_s=120)
    assert fits.fits
    assert fits.measured["loader_batch"] == 8
    fails = launches.run(TrialRequest(kind="fit", batches=(800,), steps=2), patience_s=120)
    assert fails.end is End.OOM_HOST
    assert fails.failed_batch == 800
    assert alive(launches.starting) == []


@pytest.mark.parametrize(
    ("code", "says", "hint"),
    [
        ("print('hello')", "ended without importing torch", "command that trains"),
        ("import sys; sys.exit('no data here')", "no data here", ""),
        ("input('name? ')", "EOFError", "no terminal"),
        ("import os, time; os.fork(); time.sleep(600)", "imported no torch within", "--budget"),
    ],
)
def test_a_command_without_steps_is_told_and_ended(tmp_path, here, code, says, hint):
    launches = launches_of(tmp_path, written(here, code), isolated=False)
    told = launches.look(launches.command.words, patience_s=20 if "sleep" not in code else 2)
    found = refusal(told, "train.py")
    assert says in found.message
    assert hint in found.hint
    assert alive(launches.starting) == []


def test_threads_sleep_in_a_trial_that_asks_for_it_and_what_went_on_beside_it_is_known(tmp_path, here):
    code = "import os, time; print([os.environ.get(n) for n in ('OMP_WAIT_POLICY', 'KMP_BLOCKTIME')]); time.sleep(0.1)"
    own = {name: value for name, value in marked().items() if name not in WAITING_VARIABLES}
    launches = launches_of(tmp_path, written(here, code), isolated=False, starting=own)
    request = TrialRequest(kind="variant", batches=())
    trial = launches.run(request, patience_s=60)
    assert "[None, None]" in launches.last.tail
    assert trial.measured["other_cpus"] >= 0
    launches.run(request.model_copy(update={"variant": Variant(wait_policy="passive")}), patience_s=60)
    assert "['passive', '0']" in launches.last.tail


def test_trackers_are_off_in_a_trial(tmp_path, here):
    launches = launches_of(tmp_path, written(here, "import os; print(os.environ['WANDB_MODE'])"), isolated=False)
    assert "disabled" in launches.look(launches.command.words, patience_s=60).tail


@IN_A_CELL
def test_a_script_that_needs_the_network_is_told_how_to_get_it(tmp_path, here):
    code = "import urllib.request; urllib.request.urlopen('http://data.example/set.tar')"
    launches = launches_of(tmp_path, written(here, code))
    told = launches.look(launches.command.words, patience_s=60)
    assert "--allow network" in refusal(told, "train.py").hint


def test_a_data_set_that_differs_from_launch_to_launch_is_found_out(tmp_path, here):
    ever_more = "return 4000 + int(time.time() * 1000) % 1000 + 1"
    words = (*written(here, WAITING.replace("return 4000", ever_more)), "--wait", "0.002", "--step", "0.01")
    launches = launches_of(tmp_path, words, keys=("train.py:22|Waiting|1|shuffled",), isolated=False)
    trial = launches.run(TrialRequest(kind="loader", batches=(), feed=Loader(num_workers=1), steps=3), patience_s=120)
    assert "differs from launch to launch" in trial.refused["num_workers"]


@pytest.mark.slow
def test_ranks_of_torchrun_are_looked_at_together_and_each_takes_the_batch(tmp_path, here):
    python, script = written(here, RANKS)
    run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, "--batch-size", "{batch}")
    launches = launches_of(tmp_path, (python, *run), lever="flag")
    told = launches.look(launches.command.without_batch(), patience_s=240)
    look = look_at(told.seen, warm_steps=3, start_s=told.start_s)
    assert (look.ranks, look.batch, look.training.place) == (2, 4, "train.py:15")
    assert look.samples_per_s == pytest.approx(2 * 4 / look.step_s, rel=0.5)
    trial = launches.run(TrialRequest(kind="fit", batches=(16,), ranks=2, steps=3), patience_s=240)
    assert trial.fits
    assert (trial.measured["ranks"], trial.measured["loader_batch"]) == (2, 16)
    assert alive(launches.starting) == []
