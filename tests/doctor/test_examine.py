from __future__ import annotations

import json

import pytest

from gpudoc import patterns
from gpudoc.doctor import document
from gpudoc.doctor.examine import Request, examine, examine_machine, examine_text
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Driver, Gpu, Machine, TorchBuild
from tests.doctor.causes.judge import first_is, never, report_of, silent, unbroken

MACHINE = Machine(
    driver=Driver(module_version="550.54.15"), gpus=(Gpu(index=0, name="NVIDIA L4"),), torch=TorchBuild(version="2.6.0")
)


def saved(tmp_path, name, machine=MACHINE):
    path = tmp_path / name
    path.write_text(json.dumps(document.dump(examine_machine(machine))), encoding="utf-8")
    return str(path)


def test_a_log_and_a_report_of_the_environment_are_one_machine(tmp_path):
    env, log = tmp_path / "env.txt", tmp_path / "train.log"
    env.write_text(
        "PyTorch version: 2.6.0+cpu\nGPU models and configuration: GPU 0: NVIDIA L4\nNvidia driver version: 550.54.15"
    )
    log.write_text("AssertionError: Torch not compiled with CUDA enabled")
    report = examine(Request(sources=(str(env), str(log))))
    assert report.findings[0].id == "cpu_only_torch"
    assert {o.origin.split(" line")[0] for o in report.findings[0].evidence} == {"env.txt", "train.log"}
    assert report.seconds["total"] > 0


def test_one_saved_report_is_judged_anew_and_several_are_compared(tmp_path):
    one = saved(tmp_path, "a.json")
    assert examine(Request(sources=(one,))).source == "machine"
    import dataclasses

    other = saved(tmp_path, "b.json", dataclasses.replace(MACHINE, torch=TorchBuild(version="2.5.0")))
    report = examine(Request(sources=(one, other)))
    assert report.source == "fleet"
    assert report.findings[0].title.startswith("torch differs")


def test_a_text_beside_a_report_and_a_newer_schema_are_refused(tmp_path):
    log, newer = tmp_path / "x.log", tmp_path / "n.json"
    log.write_text("step 1 loss 2.0")
    newer.write_text('{"schema": "gpudoc.doctor.v9"}')
    with pytest.raises(GpudocError, match="is text, but"):
        examine(Request(sources=(str(log), saved(tmp_path, "a.json"))))
    with pytest.raises(GpudocError, match="v9"):
        examine(Request(sources=(str(newer),)))


def test_an_ignored_cause_is_not_found_and_a_misspelt_one_is_told_its_neighbour():
    text = [("x", b"Attempting to unscale FP16 gradients")]
    assert examine_text(text).findings
    left = examine_text(text, Request(ignore=("amp_fp16_params_with_scaler",)))
    assert "amp_fp16_params_with_scaler" not in [f.id for f in left.findings]
    with pytest.raises(GpudocError) as refused:
        examine(Request(ignore=("driver_to_old",)))
    assert "driver_too_old" in refused.value.hint


# what a table, a list of device files or a prompt shows, from the reader to the finding
TABLE = """| NVIDIA-SMI 550.90.07              Driver Version: 550.90.07      CUDA Version: 12.4     |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |             {ecc:>8} |
| N/A   33C    P0             61W /  400W |      87MiB /  81920MiB |     N/A      Default |
|                                         |                        | {mig:>20} |
{between}
| Processes:                                                                              |
|  No running processes found                                                             |
"""
SLICES = """| MIG devices:                                                                            |
| GPU  GI  CI  MIG |                                   Memory-Usage |        Vol|      Shared           |
|  0    7   0   0  |              12MiB /  9728MiB    | 14      0 |  1   0    0    0    0 |"""


NODES = (
    "$ ls /dev/nvidia*\n/dev/nvidia0  /dev/nvidiactl  /dev/nvidia-modeset{more}\n>>> torch.cuda.is_available()\nFalse"
)


def test_the_cards_of_the_table_are_those_with_errors():
    row = "|   {}  NVIDIA A100-SXM4-40GB          On  | 00000000:{}:00.0 Off |                   {} |"
    table = "\n".join(row.format(i, place, count) for i, (place, count) in enumerate((("07", 0), ("0B", 3), ("48", 2))))
    finding = next(f for f in report_of(f"NVIDIA-SMI 535.54.03\n{table}").findings if f.id == "gpu_ecc_error")
    assert [card.pci_address for card in finding.cards] == ["0000:0b:00.0", "0000:48:00.0"]
    assert any("-i 0000:0b:00.0,0000:48:00.0" in step.run for step in finding.fix)


