"""Run by the examined Python: reports what it is, what is installed in it, and how its torch behaves.

It needs only the standard library of Python 3.7 and later, imports nothing of gpudoc, and prints one JSON line per fact
as soon as it is known, so that the parent keeps everything printed before a hang.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import sys
from typing import Any

_DIST = re.compile(r"^(?P<name>.+?)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info$")
_LIBRARIES = re.compile(
    r"/(lib(?:cuda|cudart|cublas|cublasLt|cudnn|nccl|cusparse|cusparseLt|cufft|curand|cusolver|nvJitLink|nvrtc|nvToolsExt|"
    r"cupti|nvidia-ml|stdc\+\+|gomp|iomp5|torch_cuda|torch_cpu|amdhip64|hsa-runtime64|mkl_core)[\w.-]*?\.so[\d.]*)$"
)

_PINNING = ("torch", "torchvision", "torchaudio", "triton", "xformers")


def tell(path: str, value: object) -> None:
    """Print one fact at once; `path` is its place in a Machine."""
    os.write(1, (json.dumps({"fact": path.split("."), "value": value}) + "\n").encode())


def begin(what: str) -> None:
    """Print the next question, so that a hang can be named."""
    os.write(1, (json.dumps({"begin": what}) + "\n").encode())


def tell_item(path: str, value: object) -> None:
    """Print one more item of the list at `path`."""
    os.write(1, (json.dumps({"item": path.split("."), "value": value}) + "\n").encode())


def absent(reason: str) -> dict[str, str]:
    """A fact that is not known."""
    return {"absent": reason}


def tell_python() -> None:
    """Version, executable and manager of this Python."""
    tell("python.version", ".".join(map(str, sys.version_info[:3])))
    tell("python.executable", sys.executable or "")
    tell("python.manager", _manager())
    tell("python.prefix", sys.prefix)


def _manager() -> str:
    if "google.colab" in sys.modules or os.environ.get("COLAB_RELEASE_TAG") or os.environ.get("KAGGLE_KERNEL_RUN_TYPE"):
        return "notebook"
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        return "conda"
    try:
        with open(os.path.join(sys.prefix, "pyvenv.cfg")) as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return "system"
    return "uv" if re.search(r"^uv\s*=", text, re.MULTILINE) else "venv"


def packages() -> list[dict[str, object]]:
    """Each installed distribution, from folder names only, which takes milliseconds."""
    found = []
    for folder in dict.fromkeys(path for path in sys.path if path):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in sorted(names):
            match = _DIST.match(name)
            if match:
                found.append(_package(match.group("name"), match.group("version"), folder, "pip"))
    meta = os.path.join(sys.prefix, "conda-meta")
    for name in sorted(os.listdir(meta)) if os.path.isdir(meta) else ():
        parts = name[: -len(".json")].rsplit("-", 2) if name.endswith(".json") else []
        if len(parts) == 3:
            found.append(_package(parts[0], parts[1], meta, "conda"))
    return found


def _package(name: str, version: str, location: str, channel: str) -> dict[str, object]:
    package: dict[str, object] = {"name": name, "version": version, "location": location, "channel": channel}
    if channel == "pip" and name.lower() in _PINNING:
        package["requires"] = _pins(os.path.join(location, f"{name}-{version}.dist-info", "METADATA"))
    return package


def _pins(place: str) -> list[str]:
    """The exact requirements in a distribution's metadata; torch and its companions pin their build requirements."""
    try:
        with open(place, encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("Requires-Dist:") and "==" in line]
    except (OSError, UnicodeDecodeError):
        return []
    return [line.partition(":")[2].strip() for line in lines if "extra ==" not in line]


def tell_packages() -> None:
    """Report the distributions and torch's build, which is read from its files."""
    tell("python.packages", packages())
    for folder in [path for path in sys.path if path]:
        place = os.path.join(folder, "torch", "version.py")
        if os.path.isfile(place):
            tell_build_files(place)
            return
    tell("torch.version", absent("torch is not installed"))
    tell("torch.import_error", absent("torch is not installed"))


