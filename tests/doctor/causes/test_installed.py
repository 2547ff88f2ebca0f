from __future__ import annotations

from functools import partial

import pytest

from gpudoc.doctor.causes import installed
from gpudoc.doctor.model import Evidence
from gpudoc.facts.model import Machine, Package
from gpudoc.facts.readers import read
from tests.machines.built import changed, found, machine

LINUX = '; platform_system == "Linux"'


def with_packages(*packages: Package) -> Machine:
    return changed(machine(), "python.packages", packages)


def torch(version: str = "2.6.0+cu124", *requires: str) -> Package:
    return Package(name="torch", version=version, location="/venv/lib", requires=requires)


def package(name: str, version: str, *requires: str, location: str = "/venv/lib") -> Package:
    return Package(name=name, version=version, location=location, requires=requires)


@pytest.mark.parametrize(
    ("vision", "pin", "wrong"),
    [
        ("0.21.0+cu124", "torch (==2.6.0)", False),
        ("0.21.0", "torch==2.6.0", False),
        ("0.20.1+cu124", "torch==2.5.1", True),
        ("0.21.0+cpu", "torch==2.6.0", True),
        ("0.21.0+cu124", "", False),
    ],
)
def test_torchvision_says_itself_for_which_torch_it_is(vision, pin, wrong):
    facts = with_packages(torch(), package("torchvision", vision, *([pin] if pin else [])))
    assert bool(found(installed.find_torchvision, facts)) is wrong


def test_pinned_libraries_missing_replaced_and_right():
    pins = [f"nvidia-cudnn-cu12==9.1.0.70{LINUX}", f"triton==3.2.0{LINUX} and platform_machine == 'x86_64'"]
    missing, differs = "bundled_cuda_library_missing", "cuda_library_version_differs"
    right = with_packages(torch("2.6.0", *pins), package("nvidia-cudnn-cu12", "9.1.0.70"), package("triton", "3.2.0"))
    wrong = with_packages(torch("2.6.0", *pins), package("nvidia-cudnn-cu12", "9.5.1.17"), package("triton", "3.1.0"))
    gone = with_packages(torch("2.6.0", *pins))

    def causes(facts: Machine) -> list[str]:
        asked = (missing, differs, "triton_torch_mismatch")
        return [cause for which in asked for cause, _ in found(partial(installed.find_pins, cause=which), facts)]

    assert causes(right) == []
    assert causes(wrong) == [differs, "triton_torch_mismatch"]
    assert causes(gone) == [missing]


def test_pins_for_other_systems_do_not_count():
    facts = with_packages(
        torch("2.6.0", 'nvidia-x==1; platform_system == "Windows"', "nvidia-y==1; python_version < '3.9'")
    )
    assert found(partial(installed.find_pins, cause="bundled_cuda_library_missing"), facts) == []


def test_two_generations_of_one_library():
    mixed = with_packages(package("nvidia-cudnn-cu12", "9"), package("nvidia-cudnn-cu13", "9"))
    assert found(installed.find_mixed_generations, mixed) == [("mixed_cuda_packages", "warning")]
    apart = with_packages(
        package("nvidia-cudnn-cu12", "9"), package("nvidia-nccl-cu13", "2"), package("nvidia-cublas", "13")
    )
    assert found(installed.find_mixed_generations, apart) == []


def test_two_copies_shadow_each_other_only_when_they_differ():
    two = with_packages(torch(), package("torch", "2.4.0", location="/home/x/.local/lib"))
    assert found(installed.find_duplicates, two) == [("duplicate_packages", "warning")]
    same = with_packages(torch(), package("torch", "2.6.0+cu124", location="/home/x/.local/lib"))
    assert found(installed.find_duplicates, same) == []
    other = with_packages(package("requests", "1"), package("requests", "2", location="/x"))
    assert found(installed.find_duplicates, other) == []


@pytest.mark.parametrize(
    ("torch_version", "numpy", "wrong"), [("2.2.2", "2.0.0", True), ("2.3.0", "2.0.0", False), ("2.2.2", "1.26", False)]
)
def test_numpy_2_needs_torch_2_3(torch_version, numpy, wrong):
    facts = with_packages(torch(torch_version), package("numpy", numpy))
    assert bool(found(installed.find_numpy_abi, facts)) is wrong


