from __future__ import annotations

import json

import pytest

from gpudoc.doctor import document
from gpudoc.errors import GpudocError
from tests.doctor.causes.judge import report_of

BROKEN = report_of(
    "Nvidia driver version: 470.57.02\nRuntimeError: The NVIDIA driver on your system is too old (found version 11040)"
)


def test_a_report_survives_the_way_through_its_document():
    again = document.load(json.loads(json.dumps(document.dump(BROKEN))))
    assert again.findings == BROKEN.findings
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
    assert document.exit_code(BROKEN) == 1
    warning = report_of("The 'train_dataloader' does not have many workers which may be a bottleneck.")
    assert (document.exit_code(warning), document.exit_code(warning, "warning")) == (0, 1)


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
