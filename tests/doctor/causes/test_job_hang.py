import pytest

from gpudoc.doctor.causes.job_hang import FINDERS
from gpudoc.doctor.model import Evidence
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Frame, Stacks, ThreadStacks
from tests.doctor.causes.judge import sees
from tests.facts.live.made import CALL, LINEAR, LOOP, STD, USER, gpu, track, watch, worker

HUNG = FINDERS[0].find
TICKS = [i / 2 for i in range(41)]
STILL = tuple((t, 0.0) for t in TICKS)
WORKS = tuple((t, t) for t in TICKS)
HERE = Frame("hold", USER, 50)
C_WAIT = Frame("Condition.wait", f"{STD}/threading.py", 355)
RECV = Frame("SocketIO.readinto", f"{STD}/socket.py", 718)


def ask(threads, processes, **changes):
    return list(HUNG(Evidence(source="process", watch=watch(threads, processes, **changes))))


def stands(*stack, text="", before=0, of=400):
    """A main thread that trains for `before` samples and then stands on `stack` to the end."""
    frames = (LOOP, CALL, LINEAR, *stack)
    still = tuple(range(3, len(frames)))
    samples = ((0, 1, 2),) * before + (still,) * (of - before)
    own = {(f.file, f.line): text for f in stack if f.file == USER}
    thread = ThreadStacks(pid=1, tid=1, name="MainThread", samples=samples)
    return Stacks(rate_hz=20.0, start_s=0.0, frames=frames, threads=(thread,), lines=own)


RANKS = [track(1, rank=0, cpu=STILL, cpu_s=0), track(2, rank=1, cpu=STILL, cpu_s=0)]
LEFT = {1: "backward*20 collective*380", 2: "backward*20 sleep*380"}
STANDS = [track(cpu=STILL, cpu_s=0, main_cpu_s=0)]
BEATS = {"moved": tuple((t, round(t * 5_000)) for t in TICKS), "wakes": tuple((t, round(t / 5)) for t in TICKS)}
FLOWS = {"moved": tuple((t, round(t * 1e6)) for t in TICKS)}
WAKES = {"wakes": tuple((t, round(t * 20)) for t in TICKS)}
READS = stands(HERE, RECV, text="data = reply.read()")
LOADING = {1: "wait*400", 2: "w_fetch*400"}


@pytest.mark.parametrize(
    ("stack", "text", "says"),
    [
        ((HERE,), "with lock:", "a lock that nobody lets go"),
        ((HERE, C_WAIT), "ready.wait()", "a thread or process that does not end"),
        ((HERE,), "lock.acquire()", "a lock that nobody lets go"),
        ((HERE, Frame("Queue.get", f"{STD}/queue.py", 171), C_WAIT), "batch = q.get()", "a queue that nobody fills"),
        ((HERE,), "name = input('name? ')", "input that nobody types"),
        ((HERE, RECV), "reply = client.read(10)", "an answer from the network"),
        ((HERE,), "reply = client.recv(100)", "an answer from the network"),
        ((HERE,), "time.sleep(10_000)", "it sleeps"),
        ((HERE,), "value = foreign()", "it waits"),
    ],
)
def test_what_it_waits_for_and_where(stack, text, says):
    (found,) = ask(stands(*stack, text=text), STANDS)
    assert found.title.startswith("Nothing has moved for at least 20 s: ")
    assert says in found.title
    assert found.title.endswith("at train.py:50")
    assert (found.id, found.severity) == ("job_hung", "broken")


