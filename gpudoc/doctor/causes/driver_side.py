"""The later links of the chain: NVML's answer, GPUs hidden by the environment, cuInit's answer."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes import live
from gpudoc.doctor.causes.per_gpu import read, skip_of
from gpudoc.doctor.causes.visibility import MASKS, read_mask
from gpudoc.doctor.model import Card, Evidence, Finding, Observation, Severity, Skip
from gpudoc.facts.children import STUCK
from gpudoc.facts.model import NOT_SUPPORTED, Absent, Fact, Gpu, GpuProcess, Machine, known_or
from gpudoc.knowledge.error_numbers import cause_of_error
from gpudoc.patterns import Pattern

# a probe that was in one of these calls was inside the driver, not still starting on a busy machine
_IN_DRIVER = Pattern(r": (?:nvml[A-Z]|cu[A-Z]|loading libcuda|attributes of)")
_HIDDEN = "visible_devices_hides_gpu"
# an unknown code from every one of several GPUs is the driver's fault; from one of them, that GPU's own
_SICK_DRIVER, _SICK_GPU = ("driver_in_bad_state", 0.6), ("gpu_not_answering", 0.85)


def look_at_nvml(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Does the driver answer NVML, and does each GPU? One cause per error code."""
    machine = evidence.machine
    code = machine.driver.nvml_code
    failure = machine.probe_failures.get("nvml", code.reason if isinstance(code, Absent) else "")
    # a call that hangs shows that there is a driver, whatever the bus shows
    known = live.nvidia_is_there(machine) or live.is_wsl(machine) or code == 0 or _IN_DRIVER.search(failure)
    if live.is_jetson(machine) or not known:
        return
    if failure or isinstance(code, Absent):
        yield from _not_answering(machine, failure, "NVML")
        return
    seen = (live.observe("NVML", f"code {code}: {machine.driver.nvml_message}", "nvmlInit"),)
    match code:
        case 0:
            yield from _look_at_handles(machine)
        case 12:
            yield _library_missing(machine, seen)
        case 4:
            yield Finding(id=_denied(machine), confidence=0.85, evidence=seen)
        case 999 if live.in_container(machine):
            yield Finding(id="container_lost_gpu_cgroup", confidence=0.85, evidence=seen)
        case _:
            cause, confidence = cause_of_error("nvml", code, "asked") or _SICK_DRIVER
            versions = _versions(machine) if code == 18 else ()
            yield Finding(id=cause, confidence=confidence, evidence=(*seen, *versions))


def _not_answering(machine: Machine, silence: str, what: str) -> Iterator[Finding | Skip]:
    """Judge a call that hung, was not answered in time, or killed the process that made it.

    A driver that is starting GPUs is silent for seconds, too: it hangs only if not even a signal ends the call, or if
    it has reported an error.
    """
    seen = (live.observe(what, silence, "probe"),)
    xids = live.logged(machine, "xid")
    if silence.startswith(("no answer", "answers are still coming")) and _IN_DRIVER.search(silence):
        if STUCK in silence or xids:
            yield Finding(id="driver_not_answering", confidence=0.93, evidence=(*seen, *xids[-1:]))
        else:
            off = [gpu for gpu in live.nvml_gpus(machine) if gpu.persistence is False][:1]
            told = (*seen, *(live.seen_of(gpu, "persistence mode is off") for gpu in off))
            yield Finding(id="driver_slow", severity="warning", confidence=0.8, evidence=told)
    elif silence.startswith("ended by") and _IN_DRIVER.search(silence):
        yield Finding(id="driver_in_bad_state", confidence=0.8, evidence=seen)
    else:
        yield Skip(f"{what}: {silence}")


def _denied(machine: Machine) -> str:
    return "container_lost_gpu_cgroup" if live.in_container(machine) else "device_permission_denied"


def _versions(machine: Machine) -> tuple[Observation, ...]:
    return (
        live.observe("kernel module", machine.driver.module_version, "/sys/module/nvidia/version"),
        live.observe("driver libraries", machine.driver.library_version, "library folders"),
    )


def _library_missing(machine: Machine, seen: tuple[Observation, ...]) -> Finding:
    module = live.observe("kernel module", machine.driver.module_version, "/proc/driver/nvidia/version")
    if live.in_container(machine):
        evidence = (*seen, module, _capabilities(machine))
        return Finding(id="container_without_gpu_access", confidence=0.93, evidence=evidence)
    return Finding(id="driver_missing_or_not_loaded", confidence=0.9, evidence=(*seen, module))


