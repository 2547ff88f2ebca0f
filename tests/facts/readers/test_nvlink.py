from __future__ import annotations

import pytest

from gpudoc.facts.model import Absent
from gpudoc.facts.readers import read
from gpudoc.facts.readers.intake import read_all


def status(*active, total=18, name="NVIDIA H100 80GB HBM3"):
    rows = []
    for gpu, up in enumerate(active):
        rows.append(f"GPU {gpu}: {name} (UUID: GPU-0000{gpu}-aa)")
        rows += [f"\t Link {link}: {'26.562 GB/s' if link < up else '<inactive>'}" for link in range(total)]
    return "\n".join(rows)


def links(text):
    return [(gpu.index, gpu.nvlink_active, gpu.nvlink_total) for gpu in read(text).machine.gpus]


def test_nvidia_smi_counts_links_up_and_known():
    assert links(status(18, 16)) == [(0, 18, 18), (1, 16, 18)]


def test_all_links_inactive_is_none_up():
    text = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1a)\nNVML: Unable to retrieve NVLink information as all links are inActive"
    assert links(text) == [(0, 0, 0)]


def test_dcgmi_tells_down_from_not_there():
    text = """+----------------------+
|  NvLink Link Status  |
+----------------------+
GPUs:
    gpuId 0:
        U U U U D U _ _ _ _ _ _
    gpuId 1:
        D D D D D D _ _ _ _ _ _
NvSwitches:
    physicalId 11:
        X X U U X X X X
Key: Up=U, Down=D, Disabled=X, Not Supported=_
"""
    assert links(text) == [(0, 5, 6), (1, 0, 6)]


def counters(text):
    tests = read(text).machine.tests
    return [] if isinstance(tests, Absent) else [(t.gpu, t.name, t.result) for t in tests if t.result != "pass"]


def test_counters_that_are_a_fault_and_those_that_are_not():
    text = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1a)
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 12
GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-1b)
\t Link 7: Replay Errors: 0
\t Link 7: Recovery Errors: 2
\t Link 7: CRC Errors: 65535
"""
    assert counters(text) == [(3, "link 7 recovery", "warn"), (3, "link 7 crc", "warn")]


def test_counters_of_dcgm():
    text = """+------------------------------+--------------------------------------------------+
| NVLINK Error Counts                                                             |
| GPU 2                                                                           |
+==============================+==================================================+
| Link 0                       |                                                  |
| -> CRC FLIT Error            | 0                                                |
| -> Replay Error              | 0                                                |
| Link 5                       |                                                  |
| -> Replay Error              | 31                                               |
+------------------------------+--------------------------------------------------+
"""
    assert counters(text) == [(2, "link 5 replay", "warn")]


def matrix(*rows):
    head = "\t" + "\t".join(f"GPU{n}" for n in range(len(rows))) + "\tCPU Affinity\tNUMA Affinity"
    return "\n".join([head, *(f"GPU{n}\t{row}\t0-31\t0" for n, row in enumerate(rows))])


def test_the_matrix_behind_switches_and_without_them():
    switched = matrix("X\tNV18\tNV18\tSYS", "NV18\tX\tNV18\tSYS", "NV18\tNV18\tX\tSYS", "SYS\tSYS\tSYS\tX")
    assert [gpu.nvlink_active for gpu in read(switched).machine.gpus] == [18, 18, 18, 0]
    direct = matrix("X\tNV1\tNV2\tSYS", "NV1\tX\tNV1\tNV2", "NV2\tNV1\tX\tNV1", "SYS\tNV2\tNV1\tX")
    assert [gpu.nvlink_active for gpu in read(direct).machine.gpus] == [3, 4, 4, 3]
    plain = read(matrix("X\tSYS", "SYS\tX"))
    assert isinstance(plain.machine.gpus, Absent)
    assert "gpu_topology" in plain.recognised


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_other_line_ends_and_cuts_give_no_links_to_the_wrong_gpu(end):
    text = status(18, 18, 0).replace("\n", end)
    assert [up for _, up, _ in links(text)] == [18, 18, 0]
    lines = text.split(end)
    gap = end.join([*lines[:10], "", *["..." * 3] * 1, *lines[30:]])
    assert all(up <= 18 for _, up, _ in links(gap) if not isinstance(up, Absent))


def test_links_of_another_input_are_not_those_of_the_gpu_above():
    first, second = b"GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n", b"\t Link 0: <inactive>\n\t Link 1: <inactive>\n"
    assert isinstance(read_all([("a", first), ("b", second)]).machine.gpus[0].nvlink_active, Absent)
