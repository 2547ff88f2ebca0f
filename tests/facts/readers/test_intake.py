from __future__ import annotations

import ast
import gzip
import io
import json
import os
import subprocess
import tracemalloc
from importlib import import_module
from pathlib import Path

import pytest

from gpudoc.errors import GpudocError
from gpudoc.facts.model import KernelCheck, Machine, TorchBuild
from gpudoc.facts.readers import intake, large_file
from gpudoc.facts.readers.clean import clean
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import CleanText
from tests.facts.readers.bug_report import bug_report


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


XID = "[ 99.1] NVRM: Xid (PCI:0000:37:00): 79, pid=1, GPU has fallen off the bus."


def read_file(path):
    return intake.read_all([(path.name, intake.load(path))])


def test_a_bug_report_is_read_packed_or_not_and_its_copied_files_are_not(tmp_path):
    text = bug_report(XID, padding=8000)
    (tmp_path / "nvidia-bug-report.log").write_text(text)
    (tmp_path / "nvidia-bug-report.log.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("nvidia-bug-report.log", "nvidia-bug-report.log.gz"):
        reading = read_file(tmp_path / name)
        assert [gpu.power_limit_w for gpu in reading.machine.gpus] == [650.0] * 8
        (event,) = [e for e in reading.machine.kernel_log if e.kind == "xid"]
        assert (event.code, event.pci_address) == (79, "0000:37:00")
        assert not any("blacklist" in line.text or "LnkSta" in line.text for line in reading.text.lines)
        place = next(n for n, line in enumerate(text.splitlines(), 1) if "Xid" in line)
        assert f"line {place}" in {line.origin for line in reading.text.lines if "Xid" in line.text}


def test_a_packed_file_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path):
    lines = "".join(f"{n * 7919 % 100003} step {n}\n" for n in range(20000))
    whole = gzip.compress(f"CUDA error: uncorrectable ECC error encountered\n{lines}".encode())
    (tmp_path / "a.log.gz").write_bytes(whole[: len(whole) // 2])
    assert "uncorrectable" in read_file(tmp_path / "a.log.gz").text.lines[0].text
    (tmp_path / "two.gz").write_bytes(gzip.compress(b"first\n") + gzip.compress(b"second\n"))
    assert [line.text for line in read_file(tmp_path / "two.gz").text.lines] == ["first", "second"]
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b" + b"nonsense" * 9)
    with pytest.raises(GpudocError, match="cannot be unpacked"):
        intake.load(tmp_path / "bad.gz")


def test_what_unpacks_without_end_is_given_up_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "_MOST_HELD_BYTES", 8 << 20)
    bomb = gzip.compress(gzip.compress(b"0" * (1 << 20)) + b"0" * (96 << 20), 9)
    (tmp_path / "bomb.gz").write_bytes(bomb)
    tracemalloc.start()
    with pytest.raises(GpudocError, match="unpacks to more than 8 MiB") as refused:
        intake.load(tmp_path / "bomb.gz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "zcat" in refused.value.hint
    assert peak < 32 << 20


def test_a_large_file_is_read_in_pieces_and_its_lines_keep_their_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "_HELD_BYTES", 1 << 20)
    path = tmp_path / "train.log"
    lines = [f"step {n} of the run, a line of its own length {'x' * (n % 40)}" for n in range(60000)]
    lines[30000] = XID
    path.write_text("\n".join(lines))
    data = intake.load(path)
    assert not isinstance(data, bytes)
    reading = intake.read_all([("train.log", data)])
    assert {line.number for line in reading.text.lines if "Xid" in line.text} == {30001}
    assert reading.text.lines[-1].number == 60000


def test_standard_input_is_bounded_and_may_be_packed(monkeypatch):
    def give(data):
        stream = io.TextIOWrapper(io.BytesIO(data))
        monkeypatch.setattr("sys.stdin", stream)

    give(gzip.compress(b"hello\n"))
    assert intake.load_stdin() == b"hello\n"
    monkeypatch.setattr(intake, "_MOST_HELD_BYTES", 1000)
    give(b"x" * 1001)
    with pytest.raises(GpudocError, match="standard input is larger than"):
        intake.load_stdin()


def test_a_log_that_is_cut_short_while_it_is_read_is_read_as_far_as_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "_HELD_BYTES", 1 << 20)
    path = tmp_path / "train.log"
    path.write_text(XID + "\n" + "".join(f"step {n} of the run\n" for n in range(100_000)))
    data = intake.load(path)
    os.truncate(path, 4_096)
    reading = intake.read_all([("train.log", data)])
    assert any("Xid" in line.text for line in reading.text.lines)


@pytest.fixture
def fed(monkeypatch):
    """How many bytes each piece held that was given to be unpacked."""
    pieces: list[int] = []
    real = large_file.zlib.decompressobj

    class Counted:
        def __init__(self, wbits):
            self._real = real(wbits=wbits)

        def decompress(self, data, most):
            pieces.append(len(data))
            return self._real.decompress(data, most)

        def __getattr__(self, name):
            return getattr(self._real, name)

    monkeypatch.setattr(large_file.zlib, "decompressobj", Counted)
    return pieces


