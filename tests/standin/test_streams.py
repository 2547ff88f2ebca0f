"""The stand-in's time: with a virtual clock a program measures the modelled speeds, however slow the host is."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.standin

SPEEDS = {"tflops": 2, "gbps": 40, "pcie_gbps": 5, "peer_gbps": 8}
MEASURE = """
import json, time, torch

def seconds(action, device=0):
    with torch.cuda.device(device):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(3):
            action()
            time.sleep(0.01)  # a host that is slow to queue
        stop.record()
        before = time.perf_counter()
        torch.cuda.synchronize()
        waited = time.perf_counter() - before
    return start.elapsed_time(stop) / 3e3, waited

n, size = 4096, 256 << 20
left, right = (torch.zeros(n, n, dtype=torch.bfloat16, device="cuda") for _ in range(2))
product = torch.empty_like(left)
a, b, c = (torch.zeros(size // 4, device="cuda") for _ in range(3))
there = torch.empty(size // 4, device="cuda:1")
host = torch.empty(size // 4).pin_memory()
actions = {
    "matmul": (2 * n ** 3 / 1e12, lambda: torch.mm(left, right, out=product)),
    "copy": (2 * size / 1e9, lambda: a.copy_(b)),
    "add": (3 * size / 1e9, lambda: torch.add(a, b, out=c)),
    "triad": (3 * size / 1e9, lambda: torch.add(a, b, alpha=3.0, out=c)),
    "add_": (3 * size / 1e9, lambda: a.add_(b)),
    "fill": (size / 1e9, lambda: a.fill_(3.0)),
    "amax": (size / 1e9, lambda: a.amax()),
    "relu": (2 * size / 1e9, lambda: torch.relu(a)),
    "h2d": (size / 1e9, lambda: a.copy_(host, non_blocking=True)),
    "d2h": (size / 1e9, lambda: host.copy_(a, non_blocking=True)),
    "peer": (size / 1e9, lambda: there.copy_(a, non_blocking=True)),
}
for name, (amount, action) in actions.items():
    tries = [seconds(action) for _ in range(3)]
    # a busy machine can only make who waits late: the least late one counts
    waited = min(waited for _, waited in tries)
    print(json.dumps([name, amount / tries[0][0], 3 * amount / waited]))
"""


def measured(done):
    return {name: rates for name, *rates in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("math", ["0", "1"])
def test_modelled_speeds_are_measured_by_events_and_by_who_waits(standin, math):
    done = standin(gpus=2, memory="4G", clock="virtual", math=math, math_ops="1e6", **SPEEDS).python(MEASURE)
    expected = {
        "matmul": SPEEDS["tflops"],
        **dict.fromkeys(["copy", "add", "triad", "add_", "fill", "amax", "relu"], SPEEDS["gbps"]),
        **dict.fromkeys(["h2d", "d2h"], SPEEDS["pcie_gbps"]),
        "peer": SPEEDS["peer_gbps"],
    }
    found = measured(done)
    assert found.keys() == expected.keys(), done.stderr
    for name, speed in expected.items():
        assert found[name] == [pytest.approx(speed, rel=0.05), pytest.approx(speed, rel=0.05)], name


def test_two_streams_run_at_once_and_one_waits_where_it_is_told_to(standin):
    done = standin(clock="virtual").python(
        "import torch\n"
        "cuda = torch.cuda\n"
        "first, second = cuda.Stream(), cuda.Stream()\n"
        "begin, end, between = (cuda.Event(enable_timing=True) for _ in range(3))\n"
        "begin.record()\n"
        "for stream in (first, second):\n"
        "    stream.wait_event(begin)\n"
        "    with cuda.stream(stream):\n        cuda._sleep(1_980_000)\n"
        "print(first.query())\n"
        "between.record(first)\n"
        "second.wait_event(between)\n"
        "with cuda.stream(second):\n    cuda._sleep(1_980_000)\n"
        "end.record(second)\n"
        "end.synchronize()\n"
        "print(first.query(), round(begin.elapsed_time(between), 1), round(begin.elapsed_time(end), 1))\n"
    )
    assert done.stdout.split() == ["False", "True", "1.0", "2.0"], done.stderr


def test_who_asks_again_and_again_comes_to_an_end(standin):
    done = standin(clock="virtual").python(
        "import torch\n"
        "event = torch.cuda.Event()\n"
        "torch.cuda._sleep(1 << 40)\n"
        "event.record()\n"
        "asked = 0\n"
        "while not event.query():\n    asked += 1\n"
        "print(asked)\n"
    )
    assert 1 < int(done.stdout) < 100, done.stderr


def test_with_the_hosts_clock_waiting_takes_as_long_as_the_work(standin):
    done = standin().python(
        "import time, torch\n"
        "torch.cuda.synchronize()\n"
        "before = time.monotonic()\n"
        "torch.cuda._sleep(198_000_000)\n"
        "torch.cuda.synchronize()\n"
        "print(time.monotonic() - before >= 0.1)\n"
    )
    assert done.stdout.strip() == "True", done.stderr