def tell_build_files(place: str) -> None:
    """Report the build that torch/version.py describes, without importing torch."""
    with open(place) as file:
        text = file.read()

    def value(name: str) -> str | None:
        match = re.search(rf"^{name}(?::[^=]+)?\s*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        return match.group(1) if match else None

    tell("torch.version", value("__version__") or absent("torch/version.py does not name one"))
    tell_accelerator(value("cuda"), value("hip"), value("xpu"))
    tell("torch.location", os.path.dirname(place))


def tell_accelerator(cuda: str | None, hip: str | None, xpu: str | None) -> None:
    """Report the accelerator that torch was built for."""
    tell("torch.accelerator", "cuda" if cuda else "rocm" if hip else "xpu" if xpu else "cpu")
    numbers = re.findall(r"\d+", cuda or "")[:2]
    tell(
        "torch.cuda_version", [int(n) for n in numbers] if len(numbers) == 2 else absent("torch is not built for CUDA")
    )
    tell("torch.hip_version", hip or absent("torch is not built for ROCm"))


def tell_import() -> Any:
    """Import torch; returns the module, or None after reporting the error in its own words."""
    begin("import torch")
    try:
        torch = importlib.import_module("torch")
    except BaseException as error:  # a broken build raises anything, SystemExit too
        tell("torch.import_error", f"{type(error).__name__}: {str(error)[:2000]}")
        return None
    tell("torch.import_error", absent("torch imports"))
    return torch


def tell_torch(torch: Any) -> None:
    """Report torch's build and the devices that it sees."""
    begin("torch.version")
    build = torch.version
    tell("torch.version", str(torch.__version__))
    tell_accelerator(build.cuda, getattr(build, "hip", None), getattr(build, "xpu", None))
    tell("torch.location", os.path.dirname(torch.__file__))
    tell("torch.num_threads", torch.get_num_threads())
    mps = getattr(torch.backends, "mps", None)
    tell("torch.mps_built", bool(mps and mps.is_built()))
    tell("torch.mps_available", bool(mps and mps.is_available()))
    version = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    tell("torch.cudnn_version", str(version) if version else absent("torch is built without cuDNN"))
    tell("torch.arch_list", list(torch.cuda.get_arch_list()) or _compiled_archs(torch))
    tell_availability(torch)


def _compiled_archs(torch: Any) -> object:
    # get_arch_list is empty if no device can be used, but the build flags are still there
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    return flags.split() if flags else absent("torch is not built for CUDA or ROCm")


def tell_availability(torch: Any) -> None:
    """Report whether a device can be used, with the warning text that says why not."""
    import warnings

    begin("torch.cuda.is_available()")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = bool(torch.cuda.is_available())
        count = torch.cuda.device_count() if available else 0
    tell("torch.is_available", available)
    tell("torch.device_count", count)
    text = " | ".join(str(warning.message) for warning in caught)[:2000]
    tell("torch.warning", text if text else absent("torch gave no warning"))


def check_kernels(torch: Any, ordinals: list[int]) -> None:
    """Compute a sum and a product on each device of `ordinals` and compare them with the CPU's result."""
    for device in ordinals:
        begin(f"a tiny kernel on device {device}")
        try:
            tell_item("torch.kernel_checks", run_kernel(torch, device))
        except Exception as error:  # the GPU's error is the fact to report
            tell_item("torch.kernel_checks", {"device": device, "ran": False, "error": str(error)[:1000]})


def run_kernel(torch: Any, device: int) -> dict[str, object]:
    """One check on one device: {"device", "ran", "error"}."""
    here = torch.arange(64, dtype=torch.float32).reshape(8, 8)
    there = here.to(f"cuda:{device}")
    total = float((there + 1).sum().cpu())
    product = (there @ there).cpu()
    right = total == float((here + 1).sum()) and torch.allclose(product, here @ here, rtol=1e-2)
    return {"device": device, "ran": bool(right), "error": "" if right else "the result differs from the CPU's"}


def tell_libraries() -> None:
    """Report the CUDA, ROCm and C++ libraries that are really loaded, from /proc/self/maps (Linux only)."""
    if not sys.platform.startswith("linux"):
        return
    try:
        with open("/proc/self/maps") as file:
            paths = [line.split(None, 5)[5].strip() for line in file if len(line.split(None, 5)) == 6]
    except OSError as error:
        tell("torch.loaded_libraries", absent(f"cannot read /proc/self/maps: {error}"))
        return
    tell("torch.loaded_libraries", list(dict.fromkeys(path for path in paths if _LIBRARIES.search(path))))


def read_ordinals() -> list[int]:
    """The devices that may be tried, from the first line of standard input; none if it closes."""
    line = sys.stdin.readline()
    return json.loads(line) if line.strip() else []


def main() -> None:
    """Report everything; with --quick, only facts that do not need torch imported."""
    # this program's folder is first on the path, but imports must find the examined Python's modules
    sys.path[:] = [path for path in sys.path if path and path != os.path.dirname(os.path.abspath(sys.argv[0]))]
    # importing torch takes a third less time, and this process does nothing else
    gc.disable()
    begin("the examined Python")
    tell_python()
    tell_packages()
    if "--quick" not in sys.argv:
        torch = tell_import()
        if torch is not None:
            tell_torch(torch)
            begin("which GPUs are idle")
            check_kernels(torch, read_ordinals())
            tell_libraries()
    os.write(1, b'{"end": true}\n')
    # torch takes a tenth of a second to shut down, and a broken driver may hang there
    os._exit(0)


if __name__ == "__main__":
    main()
