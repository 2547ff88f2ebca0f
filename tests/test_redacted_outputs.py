"""Secrets planted in what each command was given; none is in its JSON, page, Markdown, file or report of a fault."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path

import pytest
from pydantic import BaseModel

from gpudoc.bench.documents import save_record
from gpudoc.bench.model import NotMeasured
from gpudoc.bench.report import BenchReport as BenchReport
from gpudoc.cli import app
from gpudoc.doctor.examine import examine_text
from gpudoc.doctor.model import Finding, observe
from gpudoc.facts.readers.clean import clean
from gpudoc.fleet.documents import record_to_json
from gpudoc.fleet.documents import save_record as save_fleet
from gpudoc.fleet.report import FleetReport
from gpudoc.render import (
    bench_page,
    bench_screen,
    fleet,
    fleet_page,
    plan,
    script,
    script_page,
    script_run,
    train,
    tune,
    tune_page,
)
from gpudoc.render.doctor_output import Output, render_markdown, shareable, show
from gpudoc.tune.search.scaling import ScalingResult
from tests.fakes.traces import Planted, Step, write_nsys, write_nsys_lines
from tests.fakes.traces import planted as planted_steps
from tests.fleet.test_documents import a_record
from tests.render.test_bench_page import RECORD
from tests.render.test_plan import answer
from tests.render.test_plan import result as targets
from tests.render.test_scaling import scaling  # noqa: F401
from tests.render.test_script_run import finished as ran
from tests.render.test_train import finished as trained
from tests.render.test_tune import result, with_levers  # noqa: F401
from tests.script.pretended import result_of, searched

KEY = "Zq8Wn3Rt6Yp1Lk5Mv2Xc7Bd4"
SECRETS = (KEY, "hf_QwErTyUiOpAsDfGhJkLz", "maryjane", "gpu017")
TEXT = (
    f"python /home/maryjane/train.py --api-key {KEY} HF_TOKEN={SECRETS[1]} [maryjane@gpu017 x]$ "
    f"srun: error: gpu017: Authorization: ApiKey {KEY}"
)


def assert_private(text: str) -> None:
    assert len(text) > 50
    assert [secret for secret in SECRETS if secret in text] == []


@pytest.mark.parametrize("name", ["r.json", "r.md", "r.html", "r.txt", None])
@pytest.mark.parametrize("form", [{"json": True}, {"markdown": True}])
def test_doctor(tmp_path, capsys, name, form):
    log = f"RuntimeError: CUDA error: no kernel image is available for execution on the device {TEXT}\n{TEXT}\n"
    report = examine_text([("train.log", log.encode())])
    assert report.findings
    show(report, Output(out=tmp_path / name if name else None, html=tmp_path / "page.html", **form))
    for text in (capsys.readouterr().out, *(file.read_text("utf-8") for file in tmp_path.iterdir())):
        assert_private(text)


def test_bench(tmp_path, capsys):
    report = BenchReport(replace(RECORD, not_measured=(NotMeasured("folder", TEXT),)))
    bench_screen.show(report, as_json=True, plain=True, verbose=False)
    save_record(tmp_path / "bench.json", report.record)
    bench_page.save(tmp_path / "bench.html", report)
    for text in (capsys.readouterr().out, *(file.read_text("utf-8") for file in tmp_path.iterdir())):
        assert_private(text)


def test_tune_of_a_command(tmp_path, capsys):
    options, found, session = searched()
    options = replace(options, command=tuple(TEXT.split()))
    of_command = result_of(options, found, session)
    of_command = replace(of_command, stored=replace(of_command.stored, path=Path("/home/maryjane/p.yaml")))
    script.show(of_command, as_json=True, plain=True, verbose=False)
    script_page.save(tmp_path / "page.html", of_command)
    assert_private(capsys.readouterr().out)
    assert_private((tmp_path / "page.html").read_text("utf-8"))


def planted(value):
    """A result with the secrets behind every text in it that may be anything, however deep."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return f"{value} {TEXT}"
    if isinstance(value, BaseModel):
        return value.model_copy(update=_changed({name: getattr(value, name) for name in type(value).model_fields}))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **_changed({one.name: getattr(value, one.name) for one in fields(value) if one.init}))
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return type(value)(planted(one) for one in value)
    if isinstance(value, dict):
        return {key: planted(one) for key, one in value.items()}
    return Path("/home/maryjane/p.yaml") if isinstance(value, Path) else value


# words of a closed list, which decide what is said
CLOSED = ("kind", "precision", "goal", "verdict", "how", "device", "mode", "cause")


def _changed(values):
    return {name: planted(value) for name, value in values.items() if name not in CLOSED}


