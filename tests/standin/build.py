"""Builds the stand-in into one installed PyTorch: what is written by hand, and an empty answer for the rest.

    python tests/standin/build.py SITE_PACKAGES CUDA_INCLUDE

The libraries go where PyTorch's CUDA wheel looks for NVIDIA's by itself; SITE_PACKAGES gets the arithmetic, the hook
that loads it with `import torch`, and the metadata of the NVIDIA packages whose place is taken.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

LIBRARIES = Path(__file__).parent / "libraries"
HOOK = Path(__file__).parent / "hook.py"
WRITTEN = {
    "libcudart": ["cudart.c", "memory.c", "streams.c", "launches.c", "driver.c", "kernels.c"],
    "libcublas": ["cublas.c"],
    "libcublasLt": ["cublaslt.c"],
    "libcudnn": ["cudnn.c"],
    "libnccl": ["nccl.c"],
    "libnvrtc": ["nvrtc.c"],
    "libcufft": ["cufft.c"],
    "libnvidia-ml": ["nvml.c"],
}
# symbols that carry no version of their library, by how they begin; what is asked of the driver begins with cuX
UNVERSIONED = {
    "nccl": "libnccl",
    "cusparseLt": "libcusparseLt",
    "cuFile": "libcufile",
    "nvshmem": "libnvshmem_host",
    "curand": "libcurand",
}
# all that PyTorch links to is in its wheel, in the system, or begins so
NVIDIA = re.compile(r"lib(cu|nv|nccl)")
DRIVERS = ("libcuda.so.1", "libnvidia-ml.so.1")
NOT_SUPPORTED = 801
WAY_TO_KERNELS = "getComputedKernelForDispatchKey"
WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-format-truncation", "-Wno-deprecated-declarations")
EMPTY = """
#include <stdio.h>
#include <stdlib.h>
static void told(const char *name) {
    const char *path = getenv("STANDIN_TRACE");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) fprintf(file, "not written: %%s\\n", name), fclose(file);
}
#define EMPTY(name) long name(void) { static int before; if (!before++) told(#name); return %d; }
"""


@dataclass
class Library:
    """A library that PyTorch wants: what it asks of it, and the version it asks for."""

    soname: str
    version: str = ""
    symbols: set[str] = field(default_factory=set)

    @property
    def stem(self) -> str:
        """The name without version: 'libcudart'."""
        return self.soname.split(".so")[0]


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def compile_or_say(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")


def imported(library: Path) -> list[tuple[str, str]]:
    """Each symbol that the library imports, with its version where it has one."""
    names = [line.split()[-1] for line in output("nm", "-D", "--undefined-only", str(library)).splitlines()]
    return [(name.split("@")[0], name.rpartition("@")[2] if "@" in name else "") for name in names]


def exported(library: Path, *flags: str) -> set[str]:
    lines = output("nm", "--defined-only", "--extern-only", *flags, str(library)).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line.split()}


def homes(library: Path) -> dict[str, str]:
    """Each symbol version that the library asks for, with the soname it must be in."""
    needs = re.findall(r"File: (\S+)((?:(?!File: ).)*)", output("readelf", "-V", "-W", str(library)), re.S)
    return {version: soname for soname, names in needs for version in re.findall(r"Name: (\S+)", names)}


def home_of(symbol: str, asked: Iterable[str]) -> str:
    """The soname, of those asked for, of a symbol without a version; '' for none."""
    stem = next((home for start, home in UNVERSIONED.items() if symbol.startswith(start)), "")
    stem = stem or ("libcuda" if re.match("cu[A-Z]", symbol) else "")
    return next((soname for soname in asked if soname.split(".so")[0] == stem), "")


def wanted(torch_lib: Path) -> dict[str, Library]:
    """NVIDIA's libraries that PyTorch's own are linked to, and the driver's two, by soname."""
    own = {path.name: path for path in torch_lib.glob("lib*.so*")}
    found = {soname: Library(soname) for soname in DRIVERS}
    for library in own.values():
        needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", str(library)))
        asked = [soname for soname in needed if soname not in own and NVIDIA.match(soname)]
        for soname in asked:
            found.setdefault(soname, Library(soname))
        named = homes(library)
        for symbol, version in imported(library):
            home = named.get(version, "") if version else home_of(symbol, asked)
            if home in found:
                found[home].symbols.add(symbol)
                found[home].version = version or found[home].version
    return found


