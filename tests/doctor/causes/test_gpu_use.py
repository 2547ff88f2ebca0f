from gpudoc.doctor.causes.gpu_use import FINDERS
from gpudoc.doctor.model import Skip
from gpudoc.facts.model import Absent, GpuProcess
from tests.doctor.causes.judge import finds
from tests.machines.built import GIB, ask, changed, gpu, machine

FIND = {finder.id: finder.find for finder in FINDERS}["gpu_memory_orphaned"]


def held(**process):
    return machine(gpu(processes=(GpuProcess(pid=9, **{"memory_bytes": GIB, "alive": False, **process}),)))


def accounted(used, of_processes):
    return machine(gpu(memory_used_bytes=int(used * GIB), memory_accounted_bytes=of_processes * GIB))


test_memory_of_the_dead_or_of_nobody_is_told = finds([
    (FIND, held(), "gpu_memory_orphaned warning"),
    (FIND, accounted(0.5, 0), ""),
    (FIND, accounted(76, 75), ""),
    (FIND, accounted(76, 0), "gpu_memory_orphaned warning"),
    (FIND, accounted(76, 70), "gpu_memory_orphaned warning"),
])  # fmt: skip


def test_it_is_looked_for_only_where_all_processes_are_seen():
    hidden = Skip("the processes of other containers cannot be seen from here")
    assert ask(FIND, changed(held(), "container.kind", "docker")) == [hidden]
    unseen = (changed(held(), "host.wsl", True), held(alive=Absent("/proc hides them")), held(memory_bytes=Absent("x")))
    assert [type(answer) for facts in unseen for answer in ask(FIND, facts)] == [Skip] * 3
