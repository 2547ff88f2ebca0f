from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor.causes import gpu_counts
from gpudoc.doctor.model import Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.topology import EXCLUDED, NO_DRIVER
from tests.machines.built import ask, changed, found, gpu, machine


def without_last(facts):
    """NVML lists one GPU less than the bus has."""
    return replace(facts, gpus=facts.gpus[:-1])


EIGHT = machine(*(gpu(i) for i in range(8)))


def test_a_gpu_that_the_driver_holds_and_nvml_does_not_list_is_named():
    assert ask(gpu_counts.find_missing, EIGHT) == []
    (finding,) = ask(gpu_counts.find_missing, without_last(EIGHT))
    assert (finding.id, finding.severity) == ("gpu_missing_from_driver", "broken")
    assert [card.pci_address for card in finding.cards] == ["0000:17:00.0"]
    assert finding.evidence[0].fact == "0000:17:00.0"
    assert finding.evidence[1].value == "8 held by the driver, 7 listed by NVML"


def node(facts, **changes):
    nodes = tuple(replace(n, **changes) if n.path == "/dev/nvidia7" else n for n in facts.nodes)
    return replace(facts, nodes=nodes)


@pytest.mark.parametrize(
    "explained",
    [
        changed(without_last(EIGHT), "pci.7.driver", "vfio-pci"),
        changed(without_last(EIGHT), "pci.7.minor", EXCLUDED),
        node(without_last(EIGHT), opens=False, error="EPERM: operation not permitted"),
        changed(node(without_last(EIGHT), exists=False), "container.kind", "docker"),
        changed(changed(without_last(EIGHT), "pci.7.minor", Absent("x")), "container.kind", "docker"),
        changed(without_last(EIGHT), "host.wsl", True),
    ],
    ids=[
        "vfio",
        "excluded",
        "scheduler's cgroup",
        "container without the device",
        "container without its entry",
        "WSL",
    ],
)
def test_a_gpu_that_was_not_given_is_not_missing(explained):
    assert found(gpu_counts.find_missing, explained) == []


def test_a_device_file_that_fails_or_lacks_on_a_host_explains_nothing():
    for facts in (
        node(without_last(EIGHT), opens=False, error="EIO: input/output error"),
        node(without_last(EIGHT), exists=False),
    ):
        assert found(gpu_counts.find_missing, facts) == [("gpu_missing_from_driver", "broken")]


def test_a_gpu_without_driver_among_likes_that_have_one_is_missing():
    bare = changed(without_last(EIGHT), "pci.7.driver", NO_DRIVER)
    (finding,) = ask(gpu_counts.find_missing, bare)
    assert finding.evidence[0].value == "no driver holds it, and nvidia holds its likes"
    assert found(gpu_counts.find_missing, changed(bare, "pci.7.device_id", 0x1EB8)) == []
    assert found(gpu_counts.find_missing, changed(bare, "pci.7.minor", EXCLUDED)) == []


def test_a_gpu_listed_without_an_address_is_not_missing():
    assert ask(gpu_counts.find_missing, changed(EIGHT, "gpus.7.pci_address", Absent("the GPU is lost"))) == []


def fewer_in_cuda(facts):
    return changed(facts, "driver.cuda_devices", facts.driver.cuda_devices[:-1])


def test_cuda_that_lists_fewer_gpus_is_told_unless_a_mask_says_so():
    assert found(gpu_counts.find_fewer_in_cuda, EIGHT) == []
    (finding,) = ask(gpu_counts.find_fewer_in_cuda, fewer_in_cuda(EIGHT))
    assert (finding.id, [card.index for card in finding.cards]) == ("cuda_lists_fewer_gpus", [7])
    masked = changed(fewer_in_cuda(EIGHT), "environment", {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6"})
    assert found(gpu_counts.find_fewer_in_cuda, masked) == []
    one_less = changed(masked, "environment", {"CUDA_VISIBLE_DEVICES": "0,GPU-00000001,2,3,4,5,6,7"})
    assert found(gpu_counts.find_fewer_in_cuda, one_less) == [("cuda_lists_fewer_gpus", "warning")]


@pytest.mark.parametrize("mode", [True, Absent("no permission")])
def test_with_mig_cuda_counts_otherwise(mode):
    (skip,) = ask(gpu_counts.find_fewer_in_cuda, changed(fewer_in_cuda(EIGHT), "gpus.0.mig_enabled", mode))
    assert isinstance(skip, Skip)


def test_fewer_gpus_than_promised():
    def fewer(facts, **expected):
        return found(gpu_counts.find_fewer_than_asked, facts, **expected)

    assert fewer(machine(), num_gpus=2) == [("fewer_gpus_than_expected", "broken")]
    assert fewer(machine(), num_gpus=1) == []
    assert fewer(machine()) == []
    slurm = changed(changed(machine(), "environment", {"SLURM_GPUS_ON_NODE": "2"}), "container.gpus_asked", "2")
    assert fewer(slurm) == [("fewer_gpus_than_expected", "warning")]
    given = changed(machine(), "environment", {"NVIDIA_VISIBLE_DEVICES": "0,1"})
    assert fewer(given) == []
    assert fewer(changed(given, "container.kind", "docker")) == [("fewer_gpus_than_expected", "warning")]


def test_a_gpu_that_is_lost_or_silent_is_none_of_those_promised():
    for code in (15, Absent("no answer within 8 s: nvmlDeviceGetName")):
        facts = machine(gpu(0), gpu(1, nvml_code=code))
        assert found(gpu_counts.find_fewer_than_asked, facts, num_gpus=2) == [("fewer_gpus_than_expected", "broken")]