def build_library(library: Library, out: Path, work: Path, include: Path) -> None:
    """One shared library: its written sources, and a function that does nothing for each symbol they lack."""
    objects, defined = [], set()
    for source in WRITTEN.get(library.stem, []):
        target = work / f"{source}.o"
        flags = ("-std=gnu11", "-O2", "-g", "-fPIC", *WARNINGS, f"-I{LIBRARIES}", f"-I{include}")
        compile_or_say("gcc", *flags, "-c", str(LIBRARIES / source), "-o", str(target))
        objects.append(str(target))
        defined |= exported(target)
    answer = NOT_SUPPORTED if library.stem in ("libcudart", "libcuda") else 0
    missing = sorted(library.symbols - defined)
    empty = work / f"{library.stem}-empty.c"
    empty.write_text(EMPTY % answer + "".join(f"EMPTY({name})\n" for name in missing))
    script = work / f"{library.stem}.map"
    script.write_text(f"{library.version} {{ global: *; }};\n")
    core = [] if library.stem == "libcudart" else [f"-L{out}", f"-l:{next(out.glob('libcudart.so.*')).name}"]
    # old-style rpath, so that it holds for what these libraries load in turn; the compiler need not know CUDA's types
    links = ("-Wl,--no-as-needed", *core, "-Wl,--disable-new-dtags,-rpath,$ORIGIN", "-ldl", "-lpthread")
    named = (f"-Wl,-soname,{library.soname}", f"-Wl,--version-script={script}")
    target = out / library.soname
    compile_or_say("gcc", "-shared", "-fPIC", "-w", "-o", str(target), str(empty), *objects, *named, *links)


def library_folder(site: Path) -> Path:
    """Where PyTorch's CUDA wheel looks for the CUDA runtime: the one place that all of the stand-in goes to."""
    runtime = next(path for path in (site / "torch" / "lib").glob("libc10_cuda.so"))
    soname = re.search(r"NEEDED.*\[(libcudart\.so\.(\d+).*)\]", output("readelf", "-d", str(runtime)))
    assert soname, "PyTorch's CUDA build is linked to the CUDA runtime"
    return site / "nvidia" / ("cuda_runtime" if soname[2] == "12" else "cu13") / "lib"


def build_libraries(site: Path, include: Path) -> None:
    """All libraries into their folder, which is replaced whole."""
    folder = library_folder(site)
    out, work = folder.with_name("lib.new"), folder.with_name("work")
    for made in (out, work):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
    libraries = wanted(site / "torch" / "lib")
    runtime = next(library for library in libraries.values() if library.stem == "libcudart")
    build_library(runtime, out, work, include)
    # the driver's functions are written in the runtime: two libraries cannot both keep the table of memory
    libraries["libcuda.so.1"].symbols -= exported(out / runtime.soname, "-D")
    for library in libraries.values():
        if library is not runtime:
            build_library(library, out, work, include)
    shutil.rmtree(folder, ignore_errors=True)
    out.rename(folder)
    shutil.rmtree(work)


def build_arithmetic(site: Path) -> None:
    """The library that gives CUDA's operators their numbers; PyTorch before 2.9 has no way to the kernel it wraps."""
    torch, lib = site / "torch", library_folder(site)
    if WAY_TO_KERNELS not in (torch / "include" / "ATen" / "core" / "dispatch" / "Dispatcher.h").read_text():
        print("no arithmetic with this PyTorch: what CUDA's operators leave is what lay in memory", flush=True)
        return
    runtime = next(lib.glob("libcudart.so.*")).name
    include = (f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include")
    links = (f"-L{torch}/lib", "-ltorch", "-ltorch_cpu", "-lc10", f"-L{lib}", f"-l:{runtime}", f"-Wl,-rpath,{lib}")
    target = site / "libstandin_math.so"
    source = str(LIBRARIES / "arithmetic.cpp")
    new = target.with_suffix(".new")
    compile_or_say("g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-o", str(new), source, *include, *links)
    new.rename(target)


def write_metadata(folder: Path, name: str, version: str, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: the stand-in takes its place\n"
    for file, content in {"METADATA": text, "INSTALLER": "standin\n", "RECORD": "", **files}.items():
        (folder / file).write_text(content)


def install_hook(site: Path) -> None:
    """Has `import torch` load the arithmetic."""
    shutil.copyfile(HOOK, site / "standin_hook.py")
    entry = "[torch.backends]\nstandin = standin_hook:load\n"
    write_metadata(site / "standin_hook-1.dist-info", "standin-hook", "1", **{"entry_points.txt": entry})


def write_nvidia_metadata(site: Path) -> None:
    """The metadata of the NVIDIA packages that PyTorch asks for; without it they are rightly said to be missing."""
    asked = next(site.glob("torch-*.dist-info/METADATA")).read_text()
    row = r"^Requires-Dist: ((?:nvidia|cuda)-[\w-]+)(?:\[[\w,-]*\])?==([\d.]+)"
    for name, version in re.findall(row, asked, re.M):
        write_metadata(site / f"{name.replace('-', '_')}-{version}.dist-info", name, version)


def build(site: Path, include: Path) -> None:
    """The whole stand-in, for the PyTorch in `site`, with the CUDA headers in `include`."""
    build_libraries(site, include)
    build_arithmetic(site)
    install_hook(site)
    write_nvidia_metadata(site)


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
