from __future__ import annotations

import json

import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.model import KernelCheck, Machine, TorchBuild
from gpudoc.facts.readers import intake


def test_a_missing_file_a_directory_and_a_secret_one_are_three_clear_answers(tmp_path):
    with pytest.raises(GpudocError, match="no such file"):
        intake.load(tmp_path / "none.log")
    with pytest.raises(GpudocError, match="is a directory"):
        intake.load(tmp_path)
    with pytest.raises(GpudocError, match=r"cannot read|no such file"):
        intake.load(tmp_path / ("x" * 5000))


def test_several_texts_are_one_machine_and_every_line_says_where_it_stands():
    reading = intake.read_all([("env.txt", b"PyTorch version: 2.1.0+cu118\n"), ("train.log", b"\nRuntimeError: x\n")])
    assert reading.origins["torch.version"] == "env.txt line 1"
    assert reading.text.lines[-1].origin == "train.log line 2"


def test_one_text_cites_plain_line_numbers():
    assert intake.read_all([("env.txt", b"PyTorch version: 2.1.0")]).origins["torch.version"] == "line 1"


def test_the_words_of_a_live_torch_are_read_and_silence_is_none():
    torch = TorchBuild(
        import_error="ImportError: libcudnn.so.9: cannot open shared object file",
        kernel_checks=(KernelCheck(device=1, ran=False, error="no kernel image"),),
    )
    reading = intake.read_machine(Machine(torch=torch))
    assert [line.origin for line in reading.text.lines] == ["torch import", "kernel on GPU 1"]
    assert intake.read_machine(Machine()) is None


def test_own_documents_are_told_from_other_json():
    assert intake.read_document(json.dumps({"schema": "gpudoc.doctor.v1"}).encode()) is not None
    assert intake.read_document(b'{"schema": "other.v1"}') is None
    assert intake.read_document(b'{"schema": "gpudoc.doctor.v1", broken') is None
    assert intake.read_document(b"[1, 2]") is None
