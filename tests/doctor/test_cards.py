from __future__ import annotations

import pytest

from gpudoc.doctor.cards import card_at, cards_at, plain_address, told_card
from gpudoc.doctor.model import Card
from gpudoc.doctor.setting import called, selector
from gpudoc.facts.model import Absent, Gpu
from tests.machines.built import gpu, machine


@pytest.mark.parametrize("text", ["0000:3b:00", "00000000:3B:00.0", "3b:00.0", "PCI:0000:3b:00", "0000:3b:00.0"])
def test_one_address_has_one_form(text):
    assert plain_address(text) == "0000:3b:00.0"


def test_what_is_no_address_stays():
    assert plain_address("GPU-1234") == "GPU-1234"


def test_a_card_is_known_by_its_address_with_index_where_the_machine_lists_it():
    facts = machine(gpu(0), gpu(1))
    assert card_at("0000:11:00", facts).index == 1
    elsewhere = card_at("0000:99:00", facts)
    assert (elsewhere.pci_address, isinstance(elsewhere.index, Absent)) == ("0000:99:00.0", True)
    assert card_at(Absent("the line names no device"), facts) is None
    found = cards_at(("00000000:11:00.0", Absent("not read"), "0000:99:00.0"), facts)
    assert [card.label for card in found] == [Card.of(gpu(1)).label, "a GPU (0000:99:00.0)"]


def test_the_order_of_a_text_is_no_index():
    assert told_card(Gpu(index=0)) == ()
    (card,) = told_card(Gpu(index=0, pci_address="00000000:3B:00.0"))
    assert selector([card]) == " -i 0000:3b:00.0"


def test_a_command_names_all_cards_or_none():
    one, two, nameless = Card(index=1), Card(pci_address="0000:3b:00.0"), Card()
    assert selector([one]) == " -i 1"
    assert selector([one, two]) == " -i 1,0000:3b:00.0"
    assert selector([one, nameless]) == selector([]) == ""
    assert selector([Card(uuid="GPU-5")]) == " -i GPU-5"


def test_prose_calls_cards_as_commands_do():
    assert called([Card(index=3)]) == "GPU 3"
    assert called([Card(index=1), Card(index=3)]) == "GPUs 1 and 3"
    assert called([Card(pci_address="0000:3b:00.0")]) == "the GPU at 0000:3b:00.0"
    assert called([]) == called([Card()]) == "the GPU"
