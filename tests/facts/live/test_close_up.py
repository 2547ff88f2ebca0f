import subprocess
import sys

from gpudoc.facts.live import spy
from gpudoc.facts.live.close_up import RATE_HZ, CloseUp
from gpudoc.facts.model import Absent

ALTERNATES = """
import time
def first():
    until = time.perf_counter() + 0.05
    while time.perf_counter() < until: pass
def second():
    until = time.perf_counter() + 0.05
    while time.perf_counter() < until: pass
print(flush=True)
while True:
    first()
    second()
"""


def test_one_process_is_seen_more_often_than_in_the_whole_watch(tmp_path):
    program = spy.find()
    assert isinstance(program, str)
    script = tmp_path / "alternates.py"
    script.write_text(ALTERNATES)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as job:
        try:
            job.stdout.readline()
            stacks = CloseUp(program, job.pid, tmp_path).finish()
            assert not isinstance(stacks, Absent), stacks
            main = next(t for t in stacks.threads if t.is_main)
            names = [stacks.frames[sample[-1]].function for sample in main.samples]
            assert {"first", "second"} <= set(names)
            assert 0 < stacks.rate_hz <= 1.1 * RATE_HZ
            assert job.poll() is None
        finally:
            job.kill()


def test_a_process_that_is_gone_is_absent_with_the_reason(tmp_path):
    program = spy.find()
    assert isinstance(program, str)
    found = CloseUp(program, 2**22 - 1, tmp_path).finish()
    assert isinstance(found, Absent)
    assert "ended" in found.reason
