from __future__ import annotations

import dataclasses

import pytest

from gpudoc.doctor.model import Card, Finding, Observation, Remedy, Setting
from gpudoc.facts.model import Gpu


def test_a_finding_leaves_to_the_catalogue_what_it_does_not_say():
    finding = Finding(id="x", confidence=0.5, evidence=(Observation("a", "b", "c"),))
    assert (finding.severity, finding.title, finding.fix) == ("broken", "", ())


def test_findings_and_settings_cannot_be_changed_behind_a_judgement():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Setting().packager = "uv"


def test_a_card_is_named_by_what_is_known_of_it_and_by_nothing_else():
    gpu = Gpu(index=3, uuid="GPU-11111111-2222-3333-4444-55551a2b3c4d", pci_address="0000:3b:00.0")
    assert Card.of(gpu).label == "GPU 3 (…1a2b3c4d, 0000:3b:00.0)"
    assert Card(pci_address="0000:3b:00.0").label == "a GPU (0000:3b:00.0)"
    assert Card().label == "a GPU"


def test_a_disruptive_step_says_so_before_anything_else():
    assert Remedy(say="Reboot.", disruptive=True).marked == "disruptive: Reboot."
    assert Remedy(say="Look.").marked == "Look."
