"""The output of `python -m torch.utils.collect_env`, of every torch since 1.5, whole or in part."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.facts.readers.gather import Gather, stated, version_pair
from gpudoc.facts.readers.model import Line
from gpudoc.patterns import Pattern

_FIELD = Pattern(r"^\W{0,4}([A-Z][A-Za-z ]{1,40}?)\s*:\s*(.*)$")
_GPU = Pattern(r"^\W{0,3}(?:GPU models and configuration:\s*)?GPU (\d{1,3}):\s*(\S(?:.*?\S)?)(?:\s*\(UUID.*)?\s*$")
_UNNUMBERED = Pattern(r"^\W{0,3}GPU models and configuration:\s*((?:AMD|NVIDIA|Tesla|GeForce|Quadro|Radeon|gfx).+)$")
_MEMORY = Pattern(r"[,(]\s*(\d{3,6})\s*Mi?B\b")
_SLICE = Pattern(r"^\s*MIG \d+g\.")
# fields that only collect_env writes; one of them is enough to call the text its output
_OWN = {"pytorch version", "cuda used to build pytorch", "is cuda available", "gpu models and configuration"}


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put the facts of collect_env's fields into `gather`."""
    for line in lines:
        text = line.text
        gpu = _GPU.match(text)
        if gpu:
            _read_gpu(int(gpu[1]), gpu[2], line, gather)
        elif _SLICE.match(text) and gather.gpu_indices():
            _count_slice(gather.gpu_indices()[-1], line, gather)
        field = _FIELD.match(text)
        if field:
            _read_field(" ".join(field[1].lower().split()), field[2], line, gather)


def _read_gpu(index: int, name: str, line: Line, gather: Gather) -> None:
    value = stated(name)
    if value is None or Pattern(r"(?i)memory usage|\d|error|unable").match(value):
        return
    memory = _MEMORY.search(value)
    gather.put_gpu(index, line, name=value.split(",")[0].split("(")[0].strip())
    if memory:
        gather.put_gpu(index, line, memory_total_bytes=int(memory[1]) * 1024**2)


def _count_slice(index: int, line: Line, gather: Gather) -> None:
    gather.put_gpu(index, line, mig_enabled=True, mig_instances=1)


def _read_field(key: str, value: str, line: Line, gather: Gather) -> None:
    if key in _OWN:
        gather.recognise("collect_env")
    known = stated(value)
    match key:
        case "pytorch version" if known:
            gather.put_torch(known.split()[0], line)
        case "cuda used to build pytorch":
            _read_build(value, line, gather)
        case "rocm used to build pytorch" if known and version_pair(known):
            gather.put("torch.hip_version", known, line)
            gather.put("torch.accelerator", "rocm", line)
        case "is cuda available" if known:
            gather.put("torch.is_available", known.lower() in ("true", "yes"), line)
        case "gpu models and configuration":
            unnumbered = _UNNUMBERED.match(line.text)
            if unnumbered:
                _read_gpu(0, unnumbered[1], line, gather)
        case "nvidia driver version" if known and (number := Pattern(r"\d{3}\.\d+(?:\.\d+)?").match(known)):
            gather.put("driver.module_version", number[0], line)
        case "cudnn version" if known and Pattern(r"\d").match(known):
            gather.put("torch.cudnn_version", known, line)
        case "os" if known:
            _read_system(known, line, gather)
        case "libc version" if known and (libc := Pattern(r"glibc-(\d+\.\d+)").search(known)):
            gather.put("host.libc_version", libc[1], line)
        case "python version" if known and (python := Pattern(r"\d+\.\d+(?:\.\d+)?").match(known)):
            gather.put("python.version", python[0], line)
        case "python platform" if known:
            _read_platform(known, line, gather)
        case _:
            pass


def _read_build(value: str, line: Line, gather: Gather) -> None:
    pair = version_pair(value)
    if pair:
        gather.put("torch.cuda_version", pair, line)
        gather.put("torch.accelerator", "cuda", line)
    elif value.strip().lower() in ("none", "could not collect"):
        # 'None' means a build without CUDA; collect_env writes N/A if torch itself is missing
        gather.put("torch.accelerator", "none", line)


def _read_system(text: str, line: Line, gather: Gather) -> None:
    gather.put("host.distribution", text, line)
    lowered = text.lower()
    for word, system in (("windows", "Windows"), ("macos", "Darwin"), ("mac os", "Darwin")):
        if word in lowered:
            gather.put("host.system", system, line)
            return
    gather.put("host.system", "Linux", line)


def _read_platform(text: str, line: Line, gather: Gather) -> None:
    kernel = Pattern(r"Linux-([\w.+]+(?:-[\w.+]+?)*?)-(x86_64|aarch64|arm64|ppc64le)").match(text)
    if kernel:
        gather.put("host.kernel", kernel[1], line)
        gather.put("host.architecture", kernel[2], line)
    if "microsoft" in text.lower():
        gather.put("host.wsl", True, line)
    if "tegra" in text.lower():
        gather.put("host.jetson", True, line)
