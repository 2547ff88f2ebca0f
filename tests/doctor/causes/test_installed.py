from functools import partial

import pytest

from gpudoc.doctor.causes import installed
from gpudoc.facts.model import Machine, Package
from tests.doctor.causes.judge import finds, told
from tests.machines.built import changed, machine

LINUX = '; platform_system == "Linux"'
PINS = [f"nvidia-cudnn-cu12==9.1.0.70{LINUX}", f"triton==3.2.0{LINUX} and platform_machine == 'x86_64'"]


def having(*packages: Package) -> Machine:
    return changed(machine(), "python.packages", packages)


def package(name: str, version: str, *requires: str, location: str = "/venv/lib", **facts: str) -> Package:
    return Package(name=name, version=version, location=location, requires=requires, **facts)


def torch(version: str = "2.6.0+cu124", *requires: str) -> Package:
    return package("torch", version, *requires)


def loaded(facts: Machine, *libraries: str) -> Machine:
    return changed(facts, "torch.loaded_libraries", libraries)


MISSING, DIFFERS, TRITON_CAUSE = "bundled_cuda_library_missing", "cuda_library_version_differs", "triton_torch_mismatch"
PINNED = {cause: partial(installed.find_pins, cause=cause) for cause in (MISSING, DIFFERS, TRITON_CAUSE)}
RIGHT = having(torch("2.6.0", *PINS), package("nvidia-cudnn-cu12", "9.1.0.70"), package("triton", "3.2.0"))
WRONG = having(torch("2.6.0", *PINS), package("nvidia-cudnn-cu12", "9.5.1.17"), package("triton", "3.1.0"))
GONE = having(torch("2.6.0", *PINS))
ELSEWHERE = having(torch("2.6.0", 'nvidia-x==1; platform_system == "Windows"', "nvidia-y==1; python_version < '3.9'"))
VISION = [("0.21.0+cu124", "torch (==2.6.0)"), ("0.21.0", "torch==2.6.0"), ("0.21.0+cu124", "")]
MISFIT = [("0.20.1+cu124", "torch==2.5.1"), ("0.21.0+cpu", "torch==2.6.0")]
OWN, FOREIGN = "/venv/lib/nvidia/cudnn/lib/libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.8.9.7"
BROUGHT = having(torch(), package("nvidia-cudnn-cu12", "9"))
CONDA = package("torch", "2.6.0", location="/conda/lib", channel="conda")

