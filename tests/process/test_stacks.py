"""A thread's stack counts against the memory limit, and glibc keeps it for the next thread."""

from __future__ import annotations

import subprocess
import sys
import threading

from gpudoc.process.stacks import little_stacks, num_threads, stack_bytes

CODE = """
import sys, threading
from gpudoc.process.memory import read_process_memory
from gpudoc.process.stacks import little_stacks

def start(number):
    over = threading.Event()
    threads = [threading.Thread(target=over.wait) for _ in range(number)]
    for thread in threads:
        thread.start()
    held = read_process_memory().data_bytes
    over.set()
    for thread in threads:
        thread.join()
    return held

before = read_process_memory().data_bytes
with little_stacks():
    little = start(4)
usual = start(4)
print((little - before) >> 20, (usual - before) >> 20)
"""
ASK = "from gpudoc.process.stacks import stack_bytes; print(stack_bytes())"


def test_threads_take_little_of_the_limit_inside_and_their_usual_stack_afterwards():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    little, usual = map(int, done.stdout.split())
    assert little <= 2
    assert usual >= little + 4


def test_what_was_set_before_is_set_again():
    before = threading.stack_size(1 << 20)
    try:
        with little_stacks():
            assert threading.stack_size() == 1 << 18
        assert threading.stack_size() == 1 << 20
    finally:
        threading.stack_size(before)


def test_every_thread_is_counted_and_the_stack_of_one_is_the_limits():
    before, over = num_threads(), threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    assert num_threads() == before + 1
    over.set()
    thread.join()
    done = subprocess.run(
        ["sh", "-c", f"ulimit -s 4096; exec {sys.executable} -c '{ASK}'"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 4096 << 10
    assert stack_bytes() > 0
