"""What a profile says of machine and workload, and digests that differ when a bit does."""

from __future__ import annotations

import json

import torch

from gpudoc.facts.host import num_cpus
from gpudoc.train.start.identity import digest, hardware_here, input_signature, workload_key
from gpudoc.workload.build import load_workload
from tests.train.support import write_workload

CPU = torch.device("cpu")


def test_the_key_says_what_was_trained_and_nothing_of_where(tmp_path):
    workload = load_workload(str(write_workload(tmp_path)))
    key = workload_key(workload, workload.build_model())
    assert key.inputs == "float32[8], float32[1]"
    assert str(tmp_path) not in json.dumps(key.model_dump())
    wider = load_workload(str(write_workload(tmp_path, model={"hidden": 99})))
    assert workload_key(wider, wider.build_model()).model != key.model


def test_asking_for_shapes_draws_nothing(tmp_path):
    workload = load_workload(str(write_workload(tmp_path, data={"draw": "torch"})))
    torch.manual_seed(1)
    before = torch.get_rng_state()
    input_signature(workload)
    assert torch.equal(before, torch.get_rng_state())


def test_the_hardware_is_this_machines():
    found = hardware_here(CPU, limit_bytes=1 << 30)
    assert found.device == "cpu"
    assert found.memory_bytes == 1 << 30
    assert found.torch == torch.__version__
    assert 1 <= num_cpus() == found.cpu_cores


def test_a_switch_that_limits_the_instructions_of_a_cpu_is_a_part_of_the_hardware(monkeypatch):
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    used = torch.backends.cpu.get_cpu_capability()
    assert hardware_here(CPU).instructions == used
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    limited = hardware_here(CPU)
    assert limited.instructions == f"{used} ONEDNN_MAX_CPU_ISA=SSE41"
    assert limited.title.endswith(f"{used} ONEDNN_MAX_CPU_ISA=SSE41")


def test_a_digest_sees_every_bit_type_and_shape():
    base = {"a": torch.zeros(4), "b": [1, {"c": torch.ones(2, dtype=torch.bfloat16)}]}
    same = {"b": [1, {"c": torch.ones(2, dtype=torch.bfloat16)}], "a": torch.zeros(4)}
    assert digest(base) == digest(same)
    flipped = torch.zeros(4)
    flipped[3] = -0.0
    others = [torch.zeros(2, 2), torch.zeros(4, dtype=torch.int32), flipped]
    assert len({digest({**base, "a": other}) for other in others} | {digest(base)}) == 4
