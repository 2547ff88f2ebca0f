import pytest

from gpudoc.doctor.causes.gpu_links import FINDERS, find_nvlinks
from gpudoc.facts.model import NOT_SUPPORTED, Absent, Link
from tests.doctor.causes.judge import finds
from tests.machines.built import ask, gpu, machine

FIND = {finder.id: finder.find for finder in FINDERS if finder.find is not find_nvlinks}
DEGRADED, REPLAYS, FABRIC = (
    FIND[name] for name in ("pcie_link_degraded", "pcie_link_replays", "nvlink_fabric_unhealthy")
)


def link(generation, best, width, widest, busy=False, **more):
    link = Link(generation=generation, generation_max=best, width=width, width_max=widest, **more)
    use = {"utilization_percent": 99, "performance_state": 0} if busy else {}
    return machine(gpu(link=link, **{"performance_state": 8, **use}))


test_a_link_is_judged_by_width_and_under_load_by_speed = finds([
    (DEGRADED, link(1, 5, 16, 16), ""),
    (DEGRADED, link(1, 5, 16, 16, busy=True), "pcie_link_degraded warning"),
    (DEGRADED, link(5, 5, 16, 16, busy=True), ""),
    (DEGRADED, link(1, 4, 8, 16), "pcie_link_degraded warning"),
    (DEGRADED, link(4, 4, 8, 8, busy=True, generation_gpu_max=5), ""),
])  # fmt: skip
test_only_a_counter_that_grows_is_a_finding = finds([
    (REPLAYS, link(5, 5, 16, 16, replays=0, replays_added=0), ""),
    (REPLAYS, link(5, 5, 16, 16, replays=900, replays_added=0), ""),
    (REPLAYS, link(5, 5, 16, 16, replays=900, replays_added=4), "pcie_link_replays warning"),
    (FIND["nvlink_error"], machine(gpu(nvlink_errors=900)), ""),
])  # fmt: skip
test_a_fabric_is_completed_without_error_and_without_fault = finds([
    (FABRIC, machine(gpu()), ""),
    (FABRIC, machine(gpu(fabric_state="in progress")), "nvlink_fabric_unhealthy warning"),
    (FABRIC, machine(gpu(fabric_status=999)), "nvlink_fabric_unhealthy warning"),
    (FABRIC, machine(gpu(fabric_health=("route unhealthy",))), "nvlink_fabric_unhealthy warning"),
])  # fmt: skip


@pytest.mark.parametrize("nothing", ["width", "generation"])
def test_a_link_of_no_lanes_or_no_generation_is_not_checked(nothing):
    values = {"generation": 1, "generation_max": 5, "width": 16, "width_max": 16, nothing: 0}
    (skip,) = ask(DEGRADED, machine(gpu(link=Link(**values))))
    assert f"link.{nothing}" in skip.because


def test_errors_of_nvlink_that_grow_are_counted():
    (finding,) = ask(FIND["nvlink_error"], machine(gpu(nvlink_errors=900, nvlink_errors_added=12)))
    assert finding.evidence[0].value == "NVLink errors: 12 more between two readings, 912 in all"


def links(*active, name="NVIDIA H100 80GB HBM3", **changes):
    return machine(*(gpu(i, name=name, nvlink_active=up, **changes) for i, up in enumerate(active)))


@pytest.mark.parametrize(
    ("facts", "gpus"),
    [
        pytest.param(links(18, 18), [], id="all up"),
        pytest.param(links(18, 12), [1], id="one like less"),
        pytest.param(links(0, 0), [0, 1], id="all down"),
        pytest.param(links(17, 17), [0, 1], id="one of each down"),
        pytest.param(links(0), [], id="alone"),
        pytest.param(links(4, 4, virtualization="passthrough"), [], id="two of a virtual machine"),
        pytest.param(links(0, 0, virtualization="passthrough"), [0, 1], id="none of its links"),
        pytest.param(links(0, 0, name="NVIDIA H100 NVL"), [], id="no bridges"),
        pytest.param(links(12, 0, name="NVIDIA H100 NVL"), [1], id="one bridge"),
        pytest.param(links(4, 4, name="Tesla V100-SXM2-16GB"), [], id="partly"),
        pytest.param(links(0, 0, name="Tesla V100-SXM2-16GB"), [0, 1], id="none"),
    ],
)
def test_nvlinks_are_compared_with_their_likes_and_with_their_model(facts, gpus):
    assert [card.index for finding in ask(find_nvlinks, facts) for card in finding.cards] == gpus


def test_an_error_code_counts_once_the_registration_has_ended():
    (finding,) = ask(FABRIC, machine(gpu(fabric_state="in progress", fabric_status=999)))
    (seen,) = finding.evidence
    assert seen.value == "fabric registration is in progress, and it should be completed"


def test_a_gpu_without_nvlink_is_named_as_not_checked():
    (skip,) = ask(find_nvlinks, machine(gpu(0), gpu(1, nvlink_active=Absent(NOT_SUPPORTED))))
    assert skip.because == f"GPU 1: nvlink_active: {NOT_SUPPORTED}"
