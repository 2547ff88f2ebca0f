"""Causes in the software environment: torch's build, compiled packages, shared libraries, Python."""

from __future__ import annotations

from gpudoc.doctor.model import Cause, Remedy, Setting
from gpudoc.doctor.remedies import always, do, install, remove, torch_build

_START = "https://pytorch.org/get-started/locally/"
_VISION = "https://github.com/pytorch/vision#installation"
_LOADER = "https://man7.org/linux/man-pages/man8/ld.so.8.html"


def _clean_library_path(setting: Setting) -> tuple[Remedy, ...]:
    return (
        do(
            "See which libraries are really loaded.",
            "LD_DEBUG=libs python -c 'import torch; torch.cuda.init()' 2>&1 | grep -e cudnn -e cublas -e nvJitLink",
        ),
        do("Run without the path, as torch brings its own libraries.", "unset LD_LIBRARY_PATH"),
        do(
            "Reinstall torch if a package was overwritten.",
            install(setting, "--force-reinstall --no-cache-dir torch"),
        ),
    )


def _matching_vision(setting: Setting) -> tuple[Remedy, ...]:
    return (
        do(
            "Install both from one index in one command, so that they belong together.",
            install(setting, "--upgrade --force-reinstall torch torchvision torchaudio"),
        ),
        do(
            "Check that the two versions match.",
            'python -c "import torch, torchvision; print(torch.__version__, torchvision.__version__)"',
        ),
    )


def _rebuild(setting: Setting) -> tuple[Remedy, ...]:
    return (
        do("Install a wheel of the extension built for this torch and CUDA; its release page names them."),
        do(
            "Build it here instead, against the installed torch.",
            install(setting, "--no-build-isolation --no-cache-dir --force-reinstall --no-deps PACKAGE"),
        ),
    )


def _one_generation(setting: Setting) -> tuple[Remedy, ...]:
    return (
        do(
            "See what is there twice.",
            "pip list | grep -i -e nvidia -e cuda -e torch; conda list 2>/dev/null | grep -i -e cuda -e torch",
        ),
        do(
            "Remove the generation that torch does not use, then reinstall torch.",
            f"{remove(setting, 'torch torchvision torchaudio')}\n"
            "pip freeze | grep -o '^nvidia-[^=]*' | xargs pip uninstall -y\n"
            f"{install(setting, 'torch torchvision torchaudio')}",
        ),
    )


def _numpy_one(setting: Setting) -> tuple[Remedy, ...]:
    quoted = "'numpy<2'"
    return (
        do("Go back to NumPy 1 until every compiled package supports 2.", install(setting, quoted)),
        do("Update torch and the package in the traceback instead.", install(setting, "--upgrade torch")),
    )


def _matching_triton(setting: Setting) -> tuple[Remedy, ...]:
    return (
        do(
            "Remove Triton and let torch install the one that it pins.",
            f"{remove(setting, 'triton pytorch-triton')}\n{install(setting, '--force-reinstall torch')}",
        ),
    )


def _other_python(setting: Setting) -> tuple[Remedy, ...]:
    steps = {
        "uv": "uv venv --python 3.12 && uv pip install torch",
        "conda": "conda create -n train python=3.12 && conda activate train && pip install torch",
    }
    return (
        do(
            "Use a Python that this torch has wheels for.",
            steps.get(setting.packager, "python3.12 -m venv .venv && .venv/bin/pip install torch"),
        ),
        do("Install a torch version that has wheels for your Python instead.", install(setting, "--upgrade torch")),
    )


