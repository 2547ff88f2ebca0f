import subprocess
import sys

from gpudoc.script.loads import Loads

BUSY = """
import os, sys
held = bytearray(64 << 20)
child = os.fork()
sys.stdin.readline()
"""


def test_what_a_process_and_its_children_hold_is_counted_together():
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) as process:
        loads = Loads(process.pid)
        figures = {}
        while figures.get("private_bytes", 0) < 60 << 20:
            loads = Loads(process.pid)
            loads.sample(1)
            figures = loads.figures()
        assert figures["private_bytes"] < 200 << 20
        assert "cpu_s" not in figures
        loads.sample(11)
        assert 0 <= loads.figures()["cpu_s"] < 1
        process.kill()


def test_a_process_that_is_gone_has_no_load():
    loads = Loads(2**22 - 1)
    loads.sample(1)
    assert loads.figures() == {}
