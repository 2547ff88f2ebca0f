"""Which causes a text rules out: those whose facts it really held. A text that is silent proves nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpudoc.facts.model import Absent, Machine

# the facts of a text by which its finders judge a cause; 'gpus.x' stands for each GPU of the text
_FACTS: Mapping[str, tuple[str, ...]] = {
    "cpu_only_torch": ("torch.accelerator",),
    "wrong_accelerator_build": ("torch.accelerator",),
    "driver_too_old": ("driver.module_version", "torch.cuda_version"),
    "driver_library_mismatch": ("driver.module_version", "driver.library_version"),
    "gpu_newer_than_wheel_archs": ("gpus.name", "torch.version"),
    "gpu_older_than_wheel_archs": ("gpus.name", "torch.version"),
    "torchvision_torch_mismatch": ("python.packages", "torch.version"),
    "mixed_cuda_packages": ("python.packages",),
    "numpy2_abi": ("python.packages",),
    "gpu_ecc_error": ("gpus.ecc_uncorrected_volatile",),
    "gpu_needs_reset": ("gpus.recovery_action",),
    "gpu_hardware_fault": ("tests",),
    "thermal_throttle": ("gpus.throttle_reasons",),
    "pcie_link_degraded": ("gpus.link.width", "gpus.link.width_max"),
    "nvlink_error": ("gpus.nvlink_active",),
    "fabric_manager_not_running": ("gpus.fabric_state",),
    "mig_enabled_no_instance": ("gpus.mig_enabled",),
    "compute_mode_exclusive": ("gpus.compute_mode",),
    "vgpu_unlicensed": ("gpus.licensed",),
    "oom_other_process": ("gpus.memory_used_bytes", "gpus.memory_total_bytes", "gpus.processes"),
    "visible_devices_hides_gpu": ("environment",),
}


def ruled_out(machine: Machine, unsettled: Collection[str]) -> tuple[str, ...]:
    """The causes that the facts of a text rule out; none of `unsettled`, which were found or could not be judged."""
    return tuple(
        cause
        for cause, paths in _FACTS.items()
        if cause not in unsettled and all(_held(machine, path.split(".")) for path in paths)
    )


def _held(whole: object, path: list[str]) -> bool:
    """Whether the fact at `path` is there, for each member of a list on the way."""
    if isinstance(whole, Absent):
        return False
    if isinstance(whole, tuple):
        return bool(whole) and (not path or all(_held(member, path) for member in whole))
    return True if not path else _held(getattr(whole, path[0]), path[1:])