def test_tune_of_a_config(tmp_path, capsys, result, scaling, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    full = planted(with_levers(result))
    assert KEY in full.profile.hardware.name + full.context.config.name
    alone = ScalingResult(scaling=planted(scaling), config=full.context.config, num_trials=4, seconds=9.0)
    for one in (full, replace(full, scaling=planted(scaling)), alone):
        tune.show(one, as_json=True, plain=True, verbose=False)
        tune_page.save(tmp_path / "page.html", one)
        assert_private(capsys.readouterr().out)
        assert_private((tmp_path / "page.html").read_text("utf-8"))


@pytest.mark.parametrize(
    "form", [["--json"], ["--markdown"], ["--html", "r.html"], ["--out", "r.json"], ["--out", "r.md"]]
)
@pytest.mark.parametrize(
    "write",
    [Planted.write, lambda trace, path: write_nsys(path, trace), lambda trace, path: write_nsys_lines(path, trace)],
    ids=["torch", "nsys", "nsys json"],
)
def test_traces(tmp_path, capsys, monkeypatch, write, form):
    monkeypatch.chdir(tmp_path)
    names = [f"{name}-{SECRETS[1]}.json" for name in ("before", "after")]
    for name in names:
        trace = planted_steps(Step(kernels=3, kernel=210, launch=200, reads=True), 10)
        for event in trace.events:
            if event["cat"] == "python_function":
                event["name"] = f"/home/maryjane/train.py(41): token={KEY} {SECRETS[1]}"
            elif not event["name"].startswith("ProfilerStep"):
                event["name"] += f" {TEXT}"
        write(trace, tmp_path / name)
    for given in (names[:1], names):
        assert app.run(["doctor", *given, *form]) == 0
        written = [path.read_text("utf-8") for path in tmp_path.glob("r.*")]
        assert written or form[0] in ("--json", "--markdown")
        shown = capsys.readouterr().out
        # with a file the screen is the user's own
        for text in written or [shown]:
            assert_private(text)


def test_tune_for_another_machine(capsys):
    known = answer("T4", 4)
    plan.show_targets(targets(replace(known, target=replace(known.target, name=TEXT))), as_json=True)
    assert_private(capsys.readouterr().out)


def test_train(capsys):
    end = trained(run_dir="/home/maryjane/runs/x", advice=[{"say": TEXT, "run": TEXT}], reason=TEXT)
    train.show(iter([end]), train.Screen(as_json=True))
    assert_private(capsys.readouterr().out)


def test_train_of_a_command(capsys):
    script_run.RunScreen(as_json=True).show(ran(left=(TEXT,)))
    assert_private(capsys.readouterr().out)


def test_a_fleet(tmp_path, capsys):
    record = a_record()
    finding = Finding(id="ecc_errors", confidence=0.9, title=TEXT, evidence=(observe(TEXT, "x" * 180 + TEXT, TEXT),))
    record = replace(record, nodes=(replace(record.nodes[0], findings=(finding,)), *record.nodes[1:]))
    report = FleetReport.of(record) if hasattr(FleetReport, "of") else FleetReport(record)
    fleet.show(report, as_json=True, plain=True, verbose=False)
    save_fleet(tmp_path / "fleet.json", record)
    fleet_page.save(tmp_path / "fleet.html", report)
    for text in (capsys.readouterr().out, *(file.read_text("utf-8") for file in tmp_path.iterdir())):
        assert_private(text)
    assert_private(json.dumps(record_to_json(record)))


def test_a_refusal_and_the_report_of_a_fault(tmp_path, capsys, monkeypatch):
    app.run(["tune", "--model", f"/home/maryjane/{KEY[:3]} {TEXT}.yaml", "--json"])
    assert_private(capsys.readouterr().out)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail(**_):
        raise ZeroDivisionError(TEXT)

    monkeypatch.setattr(app, "application", lambda _: fail)
    assert app.run(["doctor"]) == 70
    (report,) = tmp_path.glob("gpudoc-fault-*.txt")
    assert_private(report.read_text("utf-8"))


# of a secret that a cut goes through, not even a part may be left
PART = 8
FORMS = ("hf_{}", "--api-key {}", "--api-key={}", "Authorization: ApiKey {}", "password = 'a {} b'")


def parts_of(secret):
    return {secret[at : at + PART] for at in range(len(secret) - PART + 1)}


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_at_each_offset_of_a_long_line(form):
    words, planted = "torch.OutOfMemoryError: CUDA out of memory", form.format(KEY)
    for offset in range(0, 130, 3):
        far = ". " * offset
        for line in (f"{far}{planted} {words}", f"{words} {far}{planted}", f"{planted} {far}{words}"):
            report = examine_text([("a.log", line.encode())])
            assert report.findings
            text = render_markdown(shareable(report, redact=True))
            assert not [part for part in parts_of(KEY) if part in text], (offset, line.index(words))


@pytest.mark.parametrize("form", FORMS)
def test_no_part_of_a_line_or_of_a_large_log_begins_or_ends_within_a_secret(form):
    planted = form.format(KEY)
    for offset in range(1930, 2010, 3):
        line = f"{'a ' * (offset // 2)}{' ' * (offset % 2)}{planted} {'b ' * 2000}\n"
        assert [one for one in clean(line.encode()) if planted in one.text], offset
    # beyond what is read whole: the surroundings of words that name a fault, at the distance at which they are cut
    filler = f"{'f' * 5000}\n" * 140
    for before in range(380, 420, 5):
        fault = f"{'c ' * 3000}{planted} {'d' * before}Traceback (most recent call last) {'e ' * 900}{planted}"
        held = [line.text for line in clean(f"{filler[:300_000]}{fault}\n{filler[:400_000]}".encode())]
        assert [text for text in held if "Traceback" in text]
        assert not [text for text in held if planted not in text and any(part in text for part in parts_of(KEY))], (
            before
        )
