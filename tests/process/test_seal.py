"""What is signed with the run's key is opened with it, for the purpose it was signed for, and nothing else is."""

from __future__ import annotations

import os
import subprocess

import pytest

from gpudoc.process.seal import KEY, NEW_KEY, Seal, SealError, seal_here

OURS = Seal("0123456789abcdef")


def test_what_was_signed_is_opened():
    assert OURS.open("order/1", OURS.sign("order/1", b"data")) == b"data"


@pytest.mark.parametrize(
    "signed",
    [
        b"",
        b"data",
        Seal("another key of a run").sign("order/1", b"data"),
        OURS.sign("order/2", b"data"),
        OURS.sign("order", b"/1data"),
        OURS.sign("order/1", b"data") + b"!",
    ],
)
def test_nothing_else_is(signed):
    with pytest.raises(SealError, match=KEY):
        OURS.open("order/1", signed)


def test_a_key_that_can_be_guessed_is_none():
    assert seal_here({}) is None
    assert seal_here({KEY: "secret"}) is None
    assert seal_here({KEY: "0123456789abcdef"}) is not None


def test_a_job_file_makes_a_new_key_each_time():
    keys = {subprocess.check_output(["bash", "-c", f"echo {NEW_KEY}"], env=os.environ, text=True) for _ in range(2)}
    assert len(keys) == 2
    assert {len(key.strip()) for key in keys} == {64}
