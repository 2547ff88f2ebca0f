import platform
import re
import shutil
import subprocess

import pytest

from gpudoc.bench import machine_code
from gpudoc.bench.machine_code import ACCUMULATORS, ADDS_PER_TURN, FMAS_PER_TURN, UNITS, assemble, load

MNEMONIC = {
    "fma256": ("vfmadd231ps", "ymm"),
    "fma512": ("vfmadd231ps", "zmm"),
    "bf16_256": ("vdpbf16ps", "ymm"),
    "bf16_512": ("vdpbf16ps", "zmm"),
}


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs the assembler of gcc")
@pytest.mark.parametrize("unit", ["adds", *UNITS])
def test_the_bytes_are_what_the_assembler_writes(unit, tmp_path):
    if unit == "adds":
        body = ["add rax, rax"] * ADDS_PER_TURN
        lines = ["1:", *body, "dec rdi", ".byte 0x0f, 0x85; .long 1b - . - 4", "ret"]
    else:
        name, width = MNEMONIC[unit]
        clear = [f"vpxor xmm{r}, xmm{r}, xmm{r}" for r in range(16)]
        body = [f"{name} {width}{r}, {width}14, {width}15" for r in range(ACCUMULATORS)]
        turns = body * (FMAS_PER_TURN // ACCUMULATORS)
        lines = [*clear, "1:", *turns, "dec rdi", ".byte 0x0f, 0x85; .long 1b - . - 4", "vzeroupper", "ret"]
    source = tmp_path / "unit.s"
    source.write_text(".intel_syntax noprefix\n" + "\n".join(lines) + "\n")
    subprocess.run(["gcc", "-c", source, "-o", tmp_path / "unit.o"], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", tmp_path / "unit.o", tmp_path / "unit.bin"], check=True)
    # the assembler has two ways to write a move of registers without REX bits; ours is the same or disassembles alike
    assert disassemble(assemble(unit), tmp_path) == disassemble((tmp_path / "unit.bin").read_bytes(), tmp_path)


def disassemble(code, folder):
    path = folder / "code.bin"
    path.write_bytes(code)
    command = ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", "--no-show-raw-insn", path]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # addresses differ where an encoding is longer, so that only the instructions are compared
    return [re.sub(r"0x[0-9a-f]+", "", line.split(":", 1)[1]).strip() for line in text.splitlines() if ":\t" in line]


@pytest.mark.skipif(machine_code.runs_here() != "", reason="machine code for x86-64")
def test_a_loop_runs_as_often_as_it_is_told():
    loop = load("adds")
    assert loop.run(1) is not None
    assert loop.run(1000) is not None


def test_other_machines_are_refused(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "aarch64" in machine_code.runs_here()


def test_adds_have_no_vector_instruction():
    with pytest.raises(ValueError, match="adds"):
        machine_code._multiply_add("adds", 0)
