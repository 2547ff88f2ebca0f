import threading

import torch

from gpudoc.tune.child.heartbeat import beat_while_compiling


def compiled_by(backend):
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))


def test_a_long_compilation_gives_signs_of_life_and_only_that():
    beats, over = threading.Semaphore(0), threading.Event()
    beat_while_compiling(lambda event: beats.release(), over.is_set, period_s=0.01)

    def slow(graph, inputs):
        # three beats come while this compiles
        assert all(beats.acquire(timeout=30) for _ in range(3))
        return graph.forward

    compiled_by(slow)
    over.set()


def test_a_compilation_that_takes_longer_than_a_trial_may_falls_silent():
    beats = []
    asked = threading.Semaphore(0)

    def is_over():
        asked.release()
        return True

    beat_while_compiling(beats.append, is_over, period_s=0.01)

    def slow(graph, inputs):
        assert asked.acquire(timeout=30)
        return graph.forward

    compiled_by(slow)
    assert beats == []
