import json
import subprocess
import sys
import time

import pytest

from gpudoc.facts.live import spy
from gpudoc.facts.model import Absent
from tests.waiting import wait_until

LABEL = {"name": 'process 5:"python x.py"', "file": "", "line": 0}
THREAD = {"name": "thread (5): MainThread", "file": "", "line": 0}
FRAME = {"name": "main", "file": "/x.py", "line": 3}


def document(name='Process 5 Thread 5 "MainThread"', samples=((0, 1, 2),)):
    return {
        "shared": {"frames": [LABEL, THREAD, FRAME]},
        "profiles": [{"name": name, "samples": list(map(list, samples))}],
    }


def test_samples_lose_their_labels_and_keep_their_order():
    read = spy.parse_speedscope(document(samples=((0, 1, 2), (0, 1), (0, 1, 2))))
    assert read.threads[0].samples == ((2,), (), (2,))
    assert read.frames[2].file == "/x.py"
    assert (read.threads[0].pid, read.threads[0].name, read.threads[0].is_main) == (5, "MainThread", True)


@pytest.mark.parametrize("broken", [{}, {"profiles": 3}, {"profiles": [3], "shared": {"frames": [4]}}, document("odd")])
def test_a_strange_document_gives_no_threads(broken):
    assert spy.parse_speedscope(broken).threads == ()


def test_a_look_keeps_only_main_threads_outermost_frame_first():
    frames = [{"name": "leaf", "filename": "/x.py", "line": 2}, {"name": "root", "filename": "/x.py", "line": 9}]
    thread = {"pid": 5, "os_thread_id": 5, "active": True, "owns_gil": True, "frames": frames}
    other = {**thread, "os_thread_id": 6}
    seen = spy.parse_dump(json.dumps([thread, other]), 1.5)
    assert [f.function for f in seen[0].frames] == ["root", "leaf"]
    assert len(seen) == 1
    assert seen[0].holds_gil
    assert spy.parse_dump("[{", 0.0) == []


def test_every_refusal_is_told_in_words():
    assert "ptrace refused" in spy.explain_refusal("Permission Denied: Try running again with elevated permissions")
    assert "not a Python process" in spy.explain_refusal("Error: Failed to find python version from target process")
    assert "ended" in spy.explain_refusal(
        "Error: Failed to get process executable name. Check that the process is running."
    )
    assert "saw nothing" in spy.explain_refusal("")


def test_the_sampler_sees_where_a_real_process_stands(tmp_path):
    program = spy.find()
    assert isinstance(program, str)
    code = "import time\ndef waits_here():\n    time.sleep(600)\nprint(flush=True); waits_here()\n"
    script = tmp_path / "sleeper.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as job:
        try:
            job.stdout.readline()
            recorder = spy.Recorder(program, job.pid, tmp_path / "stacks.json", 30)
            wait_until(lambda: b"Sampling process" in (tmp_path / "stacks.err").read_bytes())
            # what it has read nobody can see before its end
            time.sleep(0.5)
            stacks = recorder.finish()
            assert not isinstance(stacks, Absent), stacks
            main = next(t for t in stacks.threads if t.is_main)
            leaf = stacks.frames[main.samples[-1][-1]]
            assert (leaf.function, leaf.line, leaf.file) == ("waits_here", 3, str(script))
            assert job.poll() is None
        finally:
            job.kill()


def test_a_process_that_is_gone_is_absent_with_the_reason(tmp_path):
    program = spy.find()
    assert isinstance(program, str)
    recorder = spy.Recorder(program, 2**22 - 1, tmp_path / "stacks.json", 1)
    wait_until((tmp_path / "stacks.err").read_bytes)
    found = recorder.finish()
    assert isinstance(found, Absent)
    assert "ended" in found.reason


def test_nobody_may_look_into_another_users_process(tmp_path):
    program = spy.find()
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(program), "dump", "--pid", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "setpriv" in done.stderr:
        pytest.skip("not root: cannot become another user")
    assert done.returncode != 0