test_torchvision_says_itself_for_which_torch_it_is = finds([
    *((installed.find_torchvision, having(torch(), package("torchvision", v, *([pin] if pin else []))), "") for v, pin in VISION),
    *((installed.find_torchvision, having(torch(), package("torchvision", v, pin)), "torchvision_torch_mismatch broken") for v, pin in MISFIT),
])  # fmt: skip
test_pinned_libraries_missing_replaced_and_right = finds([
    *((find, RIGHT, "") for find in PINNED.values()),
    (PINNED[MISSING], WRONG, ""), (PINNED[DIFFERS], WRONG, f"{DIFFERS} warning"), (PINNED[TRITON_CAUSE], WRONG, f"{TRITON_CAUSE} warning"),
    (PINNED[MISSING], GONE, f"{MISSING} warning"), (PINNED[DIFFERS], GONE, ""), (PINNED[TRITON_CAUSE], GONE, ""),
    # pins for other systems do not count
    (PINNED[MISSING], ELSEWHERE, ""),
    # a conda torch pins nothing, and its triton is held against the table
    (installed.find_triton, having(CONDA, package("triton", "3.1.0")), f"{TRITON_CAUSE} warning"),
    (installed.find_triton, having(CONDA, package("triton", "3.2.0")), ""),
    (installed.find_triton, having(torch("2.6.0", f"triton==3.1.0{LINUX}"), package("triton", "3.1.0")), ""),
])  # fmt: skip
test_two_generations_two_copies_and_two_abis = finds([
    (installed.find_mixed_generations, having(package("nvidia-cudnn-cu12", "9"), package("nvidia-cudnn-cu13", "9")), "mixed_cuda_packages warning"),
    (installed.find_mixed_generations, having(package("nvidia-cudnn-cu12", "9"), package("nvidia-nccl-cu13", "2"), package("nvidia-cublas", "13")), ""),
    # two copies shadow each other only when they differ
    (installed.find_duplicates, having(torch(), package("torch", "2.4.0", location="/home/x/.local/lib")), "duplicate_packages warning"),
    (installed.find_duplicates, having(torch(), package("torch", "2.6.0+cu124", location="/home/x/.local/lib")), ""),
    (installed.find_duplicates, having(package("requests", "1"), package("requests", "2", location="/x")), ""),
    (installed.find_numpy_abi, having(torch("2.2.2"), package("numpy", "2.0.0")), "numpy2_abi warning"),
    (installed.find_numpy_abi, having(torch("2.3.0"), package("numpy", "2.0.0")), ""),
    (installed.find_numpy_abi, having(torch("2.2.2"), package("numpy", "1.26")), ""),
])  # fmt: skip
test_a_library_from_elsewhere_beside_torchs_own = finds([
    (installed.find_foreign_libraries, loaded(BROUGHT, OWN), ""),
    (installed.find_foreign_libraries, loaded(BROUGHT, OWN, FOREIGN), "library_path_shadows_bundled warning"),
    # a torch that was built against the system's libraries brings none of its own
    (installed.find_foreign_libraries, loaded(having(torch("2.6.0a0+nv24")), FOREIGN), ""),
])  # fmt: skip
TRITON = "torch {} with triton {}: torch.compile fails with an error of our own model"
NUMPY = "Since numpy was upgraded to {} importing torch {} prints a huge warning"
SAID = [
    ("torch 2.4.1 with triton 3.2.0: torch.compile ends in an ImportError of inductor", "triton_torch_mismatch broken: Triton 3.2 beside torch 2.4.1, which belongs to Triton 3.0"),
    ("I pip installed triton 2.1 by hand, torch 2.4 asks for 3.0; now torch.compile ends in ImportError", "triton_torch_mismatch broken: Triton 2.1 beside torch 2.4, which belongs to Triton 3.0"),
    ("torch==2.6.0\ntriton==3.1.0\ntorch.compile fails", "triton_torch_mismatch broken: Triton 3.1.0 beside torch 2.6.0, which belongs to Triton 3.2"),
    # where nothing fails it is a thing to know
    ("torch==2.6.0\ntriton==3.1.0\nstep 4 loss 0.3", "triton_torch_mismatch info"),
    # two distributions of triton in one list
    ("torch.compile fails\n[pip3] pytorch-triton==3.1.0+cf34004b8a\n[pip3] triton==3.0.0\n[pip3] torch==2.5.0\n", "triton_torch_mismatch"),
    # a triton that belongs to its torch, or to none that is known
    (TRITON.format("2.6.0", "3.2.0"), ""),
    (TRITON.format("2.7.0.dev20250201+cu126", "3.2.0"), ""),
    ("triton 3.2.0 fails to import", ""),
    ("torch 2.6.0, a model server called triton 24.1 fails", ""),
    (NUMPY.format("2.0.1", "2.1.0"), "numpy2_abi broken: NumPy 2.0 beside torch 2.1.0, which was built for NumPy 1"),
    (NUMPY.format("2.0.1", "2.3.0"), ""),
    (NUMPY.format("1.26.4", "2.1.0"), ""),
    ("torch 2.1.0 wants numpy<2.0", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SAID)
def test_versions_that_a_text_names_are_held_against_each_other(text, expected):
    finders = [one for one in installed.FINDERS if one.reads == "text" and one.id != "mixed_cuda_packages"]
    said = [f"{one.id} {one.severity}: {one.title}" for one in told(finders, text)]
    assert len(said) == bool(expected)
    assert not expected or said[0].startswith(expected)
