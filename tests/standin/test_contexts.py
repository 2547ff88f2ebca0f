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


def watched(gpus, *arguments, **environment):
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
        return gpus.gpudoc(*arguments, **environment), dict(most)
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
        (2, (*BENCH, "p2p"), [("examined_python", [0, 1]), ("gpudoc.bench.worker", [0, 1])]),
        (2, (*TRAIN, "--gpus", "2"), [("gpudoc", [0]), ("gpudoc", [1])]),
        (2, (*TRAIN, "--gpus", "1"), [("gpudoc", [0])]),
    ],
    ids=[
        "doctor",
        "bench",
        "train",
        "train with loader workers",
        "bench between two GPUs",
        "train on two GPUs",
        "train on one GPU of two",
    ],
)
def test_every_rank_has_one_context_and_nobody_else_has_one(standin, tmp_path, num_gpus, arguments, expected):
    write_workload(tmp_path)
    gpus = standin(gpus=num_gpus, memory="4G")
    done, most = watched(gpus, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert by_process(gpus) == expected
    assert set(most.values()) <= {1}
    assert gpus.holders() == []


# a cap so low that few trials are run
TUNE = ("tune", "--model", "cfg.yaml", "--goal", "largest", "--only", "batch", "--max-batch", "8", "--budget", "1h")


@pytest.mark.parametrize(
    ("where", "expected"),
    [(("--device", "cuda:1"), {(1,)}), (("--gpus", "2"), {(0,), (1,)})],
    ids=["one GPU of two", "both"],
)
def test_every_trial_has_one_context_on_its_own_gpu_and_no_other_process_has_one(standin, tmp_path, where, expected):
    write_workload(tmp_path)
    gpus = standin(gpus=2, memory="4G", math_ops="1e5")
    done, most = watched(gpus, *TUNE, "--fresh", *where, XDG_DATA_HOME=str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    found = [tuple(on) for name, on in by_process(gpus) if name == "gpudoc"]
    assert set(found) == expected
    # trials come one after the other, and each rank is alone on its GPU
    assert set(most.values()) <= {1}
    assert gpus.holders() == []
