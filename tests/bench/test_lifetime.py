import os
import subprocess
import sys


def ends_with(code):
    return subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode


def test_a_process_whose_parent_is_already_gone_ends_at_once():
    code = "from gpudoc.bench.lifetime import die_with_parent; die_with_parent({}); raise SystemExit(7)"
    assert ends_with(code.format(os.getpid())) == 7
    assert ends_with(code.format(2**22 + 1)) == 1
