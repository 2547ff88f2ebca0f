from __future__ import annotations

import dataclasses

import pytest

from gpudoc.doctor.model import Card, Finding, Observation, Setting, shorten
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


@pytest.mark.parametrize("begin", [0, 3, 40, 150, 179])
def test_a_long_line_is_cut_between_words_and_never_inside_a_number(begin):
    line = " ".join(f"{1000 + n}.5" for n in range(50))
    cut = shorten(line, 60, begin)
    assert len(cut) <= 66
    assert set(cut.strip(".").split()) <= {word.strip(".") for word in line.split()}
    assert (cut.startswith("..."), cut.endswith("...")) == (begin > 5, True)


def test_a_line_that_fits_or_holds_no_blank_is_shown_as_far_as_it_goes():
    assert shorten("1234.5 GiB", 60) == "1234.5 GiB"
    assert shorten("x" * 100, 60) == "x" * 57 + "..."
