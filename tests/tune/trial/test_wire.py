"""Every message across the border: there and back unchanged, and broken ones named with their sender and text."""

import json
import os
import socket
import subprocess
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoc.errors import ExitCode
from gpudoc.profile.model import Hardware, Loader, WorkloadKey
from gpudoc.tune.trial import wire
from gpudoc.tune.trial.messages import End, PlanQuestion, Point, TrialRequest, Variant
from gpudoc.tune.trial.wire import (
    BatchMeasured,
    BrokenMessageError,
    Envelope,
    Exited,
    Fact,
    Failed,
    FirstLosses,
    Inspection,
    LifeSign,
    RankEnd,
    RankPlace,
    Ready,
    TorchCard,
    TrialStage,
    TrialStart,
    TrialStarted,
    Waiting,
    command,
    decode,
    encode,
    receive,
    send,
)

counts = st.integers(0, 1 << 62)
seconds = st.floats(allow_nan=False)
texts = st.text(max_size=20)
points = st.builds(
    Point,
    batch=st.integers(1, 1 << 40),
    peak_bytes=st.none() | counts,
    rest_bytes=st.none() | counts,
    step_s=st.lists(seconds, max_size=3).map(tuple),
    retries=counts,
)
places = st.builds(RankPlace, device=texts, limit_bytes=st.none() | counts, stop_s=seconds)
requests = st.builds(
    TrialRequest,
    kind=st.sampled_from(["plan", "fit", "joint", "scaling"]),
    batches=st.lists(counts, min_size=1, max_size=3).map(tuple),
    variant=st.builds(Variant, precision=st.sampled_from(["fp32", "bf16"]), compile=st.booleans()),
    feed=st.none() | st.builds(Loader, num_workers=st.integers(0, 64)),
    enough=counts,
    threads=st.none() | st.integers(1, 64),
    unlimited=st.booleans(),
    question=st.none() | st.builds(PlanQuestion, limit_bytes=counts, seen=st.none() | st.tuples(counts, counts)),
)
inspections = st.builds(
    Inspection,
    num_samples=counts,
    workload=st.builds(WorkloadKey, config=texts, model=texts),
    hardware=st.builds(Hardware, device=st.just("cuda"), capability=st.none() | st.just((9, 0))),
    card=st.none() | st.builds(TorchCard, name=texts, capability=st.none() | st.just((9, 0)), free_bytes=counts),
)
EVENTS = {
    Ready: st.builds(Ready, no_fork=texts),
    Failed: st.builds(Failed, message=texts, hint=texts, traceback=texts),
    TrialStarted: st.builds(TrialStarted, group=counts, how=st.sampled_from(["fork", "exec"])),
    Exited: st.builds(Exited, status=st.integers(-64, 255)),
    TrialStage: st.builds(TrialStage, stage=texts, batch=st.none() | counts),
    BatchMeasured: st.builds(
        BatchMeasured, point=points, legs=st.dictionaries(texts, st.lists(seconds, max_size=3).map(tuple), max_size=3)
    ),
    Fact: st.builds(Fact, name=texts, value=seconds),
    FirstLosses: st.builds(FirstLosses, losses=st.lists(seconds, max_size=5).map(tuple)),
    LifeSign: st.just(LifeSign()),
    Waiting: st.just(Waiting()),
    RankEnd: st.builds(RankEnd, end=st.sampled_from(End), detail=texts, hint=texts, traceback=texts, code=counts),
    Inspection: inspections,
}
FIT = TrialRequest(kind="fit", batches=(8,), ranks=2)
ORDER = TrialStart(trial=1, request=FIT, place=RankPlace(device="cpu", limit_bytes=None), log="/tmp/x.log")


@pytest.mark.parametrize("kind", typing.get_args(wire.Event), ids=lambda kind: kind.__name__)
def test_every_event_comes_back_as_it_was(kind):
    @given(st.builds(Envelope, trial=st.none() | counts, rank=counts, event=EVENTS[kind]))
    def there_and_back(told):
        back = decode(Envelope, encode(told), "a trial")
        assert back == told
        assert type(back.event) is kind

    there_and_back()


@given(st.builds(TrialStart, trial=counts, request=requests, place=places, log=texts, inspect=st.booleans()))
def test_an_order_comes_back_as_it_was(order):
    back = decode(TrialStart, encode(order), "gpudoc tune")
    assert back == order
    assert back.request.key() == order.request.key()


