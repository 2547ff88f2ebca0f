import subprocess
import sys

import psutil
import pytest

# a search that starts a server and is killed before it could end it
SEARCH = """
import os, socket, subprocess, sys, time
from gpudoc.tune.trial.wire import command
own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
call = f"serve({theirs.fileno()}, 'cfg.yaml', {os.getpid()})"
server = subprocess.Popen(command(call), pass_fds=[theirs.fileno()], start_new_session=True)
print(server.pid, flush=True)
time.sleep(600)
"""


def test_a_fork_server_ends_with_the_search_that_was_killed():
    search = subprocess.Popen([sys.executable, "-c", SEARCH], stdout=subprocess.PIPE, text=True)
    server = psutil.Process(int(search.stdout.readline()))
    search.kill()
    search.wait()
    search.stdout.close()
    try:
        server.wait(timeout=60)
    except psutil.TimeoutExpired:
        server.kill()
        pytest.fail("the fork server outlived the search")
