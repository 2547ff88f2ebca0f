"""The environments of cuda-check: made once, made again when they must be, and what is missing is said."""

from __future__ import annotations

import contextlib
import fcntl
import threading

import pytest

from tests.standin import environment
from tests.standin.environment import Environment


@pytest.fixture
def made(tmp_path, monkeypatch):
    """An environment whose interpreter is a script, with pip's exit status as it is set."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("torch==1.2.3\nnvidia-cuda-runtime-cu12==12.8.90\n")
    one = Environment(constraints)
    one.python.parent.mkdir(parents=True)

    def pip(status):
        one.python.write_text(f"#!/bin/sh\necho 'ERROR: nothing to be had' >&2\nexit {status}\n")
        one.python.chmod(0o755)
        return one

    return pip


def test_a_wheel_that_cannot_be_had_is_said_in_one_line_with_what_to_type(made):
    with pytest.raises(SystemExit) as ended:
        made(1).install()
    said = str(ended.value)
    assert "\n" not in said
    assert "PyTorch's CUDA wheel failed (ERROR: nothing to be had)" in said
    assert said.endswith("type: make cuda-check")


def test_a_build_of_pytorch_without_cuda_is_refused(made):
    one = made(0)
    (one.site / "torch").mkdir(parents=True)
    (one.site / "torch" / "version.py").write_text("cuda: Optional[str] = None\n")
    with pytest.raises(SystemExit, match=r"PyTorch 1\.2\.3 without CUDA"):
        one.install()


@pytest.mark.parametrize("tool", environment.TOOLS)
def test_a_compiler_that_is_missing_is_named_with_how_it_is_installed(monkeypatch, tool):
    monkeypatch.setattr(environment.shutil, "which", lambda name: None if name == tool else name)
    monkeypatch.setattr(environment.platform, "system", lambda: "Linux")
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    with pytest.raises(SystemExit) as ended:
        environment.require_machine()
    assert tool in str(ended.value)
    assert "apt-get install" in str(ended.value)


def test_each_step_is_done_once_and_again_after_a_change_or_a_stop(made, monkeypatch):
    one, done = made(0), []
    monkeypatch.setattr(Environment, "install", lambda self: done.append("install"))
    monkeypatch.setattr(Environment, "build", lambda self: done.append("build"))
    for _ in range(2):
        with one.ready():
            pass
    assert done == ["install", "build"]
    (one.folder / ".built").unlink()  # as after Ctrl+C while it was built
    with one.ready():
        assert done == ["install", "build", "build"]
    one.constraints.write_text(one.constraints.read_text() + "# another\n")
    with one.ready():
        assert done[3:] == ["install", "build"]


def test_who_waited_for_the_same_uses_it_beside_who_made_it(made, monkeypatch):
    """Two runs find it used by a third that has other sources: when that ends one makes it, and both go on."""
    one, waiting, done, both = made(0), threading.Semaphore(0), [], threading.Barrier(2)
    monkeypatch.setattr(environment, "say", lambda text: waiting.release())
    monkeypatch.setattr(Environment, "install", lambda self: done.append("install"))
    monkeypatch.setattr(Environment, "build", lambda self: done.append("build"))

    def use():
        with one.ready(), contextlib.suppress(threading.BrokenBarrierError):
            both.wait(60)

    runs = [threading.Thread(target=use, daemon=True) for _ in range(2)]
    with (one.folder.parent / "1.2.3.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        for run in runs:
            run.start()
        assert all(waiting.acquire(timeout=60) for _ in runs)
    for run in runs:
        run.join()
    assert done == ["install", "build"]
    assert not both.broken


@pytest.mark.parametrize("only", ["", "cuda13"])
def test_a_pytorch_runs_the_same_tests_alone_and_among_all(only, monkeypatch):
    asked = {}
    monkeypatch.setattr(environment, "require_machine", lambda: None)
    monkeypatch.setattr(environment.sys, "argv", ["environment", *(["--only", only] if only else [])])
    monkeypatch.setattr(Environment, "ready", lambda self: contextlib.nullcontext())
    monkeypatch.setattr(Environment, "test", lambda self, tests, branches: asked.update({self.constraints.stem: tests}))
    with pytest.raises(SystemExit):
        environment.main()
    assert asked["constraints-cuda13"] == (*environment.PARALLEL, *environment.SAMPLE)
    assert asked.get("constraints-cuda12", environment.PARALLEL) == environment.PARALLEL
    assert len(asked) == (1 if only else 2)


def test_a_constraints_file_from_elsewhere_runs_everything_and_a_name_that_is_none_is_said(tmp_path):
    other = tmp_path / "constraints-cuda13.txt"
    other.write_text("torch==1.2.3\n")
    assert environment.chosen_of(str(other)) == [(Environment(other), ())]
    with pytest.raises(SystemExit, match=r"no .*constraints-cuda99\.txt; --only takes cuda12, cuda13"):
        environment.chosen_of("cuda99")


def test_preparing_makes_every_environment_and_runs_nothing(made, monkeypatch, capsys):
    one = made(0)
    ready = []
    monkeypatch.setattr(environment, "require_machine", lambda: None)
    monkeypatch.setattr(environment, "chosen_of", lambda only: [(one, ()), (one, environment.SAMPLE)])
    monkeypatch.setattr(Environment, "ready", lambda self: contextlib.nullcontext(ready.append(self)))
    monkeypatch.setattr(Environment, "run", lambda self, *_, **__: pytest.fail("something was run"))
    monkeypatch.setattr("sys.argv", ["environment", "--prepare"])
    with pytest.raises(SystemExit) as ended:
        environment.main()
    assert ended.value.code == 0
    assert ready == [one, one]
