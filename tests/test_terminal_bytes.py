"""Whatever is handed to gpudoc: only letters, line ends, its own colours and moves of the cursor reach a terminal."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudoc.cli import app
from gpudoc.doctor import document
from gpudoc.doctor.examine import examine_machine
from gpudoc.doctor.model import Finding, Observation, Report
from gpudoc.facts.model import Absent, Gpu, GpuProcess, Machine, TorchBuild
from gpudoc.fleet.documents import record_to_json
from gpudoc.render.doctor_output import Output, show
from tests import terminal
from tests.facts.readers.test_dumps import call, recorded, snapshot
from tests.fleet.test_documents import a_record
from tests.waiting import wait_until

# a title of the window, hidden text, the clipboard, C1 in one byte of Latin-1, reversed and invisible letters
EVIL = (
    "\x1b]0;OWNED\x07\x1b[8m\x1b]52;c;Y3VybA==\x07\x9b31m\x9d0;OWNED\x9c\x90q\x85"
    "\u202egnp\u2066\u200b\U000e0041\x7f\b\f"
)
OWN = re.compile(r"\x1b\[(?:\d{1,3}(?:;\d{1,3})*)?m|\x1b\[\d*[ABGJK]|\x1b\[\?25[lh]|\r")
CONCEALED = re.compile(r"\x1b\[(?:\d+;)*8m")


def assert_harmless(screen):
    left = OWN.sub("", screen.raw)
    obeyed = {sign for sign in left if sign != "\n" and unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp")}
    assert not obeyed, sorted(map(hex, map(ord, obeyed)))
    assert not CONCEALED.search(screen.raw)
    assert len(screen.raw) > 20
    return screen


def doctor(*arguments):
    return assert_harmless(terminal.shown(lambda: app.run(["doctor", *map(str, arguments)])))


def command(*arguments):
    return assert_harmless(terminal.shown(lambda: app.run(list(map(str, arguments)))))


LOG = f"""torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {EVIL} GPU 0 has 79 GiB {EVIL}
NVRM: Xid (PCI:0000:3b:00): 79, pid=12, name={EVIL}python, GPU has fallen off the bus.
RuntimeError: {EVIL} CUDA error: no kernel image is available for execution on the device
"""


@pytest.mark.parametrize(
    "form", [[], ["--verbose"], ["--markdown"], ["--json"], ["--plain"], ["--no-redact", "--json"]]
)
def test_a_log(tmp_path, form):
    (tmp_path / "a.log").write_text(LOG, "utf-8")
    doctor(tmp_path / "a.log", *form)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec="utf-8") | st.sampled_from(EVIL), max_size=60))
def test_any_log(tmp_path, capsys, text):
    (tmp_path / "a.log").write_text(f"RuntimeError: CUDA error: out of memory {text} on GPU 0\n{text}\n", "utf-8")
    app.run(["doctor", str(tmp_path / "a.log"), "--verbose"])
    shown = capsys.readouterr().out
    assert not [c for c in shown if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]


@pytest.mark.parametrize("content", [None, b"", b"\0\1\2\3" * 50, b"\x1f\x8bbroken", b'{"schema": "gpudoc.doctor.v9"}'])
def test_the_name_of_a_file_that_cannot_be_read(tmp_path, content):
    # a name may hold any byte but a zero and a slash
    path = tmp_path / os.fsdecode(EVIL.encode() + b"\xff.log")
    if content is not None:
        path.write_bytes(content)
    doctor(path)


@pytest.mark.parametrize(
    "arguments", [["doctor"], ["tune", "--model"], ["train", "--model"], ["check"], ["doctor", "--explain"]]
)
def test_no_name_writes_what_looks_like_a_hint_of_ours(tmp_path, capsys, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    name = "a.yaml\n  try: touch pwned #"
    (tmp_path / name).write_bytes(b"\0\1\2" * 99)
    assert app.run([*arguments, name]) == 2
    said = capsys.readouterr()
    assert not [line for line in (said.out + said.err).splitlines() if line.strip().startswith("try: touch")]
    assert "touch pwned" in said.out + said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["tune", "--model", EVIL],
        ["train", "--profile", f"{EVIL}.yaml", "--model", "quickstart"],
        ["train", "--model", f"{EVIL}.yaml"],
        ["bench", "--only", EVIL],
        ["doctor", "--ignore", EVIL],
        ["doctor", "--explain", EVIL],
        ["doctor", f"--{EVIL}"],
        [EVIL],
        ["doctor", "--", EVIL],
    ],
)
def test_arguments(arguments):
    command(*arguments)


def test_keys_and_values_of_a_config(tmp_path):
    config = tmp_path / "cfg.yaml"
    text = json.dumps(EVIL)
    config.write_text(f"model: {{target: {text}, {text}: 1}}\ndata: {{target: {text}}}\ntrain: {text}\n")
    command("tune", "--model", config)


def hostile_report():
    gpu = Gpu(index=0, name=EVIL, pci_address=EVIL, uuid=EVIL, processes=(GpuProcess(pid=1, name=EVIL, user=EVIL),))
    seen = Observation(EVIL, EVIL, EVIL)
    finding = Finding(id=EVIL, confidence=0.9, title=EVIL, why=EVIL, evidence=(seen,), explains=(EVIL,), url=EVIL)
    return Report(
        source="file",
        verdict="broken",
        findings=(finding,),
        passed=(EVIL,),
        unexplained=(seen,),
        recognised=(EVIL,),
        machine=Machine(gpus=(gpu,), torch=TorchBuild(version=EVIL, import_error=EVIL)),
    )


@pytest.mark.parametrize("form", [[], ["--verbose"], ["--markdown"], ["--json"]])
@pytest.mark.parametrize("source", ["file", "machine", "process", "fleet"])
def test_a_saved_report(tmp_path, form, source):
    saved = document.dump(hostile_report()) | {"source": source}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(saved))
    doctor(path, *form)


def test_two_saved_reports(tmp_path):
    for name in ("a", "b"):
        saved = document.dump(hostile_report()) | {"source": "machine"}
        saved["facts"]["torch"]["version"] = EVIL + name
        (tmp_path / f"{name}.json").write_text(json.dumps(saved))
    doctor(tmp_path / "a.json", tmp_path / "b.json", "--verbose")


@pytest.mark.parametrize("form", [[], ["--verbose"], ["--markdown"], ["--json"]])
def test_the_record_of_a_fleet(tmp_path, form):
    record = json.dumps(record_to_json(a_record()))
    for name in ("leaf1", "570.86.15", "NVIDIA H100 80GB HBM3", "card0", "mlx5_0", "matmul", "out of memory on"):
        record = record.replace(name, json.dumps(f"{name}{EVIL}")[1:-1])
    (tmp_path / "fleet.json").write_text(record)
    doctor(tmp_path / "fleet.json", *form)


@pytest.mark.parametrize("which", ["nccl", "memory"])
def test_dumps_of_pytorch(tmp_path, which):
    one = call(1, name=EVIL, state="started")
    one["frames"] = [{"filename": EVIL, "line": 1, "name": EVIL}]
    one["process_group"] = (EVIL, EVIL)
    held = snapshot([(1 << 30, "active_allocated")], {"action": "oom", "size": 1 << 33, "device_free": 5})
    held["segments"][0]["blocks"][0]["frames"] = one["frames"]
    (tmp_path / "dump_rank_0").write_bytes(pickle.dumps(recorded([one], 1) if which == "nccl" else held))
    doctor(tmp_path / "dump_rank_0", "--verbose")


def test_who_holds_a_gpu_of_this_machine(monkeypatch):
    process = GpuProcess(
        pid=4711, alive=True, name=EVIL, user=EVIL, own=False, command=EVIL, memory_bytes=79 << 30, job=Absent("no")
    )
    gpu = Gpu(index=0, name="NVIDIA H100", memory_total_bytes=80 << 30, memory_free_bytes=0, processes=(process,))
    report = examine_machine(Machine(gpus=(gpu,)))
    for output in (Output(), Output(verbose=True), Output(markdown=True), Output(json=True)):
        assert_harmless(terminal.shown(lambda output=output: show(report, output)))


JOB = """
import ctypes, pathlib, sys, threading, time
name = sys.argv[2].encode("utf-8", "surrogateescape")
ctypes.CDLL(None).prctl(15, name[:15], 0, 0, 0)
scope = {}
exec(compile("def wait_here():\\n while True: sum(range(1000))\\n", sys.argv[2] + ".py", "exec"), scope)
thread = threading.Thread(target=scope["wait_here"], daemon=True)
thread.start()
pathlib.Path(sys.argv[1]).touch()
scope["wait_here"]()
"""


def test_a_watched_process_by_its_names(tmp_path):
    ready = tmp_path / "ready"
    job = subprocess.Popen([sys.executable, "-c", JOB, str(ready), EVIL])
    try:
        wait_until(ready.exists)
        for form in ([], ["--verbose"], ["--json"]):
            doctor("--pid", job.pid, "--seconds", "1", *form)
    finally:
        job.kill()
        job.wait()


def test_what_clean_lists(tmp_path, monkeypatch):
    folder = tmp_path / "gpudoc" / "profiles"
    folder.mkdir(parents=True)
    (folder / f"{EVIL}.yaml").write_text("schema: gpudoc.profile.v1\n")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    command("clean", "--yes")