def edited(**changes):
    return json.dumps({**json.loads(encode(ORDER)), **changes}).encode()


BROKEN = {
    "cut off": (TrialStart, encode(ORDER)[:-9], "EOF while parsing"),
    "not JSON": (Envelope, b"Segmentation fault", "expected value"),
    "no text at all": (Envelope, b"\xff\xfe\x00", "expected value"),
    "another schema": (Envelope, b'{"event": "point", "id": 3, "rank": 0}', "event"),
    "unknown event": (Envelope, b'{"event": {"kind": "moved"}}', "'moved' found"),
    "no kind": (Envelope, b'{"event": {"batch": 3}}', "event"),
    "a field too many": (TrialStart, edited(colour="red"), "colour: Extra inputs"),
    "a field too few": (Envelope, b'{"event": {"kind": "exited"}}', "event.exited.status: Field required"),
    "text for a number": (Envelope, b'{"event": {"kind": "exited", "status": "0"}}', "valid integer"),
    "a number for text": (TrialStart, edited(log=3), "log: Input should be a valid string"),
    "a half rank": (Envelope, b'{"rank": 0.5, "event": {"kind": "beat"}}', "rank"),
    "an unknown end": (Envelope, b'{"event": {"kind": "ended", "end": "tired"}}', "event.ended.end"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_message_is_named_with_its_sender_and_its_text(case):
    kind, data, why = BROKEN[case]
    with pytest.raises(BrokenMessageError) as caught:
        decode(kind, data, "the fork server (pid 7)")
    said = caught.value.message
    assert said.startswith(f"the fork server (pid 7) sent something other than a {kind.__name__} message")
    assert why in said
    assert repr(data[:200].decode(errors="replace"))[1:20] in said
    assert caught.value.exit_code == ExitCode.FAULT
    assert caught.value.hint


def test_of_a_long_broken_message_only_the_beginning_is_shown():
    with pytest.raises(BrokenMessageError) as caught:
        decode(Envelope, b"x" * 10_000, "a trial")
    assert len(caught.value.message) < 500


@pytest.fixture
def channel():
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield pair
    for end in pair:
        end.close()


def test_a_message_that_is_too_long_loses_its_text_but_arrives(channel):
    ours, theirs = channel
    send(ours, Envelope(trial=3, rank=1, event=RankEnd(end=End.USER_ERROR, traceback="x" * (1 << 17), hint="short")))
    told = receive(theirs, Envelope, "a trial")
    assert (told.trial, told.rank, told.event.hint) == (3, 1, "short")
    assert 0 < len(told.event.traceback) < 3000


def test_messages_keep_their_borders_and_the_end_is_none(channel):
    ours, theirs = channel
    for batch in (1, 2):
        send(ours, Envelope(event=TrialStage(stage="train", batch=batch)))
    ours.close()
    batches = [receive(theirs, Envelope, "a trial").event.batch for _ in range(2)]
    assert batches == [1, 2]
    assert receive(theirs, Envelope, "a trial") is None


def test_a_process_of_its_own_understands_an_order_and_answers(channel, tmp_path):
    """The command line of the fork server, with a trial that ends before it has imported anything."""
    ours, theirs = channel
    order = ORDER.model_copy(update={"log": str(tmp_path / "log")})
    call = f"run_alone({theirs.fileno()}, 'no-such-workload', {os.getpid()}, {encode(order)!r}, 1)"
    done = subprocess.run(command(call), pass_fds=[theirs.fileno()], check=False, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    told = receive(ours, Envelope, "the trial")
    assert (told.trial, told.rank, told.event.end) == (1, 1, End.USER_ERROR)
    assert "no-such-workload: no such file" in told.event.detail


def test_a_fork_server_says_which_order_it_could_not_read(channel):
    ours, theirs = channel
    process = subprocess.Popen(
        command(f"serve({theirs.fileno()}, 'none', {os.getpid()})"), pass_fds=[theirs.fileno()], stderr=subprocess.PIPE
    )
    ours.send(b'{"id": 1}')
    _, complaint = process.communicate(timeout=120)
    assert process.returncode == 1
    assert b"gpudoc tune sent something other than a TrialStart message" in complaint
    assert b'{"id": 1}' in complaint
