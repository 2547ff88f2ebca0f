"""The chain from the PCI bus to cuInit, walked in order: the first broken link is the root, the rest is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from gpudoc.doctor.causes import driver_side, kernel_side
from gpudoc.doctor.causes.kernel_events import NOT_STARTED
from gpudoc.doctor.model import Evidence, Finder, Finding, Skip
from gpudoc.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One link: the function that examines it, and the causes that it can name."""

    name: str
    look: Callable[[Evidence], Iterator[Finding | Skip]]
    causes: tuple[str, ...]


LINKS: tuple[ChainLink, ...] = (
    ChainLink("GPU on the bus", kernel_side.look_at_bus, ("no_gpu_on_machine", "wsl_windows_or_kernel_too_old")),
    ChainLink("GPU answers", kernel_side.look_at_answer, ("gpu_fallen_off_bus",)),
    ChainLink(
        "kernel driver",
        kernel_side.look_at_kernel_driver,
        (
            "nouveau_loaded",
            "gpu_bound_to_vfio",
            "secure_boot_blocks_module",
            "driver_missing_or_not_loaded",
            "driver_does_not_support_gpu",
            *NOT_STARTED,
        ),
    ),
    ChainLink(
        "AMD driver and device files",
        kernel_side.look_at_amd,
        (
            "driver_missing_or_not_loaded",
            "device_nodes_missing",
            "device_permission_denied",
            "container_without_gpu_access",
        ),
    ),
    ChainLink(
        "device files",
        kernel_side.look_at_nodes,
        (
            "container_without_gpu_access",
            "device_nodes_missing",
            "container_lost_gpu_cgroup",
            "device_permission_denied",
            "nvidia_uvm_missing",
            *NOT_STARTED,
        ),
    ),
    ChainLink(
        "NVML",
        driver_side.look_at_nvml,
        (
            "driver_not_answering",
            "driver_slow",
            "driver_library_mismatch",
            "driver_missing_or_not_loaded",
            "container_without_gpu_access",
            "container_lost_gpu_cgroup",
            "device_permission_denied",
            "driver_in_bad_state",
            "gpu_not_answering",
            "gpu_power_missing",
            "gpu_needs_reset",
            "gpu_fallen_off_bus",
            "gpu_hardware_fault",
        ),
    ),
    ChainLink("environment mask", driver_side.look_at_mask, ("visible_devices_hides_gpu",)),
    ChainLink("MIG and compute mode", driver_side.look_at_modes, ("mig_enabled_no_instance", "compute_mode_exclusive")),
    ChainLink(
        "cuInit",
        driver_side.look_at_cuda,
        (
            "driver_not_answering",
            "driver_slow",
            "driver_in_bad_state",
            "libcuda_mismatch_803",
            "forward_compat_on_consumer_gpu",
            "fabric_manager_not_running",
            "mps_daemon_unreachable",
            "uvm_broken_after_suspend",
            "libcuda_stub_loaded",
            "wsl_wrong_driver_inside",
            "compute_mode_exclusive",
            "visible_devices_hides_gpu",
            "container_without_gpu_access",
            "container_without_libcuda",
            "container_lost_gpu_cgroup",
            "driver_missing_or_not_loaded",
            "gpu_ecc_error",
            "oom_other_process",
            "cuda_init_failed",
        ),
    ),
)

CAUSES: tuple[str, ...] = tuple(dict.fromkeys(cause for link in LINKS for cause in link.causes))


@dataclass(frozen=True, slots=True)
class Walk:
    """How far the chain holds: the findings up to the link where it ended, and the links that could not be examined."""

    ended: int
    findings: tuple[Finding, ...]
    skips: tuple[tuple[int, Skip], ...]


def walk(evidence: Evidence) -> Walk:
    """Examine link by link until one is broken or left out on purpose; a warning is kept, and the walk goes on."""
    skips: list[tuple[int, Skip]] = []
    warnings: list[Finding] = []
    for place, link in enumerate(LINKS):
        answers = list(link.look(evidence))
        skips += [(place, answer) for answer in answers if isinstance(answer, Skip)]
        found = [answer for answer in answers if isinstance(answer, Finding)]
        warnings += [finding for finding in found if finding.severity == "warning"]
        ends = [finding for finding in found if finding.severity != "warning"]
        if ends:
            behind = tuple(cause for later in LINKS[place + 1 :] for cause in later.causes)
            ends = [replace(f, explains=_others(f, behind)) if f.severity == "broken" else f for f in ends]
            return Walk(place, (*warnings, *ends), tuple(skips))
    return Walk(len(LINKS), tuple(warnings), tuple(skips))


def _others(finding: Finding, behind: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(cause for cause in dict.fromkeys((*behind, "training_on_cpu")) if cause != finding.id)


def _find(cause: str, evidence: Evidence) -> Iterator[Finding | Skip]:
    walked = walk(evidence)
    own = [finding for finding in walked.findings if finding.id == cause]
    yield from own
    if own:
        return
    places = [place for place, link in enumerate(LINKS) if cause in link.causes]
    for place, skip in walked.skips:
        if place in places:
            yield skip
    if places[0] > walked.ended:
        nothing = any(finding.id == "no_gpu_on_machine" for finding in walked.findings)
        yield Skip(
            "there is no GPU" if nothing else f"not checked, because an earlier link failed: {LINKS[walked.ended].name}"
        )


FINDERS: tuple[Finder, ...] = tuple(Finder(id=cause, find=partial(_find, cause)) for cause in CAUSES)