def _capabilities(machine: Machine) -> Observation:
    asked = live.variables(machine).get("NVIDIA_DRIVER_CAPABILITIES", "not set")
    return live.observe("NVIDIA_DRIVER_CAPABILITIES", asked, "environment")


def _look_at_handles(machine: Machine) -> Iterator[Finding | Skip]:
    """GPUs that NVML counts but does not answer for."""
    gpus = live.nvml_gpus(machine)
    known = [(gpu, gpu.nvml_code) for gpu in gpus if not isinstance(gpu.nvml_code, Absent)]
    # code 4: another user's or another job's GPU
    failed = [(gpu, code) for gpu, code in known if code not in (0, 4)]
    sick = _SICK_DRIVER if 1 < len(gpus) == len(failed) else _SICK_GPU
    for gpu, code in failed:
        cause, confidence = cause_of_error("nvml", code, "asked", of_gpu=True) or sick
        seen = live.seen_of(gpu, f"code {code} from {known_or(gpu.nvml_question, 'NVML')}")
        yield Finding(id=cause, confidence=confidence, cards=(Card.of(gpu),), evidence=(seen,))
    if not failed and isinstance(machine.gpus, Absent):
        yield from _not_answering(machine, machine.gpus.reason, "NVML")


def look_at_mask(evidence: Evidence) -> Iterator[Finding | Skip]:
    """Does an environment variable hide GPUs, on purpose or by a wrong name? `visible_devices_hides_gpu`."""
    machine = evidence.machine
    for name in MASKS:
        mask = live.variables(machine).get(name)
        if mask is None or (name != "CUDA_VISIBLE_DEVICES" and machine.torch.accelerator != "rocm"):
            continue
        seen = live.observe(name, repr(mask), "environment")
        if mask.strip() in ("", "-1", "NoDevFiles"):
            broken = live.gpu_is_meant(evidence) and evidence.expectation.device.startswith("cuda")
            severity: Severity = "broken" if broken else "info"
            title = f"{name} hides every GPU"
            yield Finding(id=_HIDDEN, severity=severity, confidence=0.97, evidence=(seen,), title=title)
            return
        gpus = live.nvml_gpus(machine)
        wrong = read_mask(mask, gpus)[1] if gpus else ""
        if wrong:
            there = live.observe("GPUs", f"{len(gpus)}, numbered 0 to {len(gpus) - 1}", "NVML")
            title = f"{name} names {wrong!r}, which is not a GPU here; CUDA ignores it and all after it"
            yield Finding(id=_HIDDEN, confidence=0.97, evidence=(seen, there), title=title)
            return


def look_at_modes(evidence: Evidence) -> Iterator[Finding | Skip]:
    """GPUs whose settings let no program use them: MIG without instances, compute mode."""
    gpus = live.nvml_gpus(evidence.machine)
    unread: list[tuple[str, int]] = []
    for cause, why_closed in (("mig_enabled_no_instance", _without_instance), ("compute_mode_exclusive", _closed)):
        answers = [(gpu, why_closed(gpu)) for gpu in gpus]
        closed = [(gpu, answer) for gpu, answer in answers if answer and not isinstance(answer, Absent)]
        absent = [(answer.reason, gpu.index) for gpu, answer in answers if isinstance(answer, Absent)]
        unread += [(reason, index) for reason, index in absent if not reason.endswith(NOT_SUPPORTED)]
        if closed:
            severity: Severity = "broken" if len(closed) == len(gpus) else "warning"
            seen, cards = tuple(live.seen_of(gpu, why) for gpu, why in closed), tuple(Card.of(gpu) for gpu, _ in closed)
            yield Finding(id=cause, severity=severity, confidence=0.95, cards=cards, evidence=seen)
    yield from skip_of(unread)
    if isinstance(evidence.machine.gpus, Absent) and evidence.machine.driver.nvml_code == 0:
        yield Skip(f"gpus: {evidence.machine.gpus.reason}")


def _without_instance(gpu: Gpu) -> Fact[str]:
    """Why MIG leaves nothing to compute on; '' if it leaves something."""

    def instances(mig_instances: int) -> str:
        return "" if mig_instances else "MIG is on, no instance"

    def mode(mig_enabled: bool) -> Fact[str]:
        return read(gpu, instances) if mig_enabled else ""

    return read(gpu, mode)


