import pytest

from gpudoc.doctor.causes.gpu_use import FINDERS
from gpudoc.doctor.model import Skip
from gpudoc.facts.model import Absent, GpuProcess
from tests.machines.built import GIB, ask, changed, found, gpu, machine

FIND = {finder.id: finder.find for finder in FINDERS}
ORPHANED = [("gpu_memory_orphaned", "warning")]


def test_memory_of_the_dead_is_seen_only_where_all_processes_are():
    dead = (GpuProcess(pid=9, memory_bytes=GIB, alive=False),)
    facts = machine(gpu(processes=dead))
    assert found(FIND["gpu_memory_orphaned"], facts) == ORPHANED
    hidden = Skip("the processes of other containers cannot be seen from here")
    assert ask(FIND["gpu_memory_orphaned"], changed(facts, "container.kind", "docker")) == [hidden]
    assert isinstance(ask(FIND["gpu_memory_orphaned"], changed(facts, "host.wsl", True))[0], Skip)


@pytest.mark.parametrize(
    "hidden", [{"alive": Absent("/proc hides them")}, {"alive": False, "memory_bytes": Absent("x")}]
)
def test_a_process_of_which_nothing_is_known_is_not_taken_for_a_dead_or_a_live_one(hidden):
    facts = machine(gpu(processes=(GpuProcess(pid=9, **{"memory_bytes": GIB, **hidden}),)))
    assert [type(answer) for answer in ask(FIND["gpu_memory_orphaned"], facts)] == [Skip]


@pytest.mark.parametrize(
    ("used", "accounted", "expected"),
    [(0.5, 0, []), (76, 75, []), (76, 0, ORPHANED), (76, 70, ORPHANED)],
)
def test_memory_that_no_process_accounts_for_is_told(used, accounted, expected):
    facts = machine(gpu(memory_used_bytes=int(used * GIB), memory_accounted_bytes=accounted * GIB))
    assert found(FIND["gpu_memory_orphaned"], facts) == expected