def _missing_library(setting: Setting) -> tuple[Remedy, ...]:
    return (
        do(
            "Reinstall torch with all that it depends on.",
            install(setting, "--force-reinstall --no-cache-dir torch"),
        ),
        do(
            "Check that the library is there.",
            "find $(python -c 'import site; print(site.getsitepackages()[0])')/nvidia -name '*.so*' | head -40",
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        id="cpu_only_torch",
        family="environment",
        title="The installed torch is a build without CUDA",
        meaning="the installed torch is a CPU-only build (default wheel, conda cpu variant, or a fallback)",
        why="It cannot use any GPU, whatever driver and toolkit are installed.",
        fix=torch_build,
        sources=(_START,),
        explains=(
            "no_gpu_on_machine",
            "training_on_cpu",
            "half_on_cpu",
            "driver_missing_or_not_loaded",
            "invalid_device_ordinal",
        ),
    ),
    Cause(
        id="gpu_newer_than_wheel_archs",
        family="environment",
        title="The GPU is newer than any kernel in this torch",
        meaning="the GPU's compute capability is newer than any kernel in the wheel",
        why="torch finds the GPU and has no code for it: the first kernel fails.",
        fix=torch_build,
        sources=(_START, "https://developer.nvidia.com/cuda-gpus"),
        explains=("extension_missing_arch", "gpu_older_than_wheel_archs"),
    ),
    Cause(
        id="gpu_older_than_wheel_archs",
        family="environment",
        title="This torch no longer supports the GPU's generation",
        meaning="the wheel (or its CUDA generation) has dropped the GPU's compute capability",
        why="torch finds the GPU and has no code for it any more: the first kernel fails.",
        fix=torch_build,
        sources=(_START, "https://developer.nvidia.com/cuda-gpus"),
        explains=("extension_missing_arch", "gpu_newer_than_wheel_archs"),
    ),
    Cause(
        id="wrong_accelerator_build",
        family="environment",
        title="This torch is built for another vendor's GPU",
        meaning="torch is built for another vendor's GPU than the one in the machine",
        why="A CUDA build sees no AMD or Intel GPU, a ROCm build no NVIDIA GPU.",
        fix=always(
            do(
                "Install this build for an NVIDIA GPU.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126",
            ),
            do(
                "Install this build for an AMD GPU on Linux.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/rocm6.4",
            ),
            do(
                "Install this build for an Intel GPU.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/xpu",
            ),
        ),
        sources=(_START,),
        explains=(
            "cpu_only_torch",
            "no_gpu_on_machine",
            "driver_missing_or_not_loaded",
            "driver_too_old",
            "training_on_cpu",
        ),
    ),
    Cause(
        id="jetson_generic_wheel",
        family="environment",
        title="A generic wheel is installed on a Jetson",
        meaning="generic aarch64 wheel on a Jetson, which needs NVIDIA's own wheel",
        why="The integrated GPU of a Jetson needs a build for its own CUDA and capability.",
        fix=always(
            do(
                "Remove this wheel, and install NVIDIA's for your JetPack version.",
                "pip uninstall -y torch torchvision",
            ),
            do("Use a container made for Jetson instead (l4t-pytorch)."),
        ),
        sources=("https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform/index.html",),
        explains=(
            "cpu_only_torch",
            "no_gpu_on_machine",
            "bundled_cuda_library_missing",
            "driver_missing_or_not_loaded",
            "gpu_newer_than_wheel_archs",
            "gpu_older_than_wheel_archs",
            "driver_too_old",
            "training_on_cpu",
        ),
    ),
    Cause(
        id="torchvision_torch_mismatch",
        family="environment",
        title="torchvision does not match the installed torch",
        meaning="torchvision does not belong to the installed torch (or is CPU-only beside a CUDA torch)",
        why="Its compiled operators load only into the torch they were built with.",
        fix=_matching_vision,
        sources=(_VISION,),
        explains=("extension_torch_abi_mismatch", "mixed_cuda_packages"),
    ),
    Cause(
        id="mixed_cuda_packages",
        family="environment",
        title="CUDA packages of two generations are installed together",
        meaning=(
            "CUDA packages of two generations (cu11/cu12/cu13, or conda cudatoolkit plus pip) are installed together"
        ),
        why="Which library is loaded depends on the import order; errors look like faults of cuDNN or cuBLAS.",
        fix=_one_generation,
        sources=(_START,),
    ),
    Cause(
        id="library_path_shadows_bundled",
        family="environment",
        title="A library from the system or from conda is loaded instead of the one torch brings",
        meaning="a system or conda CUDA/cuDNN library is loaded instead of (or mixed with) the one torch brings",
        why="Libraries of one family must have one version; LD_LIBRARY_PATH is searched before torch's own folder.",
        fix=_clean_library_path,
        sources=("https://github.com/pytorch/pytorch/issues/119989", _LOADER),
        explains=("bundled_cuda_library_missing", "oom_masked_as_library_error", "extension_torch_abi_mismatch"),
    ),
    Cause(
        id="bundled_cuda_library_missing",
        family="environment",
        title="A CUDA library that torch expects beside itself is missing",
        meaning="an nvidia-* library that torch expects beside itself is missing or elsewhere",
        why="torch loads cuDNN, cuBLAS and others from the nvidia-* packages of its own environment.",
        fix=_missing_library,
        sources=("https://github.com/pytorch/pytorch/issues/88882",),
    ),
    Cause(
        id="extension_built_for_other_cuda",
        family="environment",
        title="A compiled package needs a different CUDA version than torch's build",
        meaning="a compiled package needs another CUDA major than torch's build",
        why="It asks for libcudart or libcublas of another major version, which is not in the environment.",
        fix=_rebuild,
        sources=("https://docs.pytorch.org/docs/stable/cpp_extension.html",),
        explains=("bundled_cuda_library_missing", "extension_torch_abi_mismatch", "cpu_only_torch"),
    ),
    Cause(
        id="extension_missing_arch",
        family="environment",
        title="A compiled package has no kernel for this GPU",
        meaning="a third-party extension has no kernel for this GPU while torch itself has",
        why="torch works, and the first call into the extension fails.",
        fix=lambda setting: (
            do(
                "Build the package for this GPU.",
                "export TORCH_CUDA_ARCH_LIST=$(python -c "
                "'import torch; print(*torch.cuda.get_device_capability(), sep=\".\")')\n"
                + install(setting, "--no-build-isolation --no-cache-dir --force-reinstall --no-deps PACKAGE"),
            ),
            do("Switch it off instead, where the program can do without (attn_implementation='sdpa')."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/cpp_extension.html",),
    ),
    Cause(
        id="extension_torch_abi_mismatch",
        family="environment",
        title="A compiled package was built for another torch",
        meaning="compiled extension built for another torch (undefined C++ symbol)",
        why="torch's C++ interface changes with each release; a binary of another release does not load.",
        fix=_rebuild,
        sources=("https://docs.pytorch.org/docs/stable/cpp_extension.html",),
    ),
    Cause(
        id="numpy2_abi",
        family="environment",
        title="A package built for NumPy 1 runs with NumPy 2",
        meaning="torch or an extension built for NumPy 1 runs with NumPy 2",
        why="The binary interface changed: conversions between torch and NumPy fail or crash.",
        fix=_numpy_one,
        sources=("https://numpy.org/doc/stable/numpy_2_0_migration_guide.html",),
        explains=("windows_dll_dependency_missing",),
    ),
    Cause(
        id="triton_torch_mismatch",
        family="environment",
        title="Triton does not match the installed torch",
        meaning="Triton version does not belong to the torch version",
        why="torch.compile calls into Triton's inner parts, which change between versions.",
        fix=_matching_triton,
        sources=("https://github.com/pytorch/pytorch/blob/main/.ci/docker/triton_version.txt",),
    ),
    Cause(
        id="glibc_too_old",
        family="environment",
        title="The system's C library (glibc) is too old for the binaries",
        meaning="the system's glibc is older than the binaries need",
        why="glibc belongs to the distribution and cannot be replaced by pip or conda.",
        fix=lambda setting: (
            do("See which version is here.", "ldd --version | head -1"),
            do("Use a container of a newer distribution, or upgrade the system to one."),
            do(
                "Install the last torch for it instead: 2.5 and older need only glibc 2.17.",
                install(setting, "'torch<2.6'"),
            ),
        ),
        sources=("https://github.com/pytorch/pytorch/issues/123649", "https://peps.python.org/pep-0600/"),
        explains=("libstdcxx_too_old",),
    ),
    Cause(
        id="libstdcxx_too_old",
        family="environment",
        title="The system's older libstdc++ is loaded",
        meaning="an older system libstdc++ is loaded (GLIBCXX not found)",
        why="A compiled package needs a newer C++ library than the first one on the search path.",
        fix=lambda setting: (
            (
                do(
                    "Install a newer one from conda-forge, and let it be found first.",
                    "conda install -c conda-forge 'libstdcxx-ng>=12' && export "
                    "LD_LIBRARY_PATH=$CONDA_PREFIX/lib:$LD_LIBRARY_PATH",
                ),
                do(
                    "Install the distribution's newer compiler runtime instead.",
                    "sudo apt install libstdc++6",
                    root=True,
                ),
            )
            if setting.packager == "conda"
            else (
                do(
                    "See which versions the system's libstdc++ has.",
                    "strings /usr/lib/x86_64-linux-gnu/libstdc++.so.6 | grep GLIBCXX | tail -3",
                ),
                do("Install a newer compiler runtime.", "sudo apt install libstdc++6", root=True),
            )
        ),
        sources=("https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html",),
    ),
    Cause(
        id="libcuda_not_linkable",
        family="environment",
        title="The linker finds no libcuda.so",
        meaning="no libcuda.so link name for the linker (Triton launcher build fails)",
        why="The driver installs libcuda.so.1; Triton's small launcher is linked against the name without number.",
        fix=always(
            do(
                "Make the link where ldconfig finds the library.",
                "sudo ln -s $(ldconfig -p | awk '/libcuda.so.1/{print $NF; exit}') "
                "/usr/lib/x86_64-linux-gnu/libcuda.so && sudo ldconfig",
                root=True,
            ),
            do("Name the folder instead, if you are not root.", "export TRITON_LIBCUDA_PATH=/usr/lib/x86_64-linux-gnu"),
        ),
        sources=("https://github.com/triton-lang/triton/issues/2507",),
    ),
    Cause(
        id="windows_dll_dependency_missing",
        family="environment",
        title="A DLL that torch depends on is missing or does not load",
        meaning="a DLL that torch depends on is missing on Windows (WinError 126)",
        why="The named DLL is there; one that it needs in turn is not: the Visual C++ runtime or OpenMP.",
        fix=lambda setting: (
            do("Install the Visual C++ redistributable and restart.", "winget install Microsoft.VCRedist.2015+.x64"),
            do("Reinstall torch after that.", install(setting, "--force-reinstall --no-cache-dir torch")),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/windows.html",),
    ),
    Cause(
        id="python_unsupported_by_wheel",
        family="environment",
        title="This torch has no wheel for this Python",
        meaning="no wheel of the wanted torch exists for this Python version",
        why="Each torch release has wheels for a range of Python versions and platforms only.",
        fix=_other_python,
        sources=("https://github.com/pytorch/pytorch/blob/main/RELEASE.md",),
    ),
    Cause(
        id="mps_macos_too_old",
        family="environment",
        title="Apple's MPS backend needs a newer macOS",
        meaning="Apple MPS backend needs a newer macOS",
        why="Each torch release raises the oldest macOS on which it can use the GPU.",
        fix=lambda setting: (
            do("Update macOS to 14 or newer."),
            do("Install an older torch instead.", install(setting, "'torch<2.9'")),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/mps.html",),
        explains=("no_gpu_on_machine", "cpu_only_torch"),
    ),
)
