"""Where the memory of a step went, as a line and on the page."""

from __future__ import annotations

from gpudoc.render.page import Section, page
from gpudoc.render.train_memory import blocks, by_module, sentences
from gpudoc.units import MIB
from tests.render.test_page import words

ROWS = [
    *({"module": f"blocks.{number}.attention", "bytes": 20 * MIB} for number in range(12)),
    {"module": "head", "bytes": 100 * MIB},
]
MEMORY = {
    "step": 3,
    "peak_bytes": 1000 * MIB,
    "bytes": {"weights": 200 * MIB, "gradients": 0, "optimizer": 400 * MIB, "activations": 340 * MIB, "rest": 60 * MIB},
    "activations": ROWS,
    "reserved_bytes": 1100 * MIB,
    "fragmentation_bytes": 100 * MIB,
}
FOUND = {"memory": MEMORY, "device": "cuda:0"}


def test_one_line_has_the_parts_and_the_modules_that_keep_most():
    (line,) = sentences(FOUND)
    assert line.startswith(
        "memory in step 3: 1000 MiB = weights 200 MiB + optimizer state 400 MiB + activations 340 MiB"
    )
    assert "gradients" not in line
    assert "temporary results, workspaces and buffers 60 MiB" in line
    assert "most activations in blocks.*.attention (12 of them), 240 MiB" in line
    assert line.endswith("100 MiB reserved and not in use")


def test_on_a_cpu_the_rest_is_what_else_the_process_holds():
    rows = {key: value for key, value in MEMORY.items() if key != "fragmentation_bytes"}
    (line,) = sentences({"memory": rows, "device": "cpu"})
    assert "Python, libraries and temporary results 60 MiB" in line
    assert "reserved" not in line


def test_repeated_modules_are_one_row():
    assert by_module(MEMORY) == [("blocks.*.attention", 12, 240 * MIB), ("head", 1, 100 * MIB)]


def test_the_page_has_shares_of_the_peak_and_of_the_activations():
    told = words(page("x", [Section("Memory", blocks(FOUND))]))
    assert "optimizer state 400 MiB 40.0%" in told
    assert "blocks.*.attention (12 of them) 240 MiB 70.6%" in told
    assert "reserved and not in use 100 MiB" in told


def test_a_run_of_an_earlier_version_or_a_short_one_says_that_nothing_was_watched():
    assert sentences({}) == []
    assert blocks({}) == ("No step was watched: memory was not examined.",)
    told = {"memory": {"because": "fewer than 3 steps were trained"}}
    assert sentences(told) == []
    assert blocks(told) == ("No step was watched: fewer than 3 steps were trained.",)


def test_what_could_not_be_watched_is_said():
    unwatched = {**MEMORY, "activations": [], "because": "what compiled code keeps cannot be observed"}
    told = words(page("x", [Section("Memory", blocks({"memory": unwatched, "device": "cuda:0"}))]))
    assert "Activations are part of the rest: what compiled code keeps cannot be observed." in told
