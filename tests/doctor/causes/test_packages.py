from functools import partial

import pytest

from gpudoc.doctor.causes import packages
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
PINNED = {cause: partial(packages.find_pins, cause=cause) for cause in (MISSING, DIFFERS, TRITON_CAUSE)}
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
    *((packages.find_torchvision, having(torch(), package("torchvision", v, *([pin] if pin else []))), "") for v, pin in VISION),
    *((packages.find_torchvision, having(torch(), package("torchvision", v, pin)), "torchvision_torch_mismatch broken") for v, pin in MISFIT),
])  # fmt: skip
test_pinned_libraries_missing_replaced_and_right = finds([
    *((find, RIGHT, "") for find in PINNED.values()),
    (PINNED[MISSING], WRONG, ""), (PINNED[DIFFERS], WRONG, f"{DIFFERS} warning"), (PINNED[TRITON_CAUSE], WRONG, f"{TRITON_CAUSE} warning"),
    (PINNED[MISSING], GONE, f"{MISSING} warning"), (PINNED[DIFFERS], GONE, ""), (PINNED[TRITON_CAUSE], GONE, ""),
    # pins for other systems do not count
    (PINNED[MISSING], ELSEWHERE, ""),
    # a conda torch pins nothing, and its triton is held against the table
    (packages.find_triton, having(CONDA, package("triton", "3.1.0")), f"{TRITON_CAUSE} warning"),
    (packages.find_triton, having(CONDA, package("triton", "3.2.0")), ""),
    (packages.find_triton, having(torch("2.6.0", f"triton==3.1.0{LINUX}"), package("triton", "3.1.0")), ""),
])  # fmt: skip
test_two_generations_two_copies_and_two_abis = finds([
    (packages.find_mixed_generations, having(package("nvidia-cudnn-cu12", "9"), package("nvidia-cudnn-cu13", "9")), "mixed_cuda_packages warning"),
    (packages.find_mixed_generations, having(package("nvidia-cudnn-cu12", "9"), package("nvidia-nccl-cu13", "2"), package("nvidia-cublas", "13")), ""),
    (packages.find_mixed_generations, having(torch(), package("pytorch", "2.1.0", channel="conda")), "mixed_cuda_packages warning"),
    # two copies shadow each other only when they differ
    (packages.find_duplicates, having(torch(), package("torch", "2.4.0", location="/home/x/.local/lib")), "duplicate_packages warning"),
    (packages.find_duplicates, having(torch(), package("torch", "2.6.0+cu124", location="/home/x/.local/lib")), ""),
    (packages.find_duplicates, having(package("requests", "1"), package("requests", "2", location="/x")), ""),
    (packages.find_numpy_abi, having(torch("2.2.2"), package("numpy", "2.0.0")), "numpy2_abi warning"),
    (packages.find_numpy_abi, having(torch("2.3.0"), package("numpy", "2.0.0")), ""),
    (packages.find_numpy_abi, having(torch("2.2.2"), package("numpy", "1.26")), ""),
])  # fmt: skip
test_a_library_from_elsewhere_beside_torchs_own = finds([
    (packages.find_foreign_libraries, loaded(BROUGHT, OWN), ""),
    (packages.find_foreign_libraries, loaded(BROUGHT, OWN, FOREIGN), "library_path_shadows_bundled warning"),
    # a torch that was built against the system's libraries brings none of its own
    (packages.find_foreign_libraries, loaded(having(torch("2.6.0a0+nv24")), FOREIGN), ""),
])  # fmt: skip
LISTED = [
    ("torch==2.6.0\ntriton==3.1.0\ntorch.compile fails", "triton_torch_mismatch"),
    ("torch==2.6.0\ntriton==3.2.0\ntorch.compile fails", ""),
    ("torch==2.7.0.dev20250201+cu126\ntriton==3.2.0", ""),
    ("torch==2.1.0\nnumpy==2.0.1", "numpy2_abi"),
    ("torch==2.3.0\nnumpy==2.0.1", ""),
    ("torch==2.3.1\ntorchvision==0.21.0", "torchvision_torch_mismatch"),
    ("torch==2.3.1\ntorchvision==0.18.1", ""),
    ("torch==2.6.0+cu124\ntorchvision==0.21.0+cu118", "torchvision_torch_mismatch"),
    ("triton 3.2.0 fails to import", ""),
    ("torch 2.1.0 wants numpy<2.0", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), LISTED)
def test_versions_that_a_text_lists_are_judged_as_those_of_this_machine(text, expected):
    finders = [one for one in packages.FINDERS if one.reads == "text" and one.id != "mixed_cuda_packages"]
    assert [f"{one.id} {one.severity}" for one in told(finders, text)] == ([f"{expected} warning"] if expected else [])
