"""Which processes have a context on which GPU while a command runs: each rank one on its own, nobody else any."""

from __future__ import annotations

import collections
import re
import threading

import pytest

from tests.train.support import write_workload

pytestmark = pytest.mark.standin

BENCH = ("bench", "--quick", "--device", "cuda", "--only")
TRAIN = ("train", "--model", "cfg.yaml", "--profile", "off", "--device", "cuda", "--steps", "4", "--no-preflight")


def watched(gpus, *arguments):
    """The command's result, and the most processes that had a context on one GPU at the same time."""
    most, over = collections.Counter(), threading.Event()

    def watch():
        while not over.wait(0.02):
            now = collections.Counter(gpu for _, gpu, _ in gpus.holders())
            for gpu, count in now.items():
                most[gpu] = max(most[gpu], count)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return gpus.gpudoc(*arguments), dict(most)
    finally:
        over.set()
        watcher.join()


def by_process(gpus):
    """(name, GPUs) of each process that had a context; the name is its module or script, 'gpudoc' for a command."""
    found = collections.defaultdict(list)
    for pid, gpu, command in gpus.contexts():
        script = re.search(r"(examined_python|gpudoc\.bench\.worker)", command)
        found[script[1] if script else "gpudoc", pid].append(gpu)
    return sorted((name, on) for (name, _), on in found.items())


@pytest.mark.parametrize(
    ("num_gpus", "arguments", "expected"),
    [
        (2, ("doctor",), [("examined_python", [0, 1])]),
        (2, (*BENCH, "launch"), [("examined_python", [0, 1]), ("gpudoc.bench.worker", [0])]),
        (1, TRAIN, [("gpudoc", [0])]),
        (1, (*TRAIN, "--num-workers", "2"), [("gpudoc", [0])]),
        (2, (*TRAIN, "--gpus", "2"), [("gpudoc", [0]), ("gpudoc", [1])]),
    ],
    ids=["doctor", "bench", "train", "train with loader workers", "train on two GPUs"],
)
def test_every_rank_has_one_context_and_nobody_else_has_one(standin, tmp_path, num_gpus, arguments, expected):
    write_workload(tmp_path)
    gpus = standin(gpus=num_gpus, memory="4G")
    done, most = watched(gpus, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert by_process(gpus) == expected
    assert set(most.values()) <= {1}
    assert gpus.holders() == []
