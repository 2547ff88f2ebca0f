"""Lines to a process and from it: what it says, what a kill cuts off, its last words, and that none of it is left."""

import os
import sys

import psutil
import pytest

from gpudoc.process.conversation import Conversation

ECHO = "for line in sys.stdin: print(line.strip().upper(), flush=True)"
# its child holds the pipe on
LEAVES_A_CHILD = "import subprocess; subprocess.Popen(['sleep', '600']); print('gone', flush=True)"
DIES = "sys.stdout.write('whole\\nhalf a li'); sys.stdout.flush(); print('\\nKeyError: 3\\n', file=sys.stderr); exit(4)"


@pytest.fixture
def talk():
    begun = []

    def begin(code):
        begun.append(Conversation([sys.executable, "-c", f"import sys\n{code}"], os.environ))
        return begun[-1]

    yield begin
    for one in begun:
        one.end()
        assert one.process.poll() is not None
    assert not [left for left in psutil.Process().children(recursive=True) if left.name() == "sleep"]


def test_lines_go_there_and_back(talk):
    one = talk(ECHO)
    one.say(b"a")
    one.say("ü".encode())
    assert [one.hear(60), one.hear(60)] == [b"A", "Ü".encode()]


def test_silence_is_no_end(talk):
    one = talk(ECHO)
    with pytest.raises(TimeoutError):
        one.hear(0.01)
    one.say(b"a")
    assert one.hear(60) == b"A"


def test_of_what_a_death_cuts_off_only_whole_lines_are_heard_and_its_last_words(talk):
    one = talk(DIES)
    assert [one.hear(60), one.hear(60)] == [b"whole", None]
    assert one.last_words() == ("ended with code 4", "KeyError: 3")
    one.say(b"nobody listens")


def test_an_end_is_heard_though_a_child_holds_the_pipe(talk):
    one = talk(LEAVES_A_CHILD)
    assert [one.hear(60), one.hear(60)] == [b"gone", None]


def test_what_another_thread_has_ended_has_no_last_words(talk):
    one = talk(ECHO)
    one.end()
    assert one.hear(60) is None
    assert one.last_words() == ("ended by SIGKILL", "")
