from __future__ import annotations

import dataclasses
import json
from typing import Literal

import pytest

from gpudoc.facts.model import NOT_READ, Absent, Driver, Gpu, Link, Machine, Package, PciDevice, PythonFacts
from gpudoc.facts.readers import snapshot

MACHINE = Machine(
    pci=(PciDevice(address="0000:01:00.0", vendor_id=0x10DE, device_id=1, class_code=0x030000, driver="nvidia"),),
    driver=Driver(cuda_version=(12, 4), nvml_code=Absent("no permission"), modules=("nvidia", "nvidia_uvm")),
    gpus=(Gpu(index=0, name="NVIDIA L4", capability=(8, 9), link=Link(width=16)),),
    python=PythonFacts(packages=(Package(name="torch", version="2.6.0"),)),
    environment={"CUDA_VISIBLE_DEVICES": "0"},
    probe_seconds={"nvml": 0.2},
)


def test_a_machine_survives_the_way_through_json():
    assert snapshot.load(json.loads(json.dumps(snapshot.dump(MACHINE)))) == MACHINE


def test_a_reason_of_absence_is_kept_and_what_was_never_read_is_left_out():
    plain = snapshot.dump(MACHINE)
    assert plain["driver"]["nvml_code"] == {"absent": "no permission"}
    assert "cu_init_code" not in plain["driver"]
    assert snapshot.load(plain).driver.cu_init_code == NOT_READ


def test_a_value_of_the_wrong_type_is_absent_with_the_reason_and_the_rest_is_kept():
    machine = snapshot.load({"driver": {"cuda_version": "12.4", "module_version": "550"}, "gpus": "many", "future": 1})
    assert "unreadable" in machine.driver.cuda_version.reason
    assert machine.driver.module_version == "550"
    assert isinstance(machine.gpus, Absent)


def test_a_device_without_what_it_must_have_makes_the_list_absent():
    assert isinstance(snapshot.load({"pci": [{"address": "x"}]}).pci, Absent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Row:
    word: Literal["good", "bad"]
    origin: str = dataclasses.field(default="", metadata={"key": "from"})
    advice: object = dataclasses.field(default=None, metadata={"key": None})


def test_a_field_may_have_another_name_in_a_document_or_none():
    plain = snapshot.dump_facts(_Row(word="bad", origin="line 3", advice=print))
    assert plain == {"word": "bad", "from": "line 3"}
    assert snapshot.load_facts(_Row, {**plain, "advice": "rm"}) == _Row(word="bad", origin="line 3")


@pytest.mark.parametrize("plain", [{"word": "ugly"}, {"word": None}, {"from": "line 3"}, {"word": "bad", "from": 3}])
def test_what_is_none_of_the_words_of_a_field_or_lacks_one_is_refused(plain):
    with pytest.raises(ValueError, match=r"not one of good, bad|without word|expected str"):
        snapshot.load_facts(_Row, plain)
