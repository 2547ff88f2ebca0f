from __future__ import annotations

from gpudoc.facts.readers import read
from gpudoc.facts.readers.model import named_facts

COLLECTED = (
    "PyTorch version: 2.1.0+cu118\nIs debug build: False\nCUDA used to build PyTorch: 11.8\nIs CUDA available: False\n"
    "Nvidia driver version: 470.57.02\n"
)


def test_facts_that_were_stated_have_names_and_short_values():
    names = named_facts(read(COLLECTED))
    assert {"torch.version", "torch.version:2.1", "torch.is_available:False", "kind:collect_env"} <= names
    assert "driver.module_version:470.57" in names


def test_what_was_not_stated_has_no_name():
    names = named_facts(read("the gpu is slow"))
    assert not [name for name in names if name.startswith(("torch", "driver", "host"))]


def test_no_name_holds_a_blank():
    assert not [name for name in named_facts(read(COLLECTED)) if " " in name]