test_what_a_table_or_a_list_shows_is_the_cause = first_is([
    ("gpu_ecc_error", TABLE.format(ecc=3, mig="Disabled", between="")),  # errors in the tables ecc column
    ("mig_enabled_no_instance", TABLE.format(ecc=0, mig="Enabled", between="")),  # mig without the table of its devices
    ("no_gpu_on_machine", 'File "/content/run/main.py", line 3\nRuntimeError: Found no NVIDIA driver on your system.'),
    ("no_gpu_on_machine", 'File "/kaggle/working/t.py", line 3\nRuntimeError: No CUDA GPUs are available'),
    ("no_gpu_on_machine", "00:02.0 VGA compatible controller: Cirrus Logic GD 5446\nnvidia-smi: command not found"),
    ("container_without_gpu_access", "trainer_1  | RuntimeError: Found no NVIDIA driver on your system.\nproject_trainer_1 exited with code 1"),
    ("container_without_gpu_access", "root@3f2a9c1b7d5e:/app# nvidia-smi\nbash: nvidia-smi: command not found"),
    ("vgpu_unlicensed", "VM with GRID T4-16Q: fast for the first 20 minutes, then ten times slower"),  # a virtual gpu that is held back
    ("vgpu_unlicensed", "| 0  NVIDIA A40-8C | after a while each kernel takes 100x longer"),  # a virtual gpu that is held back
    ("vgpu_unlicensed", "A16-2B: all CUDA-capable devices are busy or unavailable"),  # a virtual gpu that is held back
])  # fmt: skip
test_the_same_table_of_a_machine_that_is_well_names_nothing = never([
    ("mig_enabled_no_instance", TABLE.format(ecc=0, mig="Enabled", between=SLICES)),  # mig with its devices is well
    ("nvidia_uvm_missing", NODES.format(more="  /dev/nvidia-uvm  /dev/nvidia-uvm-tools")),  # device files without the one that cuda needs
    ("nvidia_uvm_missing", "nvidia_drm 69632 4\nnvidia_modeset 1146880 3 nvidia_drm\nnvidia 40800256 1 nvidia_uvm, nvidia_modeset\ncuda is not working"),  # loaded modules without the one that cuda needs
    ("no_gpu_on_machine", "VGA compatible controller: ASPEED\n3D controller: NVIDIA Corporation GA100\nRuntimeError: Found no NVIDIA driver"),  # a card in the same list is a gpu
    ("vgpu_unlicensed", "NVIDIA A40: fast for the first 20 minutes, then twice slower, 88 C"),  # a whole card that is slow is another matter
    ("vgpu_unlicensed", "HAMi vgpu scheduler on k8s: pods get slow after some minutes"),  # a whole card that is slow is another matter
    ("device_permission_denied", "crw-rw-rw- 1 root root 195, 0 /dev/nvidia0\nloss 0.1"),  # device files for a group
])  # fmt: skip
test_a_healthy_table_names_nothing_broken = silent(
    [TABLE.format(ecc=0, mig="Disabled", between="") + "step 10 loss 0.5"], seen=unbroken
)


def test_an_errors_own_words_in_quotes_are_read_where_no_such_file_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    for words in (said, f"{said}\n{'x' * 5000}"):
        report = examine(Request(sources=(words,)))
        assert (report.source, report.findings[0].id) == ("file", "oom_capacity")
    (tmp_path / said).write_text("epoch 1 step 2 loss 3.0")
    assert examine(Request(sources=(said,))).verdict == "healthy"


def test_words_without_quotes_are_one_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = examine(Request(sources=("CUDA", "error:", "uncorrectable", "ECC", "error", "encountered")))
    assert report.findings[0].id == "gpu_ecc_error"
    assert examine(Request(sources=("why", "is", "my", "gpu", "not", "used"))).verdict == "unknown"
    # a file among them, or a name of one, is meant as a file
    (tmp_path / "gpu").write_text("x")
    for sources in (("look", "at", "gpu"), ("see", "the", "train.log"), ("two", "words")):
        with pytest.raises(GpudocError, match=f"no such file: {sources[0]}"):
            examine(Request(sources=sources))


def test_a_command_in_the_place_of_a_file_leads_to_the_dashes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my job.py").write_text("")
    with pytest.raises(GpudocError, match="no such file: python; to watch a command, put it after --") as caught:
        examine(Request(sources=("python", "my job.py")))
    assert caught.value.hint == "gpudoc doctor -- python 'my job.py'"


@pytest.mark.parametrize("source", ["nothing", "no such.log", "/no such/report", "./my report"])
def test_a_name_of_a_file_that_is_missing_is_not_read_as_words(source):
    with pytest.raises(GpudocError, match="no such file") as refused:
        examine(Request(sources=(source,)))
    assert "in quotes" in refused.value.hint


def test_a_text_that_takes_too_long_is_not_called_healthy_and_the_report_says_what_was_left(monkeypatch):
    plain = "PyTorch version: 2.6.0+cu124\nIs CUDA available: True\n"
    assert examine_text([("ok.txt", plain.encode())]).verdict == "healthy"
    monkeypatch.setattr(patterns, "TEXT_S", 0.0)
    report = examine_text([("ok.txt", plain.encode())])
    assert report.verdict == "unknown"
    (skipped,) = [one for one in report.skipped if one.id == "signatures"]
    assert "took too long on this text" in skipped.because
    assert report.unexplained[0].value == skipped.because