test_what_stands_still_and_for_how_long = sees([
    (HUNG, watch(LEFT, RANKS), "job_hung: wait for rank 1"),
    (HUNG, watch(stands(HERE, text="with lock:", before=100), [track(cpu=STILL)]), "job_hung: for 15 s"),
    # it stood still before the watch began, or it moved meanwhile and what was before is another standstill
    (HUNG, watch(stands(HERE, text="with lock:"), STANDS, still_before_s=31.0), "job_hung: Nothing has moved for 51 s: "),
    (HUNG, watch(stands(HERE, text="with lock:", before=100), STANDS, still_before_s=31.0), "job_hung: Nothing has moved for 15 s: "),
    (HUNG, watch(LOADING, [STANDS[0], worker(2, cpu=STILL, cpu_s=0)]), "job_hung: a loader worker that makes no batch"),
    # a heartbeat beside a hang does not hide it, nor does a GPU that is busy in a collective of several
    (HUNG, watch(READS, [track(cpu=STILL, cpu_s=0, **BEATS)]), "job_hung: an answer from the network"),
    (HUNG, watch(LEFT, RANKS, gpus=(gpu(busy=100),)), "job_hung"),
    # the last second of one that was interrupted shows how it unwinds
    (HUNG, watch({1: "wait*380 log*20"}, STANDS, ended=True, interrupted=True), "job_hung"),
    (HUNG, watch(stands(HERE, text="for x in forever():"), [track(cpu=WORKS, main_cpu_s=20)]), "job_hung: Busy at train.py:50 in hold() for 20 s without a training step"),
])  # fmt: skip
test_what_still_works_is_not_hung = sees([
    (HUNG, watch(LOADING, [STANDS[0], worker(2, cpu=WORKS, cpu_s=20)]), ""),
    (HUNG, watch({1: "compile*400"}, [track(cpu=STILL), track(5, name="cc1plus", cpu=WORKS)]), ""),
    (HUNG, watch({1: "python*380 backward*20"}, [track(cpu=WORKS, main_cpu_s=20)]), ""),
    (HUNG, watch({1: "backward*400"}, [track(cpu=WORKS)]), ""),
    (HUNG, watch({1: "wait*10 backward*10 " * 20}, [track(cpu=STILL)]), ""),
    (HUNG, watch({1: "wait*400"}, STANDS, ended=True), ""),
    (HUNG, watch(Absent("refused"), STANDS), "skipped"),
    # a download, and a GPU that works
    (HUNG, watch(READS, [track(cpu=STILL, cpu_s=0, **FLOWS)]), "skipped: moves 977 KiB per second"),
    (HUNG, watch(READS, [track(cpu=STILL, cpu_s=0, **WAKES)]), "skipped: receives from the network, 20 times per second"),
    (HUNG, watch(stands(HERE, text="x.item()"), [track(cpu=STILL)], gpus=(gpu(busy=95),)), "skipped: its GPU"),
])  # fmt: skip


def test_what_a_finding_shows():
    (left,) = ask(LEFT, RANKS)
    assert left.severity == "broken"
    assert any("train.py:42" in o.value for o in left.evidence)
    (stuck,) = ask(LOADING, [STANDS[0], worker(2, cpu=STILL, cpu_s=0)])
    assert any(o.fact == "worker" and "data.py:7" in o.value for o in stuck.evidence)
    (busy,) = ask(stands(HERE, text="for x in forever():"), [track(cpu=WORKS, main_cpu_s=20)])
    assert busy.confidence < 0.7


def test_a_loop_goes_round_in_several_lines_of_one_function():
    frames = (HERE, Frame("hold", USER, 51), Frame("other", USER, 70), Frame("<genexpr>", USER, 50))
    lines = {(f.file, f.line): "for x in forever():" for f in frames}

    def busy(*places):
        samples = tuple((place,) for place in places) * (400 // len(places))
        threads = (ThreadStacks(pid=1, tid=1, name="MainThread", samples=samples),)
        seen = Stacks(rate_hz=20.0, start_s=0.0, frames=frames, threads=threads, lines=lines)
        return ask(seen, [track(cpu=WORKS, main_cpu_s=20)])

    assert busy(0, 1)[0].title.startswith("Busy at train.py:50 in hold()")
    # a generator expression is a function on the line of its loop
    assert busy(0, 3)[0].title.startswith("Busy at train.py:50")
    # work in several functions is a program that prepares something
    assert busy(0, 2) == []