def _closed(gpu: Gpu) -> Fact[str]:
    """Why the compute mode lets no further program in; '' if it does."""

    def taken(processes: tuple[GpuProcess, ...]) -> str:
        return "compute mode exclusive_process, and taken" if processes else ""

    def mode(compute_mode: str) -> Fact[str]:
        if compute_mode == "prohibited":
            return "compute mode prohibited"
        return read(gpu, taken) if compute_mode == "exclusive_process" else ""

    return read(gpu, mode)


def look_at_cuda(evidence: Evidence) -> Iterator[Finding | Skip]:
    """What does cuInit answer? The last link before torch."""
    machine = evidence.machine
    code = machine.driver.cu_init_code
    silent = isinstance(code, Absent) and _IN_DRIVER.search(code.reason)
    known = live.nvidia_is_there(machine) or live.nvml_gpus(machine) or live.is_wsl(machine) or live.is_jetson(machine)
    if not (known or silent):
        return
    if isinstance(code, Absent):
        if code.reason.startswith("libcuda cannot be loaded"):
            yield _no_libcuda(machine, code)
        else:
            yield from _not_answering(machine, code.reason, "cuInit")
        return
    seen = (
        live.observe("cuInit", f"code {code}: {machine.driver.cu_init_name}", "libcuda"),
        live.observe("libcuda", machine.driver.libcuda_path, "/proc/self/maps"),
    )
    if live.is_wsl(machine) and "/wsl/" not in known_or(machine.driver.libcuda_path, "/wsl/"):
        severity = "broken" if code else "warning"
        yield Finding(id="wsl_wrong_driver_inside", severity=severity, confidence=0.95, evidence=seen)  # type: ignore[arg-type]
    elif code != 0:
        yield _from_code(machine, code, seen)


def _no_libcuda(machine: Machine, reason: Absent) -> Finding:
    seen = live.observe("libcuda", reason, "dlopen")
    if live.is_wsl(machine) or not live.in_container(machine):
        return Finding(id="driver_missing_or_not_loaded", confidence=0.85, evidence=(seen,))
    evidence, there = (seen, _capabilities(machine)), live.nvml_gpus(machine)
    if not there:
        return Finding(id="container_without_gpu_access", confidence=0.9, evidence=evidence)
    listed = live.observe("GPUs", f"{len(there)} listed by NVML", "NVML")
    return Finding(id="container_without_libcuda", confidence=0.93, evidence=(*evidence, listed))


def _from_code(machine: Machine, code: int, seen: tuple[Observation, ...]) -> Finding:
    if code == 999:
        return _unknown_error(machine, seen)
    if code in (100, 101) and live.variables(machine).get("CUDA_VISIBLE_DEVICES"):
        mask = live.observe("CUDA_VISIBLE_DEVICES", live.variables(machine)["CUDA_VISIBLE_DEVICES"], "environment")
        return Finding(id=_HIDDEN, confidence=0.8, evidence=(mask, *seen))
    cause, confidence = cause_of_error("cuda", code, "asked") or ("cuda_init_failed", 0.6)
    return Finding(id=cause, confidence=confidence, evidence=(*seen, *_details(machine, cause)))


def _unknown_error(machine: Machine, seen: tuple[Observation, ...]) -> Finding:
    """Code 999 comes from nvidia_uvm, often after a suspend; in a container, from a device that it may not open."""
    slept = live.logged(machine, "resume")[-1:]
    if live.in_container(machine) and not slept:
        return Finding(id="container_lost_gpu_cgroup", confidence=0.6, evidence=seen)
    confidence = 0.95 if slept else 0.65
    return Finding(id="uvm_broken_after_suspend", confidence=confidence, evidence=(*seen, *slept))


def _details(machine: Machine, cause: str) -> tuple[Observation, ...]:
    if cause == "libcuda_mismatch_803":
        return _versions(machine)[:1]
    if cause == "fabric_manager_not_running":
        states = {known_or(gpu.fabric_state, "") for gpu in live.nvml_gpus(machine)} - {""}
        return (live.observe("fabric", ", ".join(sorted(states)) or "no state", "NVML"),)
    return ()
