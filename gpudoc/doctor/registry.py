"""The explicit list of everything doctor knows: catalogue rows by id, and the finders in the order they are asked.

A family file under causes/ exports FINDERS, one under catalogue/ exports CAUSES; both are named here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpudoc.doctor.catalogue import devices, environment, machine, memory, program, software, speed
from gpudoc.doctor.causes import (
    announced,
    builds,
    chain,
    checkpoint_keys,
    connection,
    containers,
    distributed,
    driver,
    driver_words,
    evaluating,
    first_gpu,
    hardware,
    hardware_text,
    held_memory,
    host_side,
    in_workers,
    installed,
    libraries,
    limits,
    loading,
    lookups,
    pasted_facts,
    precision,
    profiled,
    rank_words,
    reported,
    reported_archs,
    slowness,
    tensors,
    told_builds,
    told_driver,
    told_gpu,
    told_installed,
    told_loop,
    told_masks,
    told_memory,
    told_pace,
    told_precision,
    told_ranks,
    told_run,
    told_work,
    visibility,
    watched,
)
from gpudoc.doctor.causes import (
    memory as memory_signs,
)
from gpudoc.doctor.model import Cause, Finder

CAUSES: tuple[Cause, ...] = (
    *environment.CAUSES,
    *devices.CAUSES,
    *machine.CAUSES,
    *software.CAUSES,
    *memory.CAUSES,
    *program.CAUSES,
    *speed.CAUSES,
)

CATALOGUE: Mapping[str, Cause] = {cause.id: cause for cause in CAUSES}

FINDERS: tuple[Finder, ...] = (
    *chain.FINDERS,
    *builds.FINDERS,
    *installed.FINDERS,
    *hardware.FINDERS,
    *connection.FINDERS,
    *limits.FINDERS,
    *driver.FINDERS,
    *driver_words.FINDERS,
    *pasted_facts.FINDERS,
    *told_driver.FINDERS,
    *told_gpu.FINDERS,
    *containers.FINDERS,
    *reported.FINDERS,
    *reported_archs.FINDERS,
    *libraries.FINDERS,
    *told_installed.FINDERS,
    *visibility.FINDERS,
    *hardware_text.FINDERS,
    *memory_signs.FINDERS,
    *evaluating.FINDERS,
    *held_memory.FINDERS,
    *tensors.FINDERS,
    *lookups.FINDERS,
    *precision.FINDERS,
    *distributed.FINDERS,
    *first_gpu.FINDERS,
    *loading.FINDERS,
    *in_workers.FINDERS,
    *host_side.FINDERS,
    *slowness.FINDERS,
    *told_memory.FINDERS,
    *rank_words.FINDERS,
    *told_ranks.FINDERS,
    *told_run.FINDERS,
    *told_work.FINDERS,
    *told_builds.FINDERS,
    *told_precision.FINDERS,
    *told_masks.FINDERS,
    *checkpoint_keys.FINDERS,
    *told_pace.FINDERS,
    *told_loop.FINDERS,
    *profiled.FINDERS,
    *announced.FINDERS,
    *watched.FINDERS,
)
