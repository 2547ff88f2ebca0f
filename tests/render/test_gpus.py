from __future__ import annotations

from gpudoc.facts.model import Absent, Gpu, GpuProcess, Link, Machine
from gpudoc.render.gpus import DASH, gpu_facts, gpu_table, holder_table, text_table
from tests.machines.built import GIB, gpu, machine


def test_a_row_for_each_gpu_with_what_is_measured():
    table = gpu_table(machine(gpu(0, power_w=612.4, power_limit_w=700.0), gpu(1)))
    assert table.rows[0] == ("0", "H100 80GB HBM3", "0.5/80.0", "34", "612/700", "210/1980", "1x16/5x16", "0", "0")
    assert table.rows[1][4] == f"{DASH}/700"


def test_what_is_unknown_is_a_dash_and_never_0():
    table = gpu_table(Machine(gpus=(Gpu(index=0, temperature_c=40), Gpu(index=1, name="NVIDIA L4"))))
    assert table.rows[0] == ("0", DASH, DASH, "40", DASH, DASH, DASH, DASH, DASH)
    assert table.rows[1] == ("1", "L4", *[DASH] * 7)


def test_names_alone_are_no_table():
    assert gpu_table(Machine(gpus=(Gpu(index=0, name="NVIDIA L4", memory_total_bytes=24 * GIB),))) is None
    assert gpu_table(Machine(gpus=())) is None
    assert gpu_table(Machine()) is None


def test_a_lost_gpu_says_so_in_its_row():
    table = gpu_table(machine(gpu(0), Gpu(index=1, lost=True, nvml_code=15)))
    assert table.rows[1][1] == f"{DASH} does not answer"


def test_ecc_that_is_off_and_links_known_in_part():
    row = gpu_table(machine(gpu(0, ecc_enabled=False, link=Link(width=8, width_max=16)))).rows[0]
    assert row[7] == "off"
    assert row[6] == f"{DASH}x8/{DASH}x16"


def test_lines_keep_to_the_width():
    wide = machine(*[gpu(n, name="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition") for n in range(8)])
    lines = text_table(gpu_table(wide), 80)
    assert len(lines) == 9
    assert max(map(len, lines)) <= 80
    assert "RTX PRO" in lines[3]


def test_holders_are_listed_with_what_stops_them_and_cut_to_the_first():
    held = GpuProcess(
        pid=7, memory_bytes=3 * GIB, user="ann", age_s=7200.0, command="python a.py", job="slurm 8", own=True
    )
    gone = GpuProcess(pid=8, alive=False)
    unknown = GpuProcess(pid=9, name=Absent("hidden"), alive=True)
    table = holder_table(machine(gpu(0, processes=(unknown, held, gone))))
    assert table.rows[0] == ("0", "7", "ann", "2 h 00 min", "3.0", "python a.py", "slurm 8", "yes")
    assert table.rows[1] == ("0", "9", *[DASH] * 6)
    assert len(table.rows) == 2
    assert holder_table(machine(gpu(0, processes=(held, unknown))), most=1).rows[1][5] == "1 more"
    assert holder_table(machine(gpu(0))) is None


def test_facts_are_said_once_where_all_agree():
    lines = gpu_facts(machine(gpu(0), gpu(1, temperature_c=50), gpu(2)))
    assert "GPU each temperature_slowdown_c: 87" in lines
    assert "GPU 1 temperature_c: 50" in lines
    assert "GPU 2 temperature_c: 34" in lines
    assert "GPU facts not known (not a virtual GPU): licensed" in lines