def test_a_library_from_elsewhere_beside_torchs_own():
    brought = with_packages(torch(), package("nvidia-cudnn-cu12", "9"))
    own = "/venv/lib/nvidia/cudnn/lib/libcudnn.so.9"
    foreign = "/usr/local/cuda/lib64/libcudnn.so.8.9.7"
    assert found(installed.find_foreign_libraries, changed(brought, "torch.loaded_libraries", (own,))) == []
    both = changed(brought, "torch.loaded_libraries", (own, foreign))
    assert found(installed.find_foreign_libraries, both) == [("library_path_shadows_bundled", "warning")]
    # a torch that was built against the system's libraries brings none of its own
    system = changed(with_packages(torch("2.6.0a0+nv24")), "torch.loaded_libraries", (foreign,))
    assert found(installed.find_foreign_libraries, system) == []


def told(text: str) -> list[tuple[str, str, str]]:
    reading = read(text)
    evidence = Evidence(source="file", machine=reading.machine, reading=reading)
    finders = (installed.find_told_triton, installed.find_told_numpy)
    return [(one.id, one.severity, one.title) for find in finders for one in find(evidence)]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (
            "torch 2.4.1 with triton 3.2.0: torch.compile ends in an ImportError of inductor",
            "Triton 3.2 beside torch 2.4.1, which belongs to Triton 3.0",
        ),
        (
            "I pip installed triton 2.1 by hand, torch 2.4 asks for 3.0; now torch.compile ends in ImportError",
            "Triton 2.1 beside torch 2.4, which belongs to Triton 3.0",
        ),
        (
            "torch==2.6.0\ntriton==3.1.0\ntorch.compile fails",
            "Triton 3.1.0 beside torch 2.6.0, which belongs to Triton 3.2",
        ),
    ],
)
def test_a_text_that_names_torch_and_another_torchs_triton(text, title):
    assert told(text) == [("triton_torch_mismatch", "broken", title)]


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.6.0 with triton 3.2.0: torch.compile fails with an error of our own model",
        "torch 2.7.0.dev20250201+cu126 with triton 3.2.0: torch.compile fails with an error of our own model",
        "triton 3.2.0 fails to import",
        "torch 2.6.0, a model server called triton 24.1 fails",
    ],
)
def test_a_triton_that_belongs_to_its_torch_or_to_none_that_is_known(text):
    assert told(text) == []


def test_where_nothing_fails_another_triton_is_a_thing_to_know():
    assert [(cause, severity) for cause, severity, _ in told("torch==2.6.0\ntriton==3.1.0\nstep 4 loss 0.3")] == [
        ("triton_torch_mismatch", "info")
    ]


def test_two_distributions_of_triton_in_one_list():
    text = "torch.compile fails\n[pip3] pytorch-triton==3.1.0+cf34004b8a\n[pip3] triton==3.0.0\n[pip3] torch==2.5.0\n"
    assert [cause for cause, *_ in told(text)] == ["triton_torch_mismatch"]


def test_a_text_that_names_numpy_2_and_a_torch_from_before_it():
    text = "Since numpy was upgraded to {numpy} importing torch {torch} prints a huge warning"
    assert told(text.format(numpy="2.0.1", torch="2.1.0")) == [
        ("numpy2_abi", "broken", "NumPy 2.0 beside torch 2.1.0, which was built for NumPy 1")
    ]
    assert told(text.format(numpy="2.0.1", torch="2.3.0")) == []
    assert told(text.format(numpy="1.26.4", torch="2.1.0")) == []
    assert told("torch 2.1.0 wants numpy<2.0") == []


def test_a_conda_torch_pins_nothing_and_its_triton_is_held_against_the_table():
    conda = Package(name="torch", version="2.6.0", location="/conda/lib", channel="conda")
    assert found(installed.find_triton, with_packages(conda, package("triton", "3.1.0"))) == [
        ("triton_torch_mismatch", "warning")
    ]
    assert found(installed.find_triton, with_packages(conda, package("triton", "3.2.0"))) == []
    pinned = torch("2.6.0", f"triton==3.1.0{LINUX}")
    assert found(installed.find_triton, with_packages(pinned, package("triton", "3.1.0"))) == []
