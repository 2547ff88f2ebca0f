from __future__ import annotations

from typing import get_args

import pytest

from gpudoc.doctor.model import Card, Packager, Place, Setting
from gpudoc.doctor.registry import CATALOGUE, Catalogue
from gpudoc.knowledge.signature_rows import RowError

ROW = """- id: flux_capacitor_dry
  title: The flux capacitor is dry
  meaning: no flux is left in the card
  why: It cannot jump.
  fix:
    default:
      - Fill it.
      - say: Look, then install.
        run: nvidia-smi{cards} -L; {install} {torch} && {remove} flux
    docker:
      - advice: reboot
        when: with flux
    uv:
      - say: Run dry.
        run: sudo dry
        disruptive: true
    poetry:
      - say: Find the card.
        card: unknown
      - advice: reset
        card: known
  sources:
    - https://example.org/flux
"""


def catalogue(row: str) -> Catalogue:
    return Catalogue({"GPU": {"flux_capacitor_dry": row}})


@pytest.mark.parametrize("cause_id", CATALOGUE)
def test_a_row_tells_meaning_reason_remedy_and_source_in_every_place(cause_id):
    cause = CATALOGUE[cause_id]
    assert cause.id == cause_id
    assert 0 < len(cause.title) <= 100
    assert len(cause.meaning) > 15
    assert cause.why.endswith(".")
    assert cause.sources
    assert all(source.startswith("https://") for source in cause.sources)
    for place in get_args(Place):
        for packager in get_args(Packager):
            steps = cause.fix(Setting(place=place, packager=packager, torch_version="2.6.0+cu124"))
            assert steps, place
            assert all(step.say.strip() for step in steps)
            assert not any(word in step.run for step in steps for word in ("{install", "{remove", "{cards", "{torch"))


def test_a_remedy_is_that_of_the_place_or_the_packager_in_its_words():
    fix = catalogue(ROW)["flux_capacitor_dry"].fix
    fill, look = fix(Setting(cards=(Card(index=3),), torch_version="2.6.0+cu124"))
    assert (fill.say, fill.run) == ("Fill it.", "")
    assert look.run == "nvidia-smi -i 3 -L; pip install torch==2.6.0 && pip uninstall -y flux"
    assert fix(Setting(place="colab"))[1].run == "nvidia-smi -L; %pip install torch && %pip uninstall -y flux"
    assert "with flux" in fix(Setting(place="docker"))[-1].say
    (dry,) = fix(Setting(packager="uv"))
    assert (dry.needs_root, dry.disruptive) == (True, True)


def test_a_step_may_be_for_evidence_that_names_the_card():
    fix = catalogue(ROW)["flux_capacitor_dry"].fix
    assert [step.say for step in fix(Setting(packager="poetry"))] == ["Find the card."]
    assert fix(Setting(packager="poetry", cards=(Card(index=3),)))[-1].run == "sudo nvidia-smi --gpu-reset -i 3"


def test_a_command_fits_the_packager_and_the_torch_that_is_there():
    (step,) = CATALOGUE["cuda_library_version_differs"].fix(Setting(packager="uv", torch_version="2.6.0+cu124"))
    assert step.run == "uv pip install --force-reinstall torch==2.6.0"


def test_what_a_row_does_not_say_is_the_environment_s_and_broken():
    cause = catalogue(ROW)["flux_capacitor_dry"]
    assert (cause.family, cause.severity, cause.explains) == ("environment", "broken", ())


@pytest.mark.parametrize(("word", "wrong"), [("  why:", "because"), ("  title:", "name")])
def test_a_row_that_lacks_a_word_is_refused_by_name(word, wrong):
    with pytest.raises(RowError, match=f"flux_capacitor_dry: .*{wrong}"):
        catalogue(ROW.replace(word, f"  {wrong}:"))["flux_capacitor_dry"]


def test_rows_are_not_parsed_before_they_are_asked_for():
    broken = Catalogue({"GPU": {"fine": ROW}, "driver": {"broken": "- id: [never closed"}})
    assert list(broken) == ["fine", "broken"]
    assert "broken" in broken
    assert "other" not in broken
    assert broken["fine"].title == "The flux capacitor is dry"
