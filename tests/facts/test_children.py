from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudoc.facts.children import Child, listen, start_workers
from tests.fakes.hurry import hurried
from tests.waiting import wait_until


def child(code: str, deadline_s: float = 20.0) -> Child:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=writer, start_new_session=True, bufsize=0
    )
    os.close(writer)
    return Child(name="x", reader=reader, process=process, group=process.pid, deadline_s=deadline_s)


def heard(one: Child) -> Child:
    listen([one], lambda _: None)
    return one


@pytest.fixture(params=["linux", "win32"])
def reading(request, monkeypatch):
    """Pipes are read by a selector, and by threads as on Windows."""
    monkeypatch.setattr(sys, "platform", request.param)


@pytest.mark.usefixtures("reading")
def test_facts_and_items_are_kept_with_their_paths():
    one = heard(child("""print('{"fact": ["a", "b"], "value": 1}\\n{"item": ["c"], "value": 2}\\n{"end": true}')"""))
    assert one.facts == [(("a", "b"), 1, False), (("c",), 2, True)]
    assert (one.failure, one.timed_out) == ("", False)


def test_what_a_library_prints_is_passed_over():
    one = heard(child("""print('WARNING: hello\\n[1, 2]\\n{"end": true}')"""))
    assert (one.facts, one.failure) == ([], "")


@pytest.mark.usefixtures("reading")
def test_an_early_end_names_code_and_question():
    one = heard(child("""print('{"begin": "cuInit"}', flush=True); raise SystemExit(3)"""))
    assert one.failure == "ended with code 3 while asking: cuInit"


@pytest.mark.usefixtures("reading")
def test_a_child_is_answered_on_its_input():
    code = """line = input(); print('{"fact": ["x"], "value": ' + line + '}\\n{"end": true}', flush=True)"""
    one = child(code)
    one.answer("[0, 1]")
    heard(one)
    assert one.facts == [(("x",), [0, 1], False)]


def test_answering_a_child_that_is_gone_is_no_error():
    one = child("pass")
    heard(one)
    one.answer("[]")


@pytest.mark.usefixtures("reading")
def test_a_flood_is_cut_off():
    one = heard(child("while True: print('x' * 1000000)"))
    assert one.failure == "wrote more than 64 MiB"


@pytest.mark.usefixtures("reading")
def test_the_nearest_deadline_counts_for_each():
    quick = child("""print('{"end": true}')""")
    # however slowly it starts
    wait_until(lambda: quick.process.poll() is not None)
    slow = child("import time; time.sleep(600)", 0.6)
    ends: list[tuple[str, bool]] = []
    quick.name = "quick"
    listen([slow, quick], lambda one: ends.append((one.name, one.timed_out)))
    assert ends == [("quick", False), ("x", True)]


def processes_of(group: int) -> list[str]:
    rows = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            rows.append(stat.parent.name)
    return rows


@pytest.mark.parametrize(
    ("load", "said"), [(1000.0, "the machine is too busy; it was still working"), (0.0, "no answer")]
)
def test_a_child_that_starves_on_a_busy_machine_does_not_hang(monkeypatch, load, said):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    with hurried(["import torch"], 0.1):
        one = heard(child("""print('{"begin": "import torch"}', flush=True)\nwhile True: pass"""))
    assert one.failure.startswith(said)
    assert one.failure.endswith("import torch")


def test_nothing_stays_behind(tmp_path):
    workers = start_workers({"files": ("host",), "devices": ("pci",)}, tmp_path, {"files": 20.0, "devices": 20.0})
    launcher = workers[0].group
    listen(workers, lambda _: None)
    assert [worker.failure for worker in workers] == ["", ""]
    groups = {launcher, *(worker.group for worker in workers)}
    assert len(groups) == 3
    wait_until(lambda: not any(processes_of(group) for group in groups))


def test_a_worker_that_hangs_takes_no_other_along(tmp_path):
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    (tmp_path / "etc").mkdir()
    os.mkfifo(tmp_path / "etc/os-release")
    workers = start_workers({"host": ("host",), "pci": ("pci",)}, tmp_path, {"host": 20.0, "pci": 20.0})
    with hurried(["host"]):
        listen(workers, lambda _: None)
    assert [worker.failure for worker in workers] == ["no answer within 20 s: host", ""]