def test_a_file_of_many_empty_parts_is_given_up(tmp_path, monkeypatch, fed):
    monkeypatch.setattr(large_file, "MOST_PARTS", 1_000)
    monkeypatch.setattr(intake, "MOST_PARTS", 1_000)
    few, many = tmp_path / "few.gz", tmp_path / "many.gz"
    few.write_bytes(gzip.compress(b"") * 900 + gzip.compress(b"the end"))
    many.write_bytes(gzip.compress(b"") * 9_000 + gzip.compress(b"the end"))
    assert intake.load(few) == b"the end"
    fed.clear()
    with pytest.raises(GpudocError, match="consists of more than 1,000 parts"):
        intake.load(many)
    assert len(fed) == 1_001


def test_what_follows_a_small_part_is_not_copied_for_each(fed):
    def copied(members):
        fed.clear()
        intake.unpacked(gzip.compress(b"") * members + gzip.compress(b"the end"), "x")
        return sum(fed)

    # twice the parts are twice the bytes, not four times as many
    assert copied(8_000) < 3 * copied(4_000)


@pytest.mark.parametrize("put", ["pipe", "folder", "device"])
def test_what_is_put_in_the_place_of_a_log_before_it_is_opened_is_not_waited_for(tmp_path, monkeypatch, put):
    path = tmp_path / "train.log"
    path.write_text(XID)
    real = os.open

    def replace_and_open(name, flags, *rest):
        assert path.is_file()
        path.unlink()
        if put == "pipe":
            os.mkfifo(path)
        elif put == "folder":
            path.mkdir()
        else:
            path.symlink_to("/dev/zero")
        assert flags & os.O_NONBLOCK
        return real(name, flags, *rest)

    monkeypatch.setattr(large_file.os, "open", replace_and_open)
    with pytest.raises(GpudocError, match=r"cannot read .*train\.log: it was replaced while gpudoc opened it"):
        intake.load(path)


NAMES = (
    "x$(touch pwned).gz",
    "c; touch pwned; .gz",
    "`touch pwned`.gz",
    "-n.gz",
    "a b.gz",
    "a\n  try: touch pwned.gz",
    "\x1b]0;pwned\x07'.gz",
    "\x9b8m\u202e.gz",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bound", ["_MOST_HELD_BYTES", "MOST_PARTS", "_MOST_BYTES"])
def test_what_to_type_names_the_log_and_runs_nothing_in_its_name(tmp_path, monkeypatch, name, bound):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(gzip.compress(b"") * 9 + gzip.compress(b"the end"))
    for module in (intake, large_file):
        monkeypatch.setattr(module, bound, 2, raising=module is intake)
    assert_safe_to_type(lambda: intake.load(Path(name)), b"" if bound == "_MOST_BYTES" else b"the end")


@pytest.mark.parametrize("name", NAMES)
def test_what_to_type_for_a_folder_names_it_and_runs_nothing_in_its_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    (Path(name) / "train.log").write_text("the end")
    assert_safe_to_type(lambda: intake.load(Path(name)), b"the end")


def assert_safe_to_type(load, shown):
    """The command of its hint shows the file, where a shell types it, and neither line holds a sign that is obeyed."""
    with pytest.raises(GpudocError) as refused:
        load()
    assert refused.value.message.isprintable()
    assert refused.value.hint.isprintable()
    command = 'gpudoc() { [ $# = 2 ] && cat "$2"; }; ' + refused.value.hint.removeprefix("for example: ")
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert shown in done.stdout
    assert not Path("pwned").exists()


def test_what_to_type_for_standard_input_names_no_file(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"x" * 3_000))))
    monkeypatch.setattr(intake, "_MOST_HELD_BYTES", 1_000)
    with pytest.raises(GpudocError) as refused:
        intake.load_stdin()
    assert refused.value.hint == "... | zcat | tail -c 100M | gpudoc doctor -"


def texts_of(name):
    """Every text that the tests of a reader hold, and each line of them by itself."""
    tree = ast.parse(Path(__file__).with_name(f"test_{name}.py").read_text("utf-8"))
    texts = {one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return sorted(texts | {line for text in texts for line in text.splitlines()})


@pytest.mark.parametrize("name", intake._RARE)
def test_a_reader_that_is_not_imported_for_a_text_would_have_found_nothing_in_it(name):
    reader, num_left_out, num_found = import_module(f"gpudoc.facts.readers.{name}"), 0, 0
    for words in texts_of(name):
        try:
            text = CleanText(clean(words.encode("utf-8", errors="replace"), ""))
        except GpudocError:
            # nothing is left of it
            continue
        found, nothing = Gather(), Gather()
        reader.read(text.lines, found)
        if text.may_hold(intake._RARE[name]):
            num_found += vars(found) != vars(nothing)
            continue
        num_left_out += 1
        assert vars(found) == vars(nothing), words
    assert num_left_out > 1
    assert num_found > 1
