from dataclasses import replace

import pytest

from gpudoc.doctor.causes import gpu_counts
from gpudoc.doctor.model import Skip
from gpudoc.facts.model import Absent
from gpudoc.facts.topology import EXCLUDED, NO_DRIVER
from tests.doctor.causes.judge import finds
from tests.machines.built import ask, changed, found, gpu, machine

EIGHT = machine(*(gpu(i) for i in range(8)))
# NVML lists one GPU less than the bus has
SEVEN = replace(EIGHT, gpus=EIGHT.gpus[:-1])
BARE = changed(SEVEN, "pci.7.driver", NO_DRIVER)
FEWER_IN_CUDA = changed(EIGHT, "driver.cuda_devices", EIGHT.driver.cuda_devices[:-1])


def node(facts, **changes):
    nodes = tuple(replace(n, **changes) if n.path == "/dev/nvidia7" else n for n in facts.nodes)
    return replace(facts, nodes=nodes)


def inside(facts):
    return changed(facts, "container.kind", "docker")


def told(facts, **environment):
    return changed(facts, "environment", environment)


def in_slurm(facts, **environment):
    return changed(told(facts, SLURM_GPUS_ON_NODE="8", **environment), "container.gpus_asked", "8")


def sliced(instances):
    return machine(gpu(0, mig_enabled=True, mig_instances=instances))


test_a_gpu_that_was_not_given_is_not_missing = finds([
    (gpu_counts.find_missing, EIGHT, ""),
    (gpu_counts.find_missing, changed(SEVEN, "pci.7.driver", "vfio-pci"), ""),
    (gpu_counts.find_missing, changed(SEVEN, "pci.7.minor", EXCLUDED), ""),
    # the scheduler's cgroup, a container without the device, one without its entry
    (gpu_counts.find_missing, node(SEVEN, opens=False, error="EPERM: operation not permitted"), ""),
    (gpu_counts.find_missing, inside(node(SEVEN, exists=False)), ""),
    (gpu_counts.find_missing, inside(changed(SEVEN, "pci.7.minor", Absent("x"))), ""),
    (gpu_counts.find_missing, changed(SEVEN, "host.wsl", True), ""),
    (gpu_counts.find_missing, changed(BARE, "pci.7.device_id", 0x1EB8), ""),
    (gpu_counts.find_missing, changed(BARE, "pci.7.minor", EXCLUDED), ""),
    (gpu_counts.find_missing, changed(EIGHT, "gpus.7.pci_address", Absent("the GPU is lost")), ""),
    # a device file that fails or lacks on a host explains nothing
    (gpu_counts.find_missing, node(SEVEN, opens=False, error="EIO: input/output error"), "gpu_missing_from_driver broken"),
    (gpu_counts.find_missing, node(SEVEN, exists=False), "gpu_missing_from_driver broken"),
])  # fmt: skip
test_cuda_that_lists_fewer_gpus_is_told_unless_a_mask_says_so = finds([
    (gpu_counts.find_fewer_in_cuda, EIGHT, ""),
    (gpu_counts.find_fewer_in_cuda, told(FEWER_IN_CUDA, CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6"), ""),
    (gpu_counts.find_fewer_in_cuda, told(FEWER_IN_CUDA, CUDA_VISIBLE_DEVICES="0,GPU-00000001,2,3,4,5,6,7"), "cuda_lists_fewer_gpus warning"),
])  # fmt: skip
test_fewer_gpus_than_a_scheduler_or_a_container_promised = finds([
    (gpu_counts.find_fewer_than_asked, machine(), ""),
    (gpu_counts.find_fewer_than_asked, changed(told(machine(), SLURM_GPUS_ON_NODE="2"), "container.gpus_asked", "2"), "fewer_gpus_than_expected warning"),
    (gpu_counts.find_fewer_than_asked, told(machine(), NVIDIA_VISIBLE_DEVICES="0,1"), ""),
    # a task of `srun --gpus-per-task=1` sees one of the step's eight
    (gpu_counts.find_fewer_than_asked, in_slurm(machine(), CUDA_VISIBLE_DEVICES="0"), ""),
    (gpu_counts.find_fewer_than_asked, in_slurm(machine(), SLURM_STEP_GPUS="3"), ""),
    (gpu_counts.find_fewer_than_asked, in_slurm(machine(), CUDA_VISIBLE_DEVICES="0,1"), "fewer_gpus_than_expected warning"),
    # two slices of one card
    (gpu_counts.find_fewer_than_asked, inside(told(sliced(2), NVIDIA_VISIBLE_DEVICES="MIG-a,MIG-b")), ""),
    (gpu_counts.find_fewer_than_asked, inside(told(sliced(1), NVIDIA_VISIBLE_DEVICES="MIG-a,MIG-b")), "fewer_gpus_than_expected warning"),
    (gpu_counts.find_fewer_than_asked, in_slurm(sliced(2), CUDA_VISIBLE_DEVICES="MIG-a,MIG-b"), ""),
    (gpu_counts.find_fewer_than_asked, inside(told(machine(), NVIDIA_VISIBLE_DEVICES="0,1")), "fewer_gpus_than_expected warning"),
])  # fmt: skip


def test_a_gpu_that_the_driver_holds_and_nvml_does_not_list_is_named():
    (finding,) = ask(gpu_counts.find_missing, SEVEN)
    assert (finding.id, finding.severity) == ("gpu_missing_from_driver", "broken")
    assert [card.pci_address for card in finding.cards] == ["0000:17:00.0"]
    assert finding.evidence[0].fact == "0000:17:00.0"
    assert finding.evidence[1].value == "8 held by the driver, 7 listed by NVML"
    (finding,) = ask(gpu_counts.find_missing, BARE)
    assert finding.evidence[0].value == "no driver holds it, although nvidia holds the others of its kind"


def test_the_gpu_that_cuda_does_not_list_is_named():
    (finding,) = ask(gpu_counts.find_fewer_in_cuda, FEWER_IN_CUDA)
    assert (finding.id, [card.index for card in finding.cards]) == ("cuda_lists_fewer_gpus", [7])


@pytest.mark.parametrize("mode", [True, Absent("no permission")])
def test_with_mig_cuda_counts_otherwise(mode):
    (skip,) = ask(gpu_counts.find_fewer_in_cuda, changed(FEWER_IN_CUDA, "gpus.0.mig_enabled", mode))
    assert isinstance(skip, Skip)


def test_fewer_gpus_than_the_user_wants_and_a_lost_or_silent_one_is_none_of_them():
    assert found(gpu_counts.find_fewer_than_asked, machine(), num_gpus=1) == []
    silent = (
        machine(gpu(0), gpu(1, nvml_code=code)) for code in (15, Absent("no answer within 8 s: nvmlDeviceGetName"))
    )
    for facts in (machine(), *silent):
        assert found(gpu_counts.find_fewer_than_asked, facts, num_gpus=2) == [("fewer_gpus_than_expected", "broken")]
