from __future__ import annotations

import dataclasses

import pytest

from gpudoc.doctor.model import Finding, Observation, Setting


def test_a_finding_leaves_to_the_catalogue_what_it_does_not_say():
    finding = Finding(id="x", confidence=0.5, evidence=(Observation("a", "b", "c"),))
    assert (finding.severity, finding.title, finding.fix) == ("broken", "", ())


def test_findings_and_settings_cannot_be_changed_behind_a_judgement():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Setting().packager = "uv"
