import pytest

from gpudoc.doctor.causes.watched_hang import find_hang
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.process import Frame, Stacks, ThreadStacks
from tests.facts.live.made import CALL, LINEAR, LOOP, STD, USER, gpu, track, watch, worker

TICKS = [i / 2 for i in range(41)]
STILL = tuple((t, 0.0) for t in TICKS)
WORKS = tuple((t, t) for t in TICKS)
HERE = Frame("hold", USER, 50)
C_WAIT = Frame("Condition.wait", f"{STD}/threading.py", 355)
RECV = Frame("SocketIO.readinto", f"{STD}/socket.py", 718)


def ask(threads, processes, **changes):
    return list(find_hang(Evidence(source="process", watch=watch(threads, processes, **changes))))


def stands(*stack, text="", before=0, of=400):
    """A main thread that trains for `before` samples and then stands on `stack` to the end."""
    frames = (LOOP, CALL, LINEAR, *stack)
    still = tuple(range(3, len(frames)))
    samples = ((0, 1, 2),) * before + (still,) * (of - before)
    own = {(f.file, f.line): text for f in stack if f.file == USER}
    thread = ThreadStacks(pid=1, tid=1, name="MainThread", samples=samples)
    return Stacks(rate_hz=20.0, start_s=0.0, frames=frames, threads=(thread,), lines=own)


def test_ranks_that_wait_for_one_that_left():
    ranks = [track(1, rank=0, cpu=STILL, cpu_s=0), track(2, rank=1, cpu=STILL, cpu_s=0)]
    (found,) = ask({1: "backward*20 collective*380", 2: "backward*20 sleep*380"}, ranks)
    assert found.severity == "broken"
    assert "wait for rank 1" in found.title
    assert any("train.py:42" in o.value for o in found.evidence)


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
    (found,) = ask(stands(*stack, text=text), [track(cpu=STILL, cpu_s=0, main_cpu_s=0)])
    assert found.title.startswith("Nothing has moved for at least 20 s: ")
    assert says in found.title
    assert found.title.endswith("at train.py:50")
    assert (found.id, found.severity) == ("job_hung", "broken")


def test_for_how_long_when_the_watch_saw_it_begin():
    (found,) = ask(stands(HERE, text="with lock:", before=100), [track(cpu=STILL)])
    assert "for 15 s" in found.title


def test_for_how_long_when_it_stood_still_before_the_watch_began():
    still = [track(cpu=STILL, cpu_s=0, main_cpu_s=0)]
    (found,) = ask(stands(HERE, text="with lock:"), still, still_before_s=31.0)
    assert found.title.startswith("Nothing has moved for 51 s: ")
    # it moved meanwhile, so what was before is another standstill
    (found,) = ask(stands(HERE, text="with lock:", before=100), still, still_before_s=31.0)
    assert found.title.startswith("Nothing has moved for 15 s: ")


def test_a_loader_worker_that_makes_no_batch_is_named_with_its_line():
    seen = {1: "wait*400", 2: "w_fetch*400"}
    (found,) = ask(seen, [track(cpu=STILL, cpu_s=0), worker(2, cpu=STILL, cpu_s=0)])
    assert "a loader worker that makes no batch" in found.title
    assert any(o.fact == "worker" and "data.py:7" in o.value for o in found.evidence)


def test_a_loader_whose_workers_work_is_waited_for():
    seen = {1: "wait*400", 2: "w_fetch*400"}
    assert ask(seen, [track(cpu=STILL, cpu_s=0), worker(2, cpu=WORKS, cpu_s=20)]) == []


def test_what_only_compiles_in_another_process_is_not_hung():
    assert ask({1: "compile*400"}, [track(cpu=STILL), track(5, name="cc1plus", cpu=WORKS)]) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"moved": tuple((t, round(t * 1e6)) for t in TICKS)}, "moves 977 KiB per second"),
        ({"wakes": tuple((t, round(t * 20)) for t in TICKS)}, "receives from the network, 20 times per second"),
    ],
)
def test_a_download_is_not_hung(changes, says):
    (skipped,) = ask(stands(HERE, RECV, text="data = reply.read()"), [track(cpu=STILL, cpu_s=0, **changes)])
    assert isinstance(skipped, Skip)
    assert says in skipped.because


def test_a_heartbeat_beside_a_hang_does_not_hide_it():
    beats = {"moved": tuple((t, round(t * 5_000)) for t in TICKS), "wakes": tuple((t, round(t / 5)) for t in TICKS)}
    (found,) = ask(stands(HERE, RECV, text="data = reply.read()"), [track(cpu=STILL, cpu_s=0, **beats)])
    assert "an answer from the network" in found.title


def test_a_gpu_that_works_is_waited_for_but_not_in_a_collective_of_several():
    (skipped,) = ask(stands(HERE, text="x.item()"), [track(cpu=STILL)], gpus=(gpu(busy=95),))
    assert isinstance(skipped, Skip)
    assert "its GPU" in skipped.because
    ranks = [track(1, rank=0, cpu=STILL, cpu_s=0), track(2, rank=1, cpu=STILL, cpu_s=0)]
    (found,) = ask({1: "backward*20 collective*380", 2: "backward*20 sleep*380"}, ranks, gpus=(gpu(busy=100),))
    assert found.id == "job_hung"


def test_an_endless_loop_is_busy_at_its_line():
    (found,) = ask(stands(HERE, text="for x in forever():"), [track(cpu=WORKS, main_cpu_s=20)])
    assert found.title.startswith("Busy at train.py:50 in hold() for 20 s without a training step")
    assert found.confidence < 0.7


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


def test_python_in_a_loop_that_trains_is_not_busy_in_one_place():
    assert ask({1: "python*380 backward*20"}, [track(cpu=WORKS, main_cpu_s=20)]) == []


def test_a_job_that_computes_in_one_place_is_not_hung():
    assert ask({1: "backward*400"}, [track(cpu=WORKS)]) == []


def test_a_job_that_moves_is_not_hung():
    assert ask({1: "wait*10 backward*10 " * 20}, [track(cpu=STILL)]) == []


def test_a_job_that_ended_is_not_hung_but_one_that_was_interrupted_was():
    still = [track(cpu=STILL, cpu_s=0)]
    assert ask({1: "wait*400"}, still, ended=True) == []
    assert isinstance(ask(Absent("refused"), still)[0], Skip)
    # the last second shows how it unwinds
    (found,) = ask({1: "wait*380 log*20"}, still, ended=True, interrupted=True)
    assert found.id == "job_hung"
