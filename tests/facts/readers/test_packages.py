from __future__ import annotations

from gpudoc.facts.readers import read


def packages(text):
    found = read(text).machine.python.packages
    return {(p.name, p.version, p.channel) for p in found}


def test_pip_freeze_pip_list_and_conda_list_say_the_same():
    assert packages("torch==2.1.0\nnvidia-cudnn-cu12==8.9.2.26\n") == {
        ("torch", "2.1.0", "pip"),
        ("nvidia-cudnn-cu12", "8.9.2.26", "pip"),
    }
    assert ("torchvision", "0.16.0+cu121", "pip") in packages(
        "Package            Version\n------------------ -------\ntorchvision        0.16.0+cu121\nwheel              0.41\n"
    )
    conda = read(
        "# Name                    Version                   Build  Channel\n"
        "pytorch                   2.1.0           py3.10_cuda11.8_cudnn8.7.0_0    pytorch\ncudatoolkit  11.8.0  h6a678d5_0\n"
    ).machine
    assert conda.torch.cuda_version == (11, 8)
    assert conda.torch.accelerator == "cuda"
    assert {p.channel for p in conda.python.packages} == {"conda"}


def test_collect_env_lists_both_channels():
    assert packages("[pip3] torch==2.0.1\n[conda] pytorch  2.1.0  cpu_py311h6d93b4c_0  conda-forge") == {
        ("torch", "2.0.1", "pip"),
        ("pytorch", "2.1.0", "conda"),
    }


def test_an_installation_log_and_uv_name_what_was_installed():
    assert ("torch", "2.6.0", "pip") in packages(
        "Successfully installed filelock-3.1 torch-2.6.0 nvidia-nccl-cu12-2.21.5"
    )
    assert ("torch", "2.7.1", "pip") in packages("Installed 3 packages in 2s\n + torch==2.7.1\n + triton==3.3.1")


def test_the_build_string_of_conda_tells_the_variant():
    machine = read("pytorch                   2.1.0           py3.11_cpu_0    pytorch").machine
    assert machine.torch.accelerator == "cpu"
