import sys

import psutil
import pytest

from gpudoc.errors import GpudocError
from gpudoc.process import openmp
from gpudoc.process.openmp import OpenMp
from gpudoc.tune.trial import fork_client
from gpudoc.tune.trial.fork_client import ForkServerDiedError, ForkServerProcess, trial_error, users_traceback
from gpudoc.tune.trial.messages import End, Trial, TrialRequest, Variant
from gpudoc.tune.trial.wire import BrokenMessageError, RankPlace, TrialStart
from tests.tune.planted import write_workload


def running_children():
    """Processes of this one that still run; other tests' ended ones may wait to be collected."""
    return {child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


def test_errors_before_the_first_trial_are_the_users_own(tmp_path):
    source = str(write_workload(tmp_path, data={"count": 0}))
    before = running_children()
    with pytest.raises(GpudocError, match="data set is empty"):
        ForkServerProcess(source, Variant(), tmp_path).ready  # noqa: B018
    assert running_children() == before


def test_a_warm_process_says_what_it_has_read_and_ends_when_closed(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = running_children()
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(openmp, "own_openmp", lambda: OpenMp("libgomp"))
    asked = Variant(allocator="exact", wait_policy="passive")
    warm = ForkServerProcess(str(write_workload(tmp_path)), asked, tmp_path)
    (process,) = running_children() - before
    assert warm.ready.no_fork == ""
    # only now: for a moment after its exec a process has no environment in /proc
    assert process.environ()["MALLOC_ARENA_MAX"] == "1"
    assert process.environ()["OMP_WAIT_POLICY"] == "passive"
    warm.close()
    with pytest.raises(psutil.NoSuchProcess):
        process.status()
    order = TrialStart(
        trial=1,
        request=TrialRequest(kind="fit", batches=(1,)),
        place=RankPlace(device="cpu", limit_bytes=None),
        log="log",
    )
    with pytest.raises(ForkServerDiedError):
        warm.send(order)


def test_the_users_code_waits_until_it_is_asked_for(tmp_path, monkeypatch):
    """Two fork servers import PyTorch beside each other; a data set that writes files is made in one at a time."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PLANT_AT_IMPORT", f"open({str(tmp_path / 'imported')!r}, 'a').write(f'{{os.getpid()}} ')")
    source = str(write_workload(tmp_path))
    first, second = (ForkServerProcess(source, each, tmp_path) for each in (Variant(), Variant(allocator="exact")))
    try:
        assert first.ready.no_fork == ""
        (early,) = (tmp_path / "imported").read_text().split()
        assert second.ready.no_fork == ""
        assert (tmp_path / "imported").read_text().split()[0] == early
        assert len((tmp_path / "imported").read_text().split()) == 2
    finally:
        first.close()
        second.close()


def test_what_fails_before_the_workload_is_asked_for_is_told(tmp_path, monkeypatch):
    call = fork_client.command

    def broken(function):
        arguments = call(function)
        return [*arguments[:-1], f"import sys; sys.modules['gpudoc.train.report.finish'] = None; {arguments[-1]}"]

    monkeypatch.setattr(fork_client, "command", broken)
    server = ForkServerProcess("quickstart", Variant(), tmp_path)
    with pytest.raises(GpudocError, match=r"import of gpudoc\.train\.report\.finish halted"):
        server.ready  # noqa: B018


def test_a_process_that_talks_of_something_else_is_named_with_its_words_and_ended(tmp_path, monkeypatch):
    def other(call):
        handle = call.split("(")[1].split(",")[0]
        code = f"import socket, time; s = socket.socket(fileno={handle}); s.recv(9); s.send(b'good morning')"
        code += "; time.sleep(600)"
        return [sys.executable, "-c", code]

    monkeypatch.setattr(fork_client, "command", other)
    before = running_children()
    with pytest.raises(BrokenMessageError, match=r"the fork server \(pid \d+\) sent .* 'good morning'"):
        ForkServerProcess("quickstart", Variant(), tmp_path).ready  # noqa: B018
    assert running_children() == before


def test_the_users_traceback_is_headed_as_theirs():
    assert users_traceback("Traceback (most recent call last):\n  x\n").startswith(
        "Traceback (most recent call last) of your code:"
    )
    request = TrialRequest(kind="fit", batches=(3,))
    own = Trial(request=request, end=End.USER_ERROR, detail="no such key", hint="add it", exit_code=2)
    assert (trial_error(own).message, trial_error(own).hint, trial_error(own).exit_code) == ("no such key", "add it", 2)
    theirs = Trial(request=request, end=End.USER_ERROR, detail="E: x", failed_batch=3, stage="train", traceback="T")
    assert "at batch 3, in train: E: x" in trial_error(theirs).message
