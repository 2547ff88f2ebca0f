"""The explicit list of everything doctor knows: the causes by id, and the finders in the order they are asked.

A cause is a row of knowledge/causes; what a message alone shows is a row of knowledge/signatures, which `signatures`
finds. What takes arithmetic or a comparison of facts is code: a file under causes/ exports FINDERS, all named here.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpudoc.doctor import signatures
from gpudoc.doctor.catalogue import Catalogue
from gpudoc.doctor.causes import (
    builds,
    chain,
    checkpoint_keys,
    compared,
    connection,
    diagnosed,
    dumped,
    error_numbers,
    first_gpu,
    gpu_counts,
    gpu_health,
    gpu_links,
    gpu_use,
    holders,
    installed,
    kernel_events,
    libraries,
    limits,
    loading,
    memory,
    pasted_facts,
    rank_words,
    reported,
    reported_archs,
    tensors,
    timed,
    visibility,
    watched,
)
from gpudoc.doctor.model import Cause, Finder
from gpudoc.knowledge.cause_rows import own_rows

CATALOGUE: Mapping[str, Cause] = Catalogue(own_rows())

FINDERS: tuple[Finder, ...] = (
    *chain.FINDERS,
    *builds.FINDERS,
    *installed.FINDERS,
    *gpu_health.FINDERS,
    *gpu_links.FINDERS,
    *gpu_use.FINDERS,
    *gpu_counts.FINDERS,
    *kernel_events.FINDERS,
    *holders.FINDERS,
    *connection.FINDERS,
    *limits.FINDERS,
    *error_numbers.FINDERS,
    *pasted_facts.FINDERS,
    *compared.FINDERS,
    *timed.FINDERS,
    *signatures.FINDERS,
    *reported.FINDERS,
    *reported_archs.FINDERS,
    *libraries.FINDERS,
    *visibility.FINDERS,
    *diagnosed.FINDERS,
    *memory.FINDERS,
    *tensors.FINDERS,
    *dumped.FINDERS,
    *first_gpu.FINDERS,
    *loading.FINDERS,
    *rank_words.FINDERS,
    *checkpoint_keys.FINDERS,
    *watched.FINDERS,
)
