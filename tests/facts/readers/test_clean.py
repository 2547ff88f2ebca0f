from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoc.errors import GpudocError
from gpudoc.facts.readers import read
from gpudoc.facts.readers.clean import clean


def texts(data):
    return [line.text for line in clean(data)]


def test_line_numbers_are_those_of_the_input_though_empty_lines_are_dropped():
    assert [(line.number, line.text) for line in clean(b"a\n\n\nb\n")] == [(1, "a"), (4, "b")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_every_encoding_that_people_save_in_says_the_same(encoding):
    assert texts("Größe: 3\r\nCUDA error\r\n".encode(encoding)) == ["Größe: 3", "CUDA error"]


def test_mojibake_quotes_fences_colours_and_tags_are_taken_away():
    pasted = (
        "```text\n> \x1b[1;31mRuntimeError\x1b[0m: it failed\n>> twice\n>>> import torch\n<details><summary>Log</summary>\n"
        "can\u00e2\u20ac\u2122t &gt; 3\n```\n"
    ).encode()
    assert texts(pasted) == ["RuntimeError: it failed", "twice", ">>> import torch", "  Log", "can't > 3"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("`step 1`", "step 1"),
        ("``step 1``", "step 1"),
        ("**step 1**", "step 1"),
        ("`Traceback:", "Traceback:"),
        ("```Traceback:", "Traceback:"),
        ("KeyError: 'lr'`", "KeyError: 'lr'"),
        ("expected `int` here`", "expected `int` here"),
        ("`a` and `b`", "`a` and `b`"),
        ("use `pip install x`", "use `pip install x`"),
        ("f(x, **kwargs)", "f(x, **kwargs)"),
        ("    **kwargs,", "    **kwargs,"),
        ("*** the end ***", "*** the end ***"),
        ("&amp;quot;a&amp;quot; &lt; b", '"a" < b'),
    ],
)
def test_marks_around_a_piece_of_code_are_taken_away_and_pairs_within_a_line_stay(written, meant):
    assert texts(written.encode()) == [meant]


def test_nul_bytes_do_not_hide_the_words():
    assert texts(b"CUDA\0 out of\0 memory\n") == ["CUDA out of memory"]


def test_a_progress_bar_is_its_first_and_last_states():
    bar = "\r".join(f" {i}/100 [00:{i:02d}<00:10]" for i in range(100)).encode()
    shown = texts(bar)
    assert len(shown) == 6
    assert shown[-1].strip().startswith("99/100")


def test_a_log_escaped_into_one_line_of_json_becomes_lines_again():
    line = '{"log": "' + "\\n".join(f"step {i} loss 2.{i}" for i in range(30)) + '\\nValueError: x"}'
    assert len(texts(line.encode())) == 31


@pytest.mark.parametrize("data", [b"", b"  \n\n \t", b"\0\0\0", b"\xff\xfe"])
def test_nothing_in_it_is_said(data):
    with pytest.raises(GpudocError, match="is empty"):
        clean(data, name="x.log")


@pytest.mark.parametrize("data", [b"\x7fELF" + bytes(range(32)) * 300, bytes(range(256)) * 100])
def test_a_binary_file_is_said_to_be_one(data):
    with pytest.raises(GpudocError, match="binary"):
        clean(data, name="x.bin")


def test_of_a_long_log_the_fault_in_the_middle_is_kept_with_its_line_number():
    filler = "".join(f"epoch 1 step {i} loss 2.{i} some more words to fill the line\n" for i in range(60_000))
    text = filler + "NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.\n" + filler
    lines = clean(text.encode())
    (hit,) = [line for line in lines if "Xid" in line.text]
    assert hit.number == 60_001
    assert len(lines) < 5_000
    assert lines[-1].number == 120_001


def test_an_endless_line_is_cut_into_pieces_and_its_end_is_kept():
    lines = clean(b"x" * 10_000_000 + b" RuntimeError: CUDA error: device-side assert triggered")
    assert {line.number for line in lines} == {1}
    assert "device-side assert" in lines[-1].text
    assert all(len(line.text) <= 2_000 for line in lines)


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=1, max_size=4_000))
def test_any_bytes_are_read_or_refused_with_a_reason(data):
    try:
        reading = read(data)
    except GpudocError:
        return
    assert reading.text.lines


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "PyTorch version: 2.x+cu", "CUDA used to build PyTorch: 99.", "GPU 0:", "GPU 7: MIG 1g.5gb", "[pip3] torch==",
                "[conda] pytorch 2.0 py3.10_cuda11.7_cudnn8.5.0_0 pytorch", "| 0 NVIDIA A100 On | 00000000:00:1E.0 Off |",
                "|  0  N/A  N/A   1  C  python  1MiB |", "GPU 00000000:17:00.0", "    Remapped Rows", "        Pending : Yes",
                "<gpu id=\"0\">", "<product_name>x</product_name>", "NVRM: Xid (PCI:0000:17:00): 999", "torch.version.cuda", ">>>",
                "sm_", "supports CUDA capabilities sm_x", "CUDA_VISIBLE_DEVICES=", "Driver Version: 999.99.99 CUDA Version: 9.",
                "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0;", "1.00 GiB total capacity", "Process 1 has 1.00 QiB memory",
                "\x1b[", "&#99999;", "{\"schema\": \"gpudoc.", "٣٫٢ torch ٢.٠",
            ]
        ),
        max_size=25,
    )
)  # fmt: skip
def test_fragments_of_reports_in_any_order_are_read_without_a_fault(parts):
    from tests.doctor.causes.judge import report_of

    text = "\n".join(parts)
    if text.strip() and any(c.isalnum() for c in text):
        report_of(text + "\nok")


def test_two_hundred_megabytes_take_seconds_not_minutes():
    line = b"2026-01-01 10:00:00 INFO Epoch [1][%d/1000] lr: 1e-3 time: 0.387 data_time: 0.008 loss: 1.2345\n"
    block = b"".join(line % i for i in range(1000))
    data = block * (200_000_000 // len(block)) + b"RuntimeError: CUDA error: an illegal memory access was encountered\n"
    # work that grows with the square of the size would run into the suite's limit for one test
    lines = clean(data)
    assert "illegal memory" in lines[-1].text
    assert sum(len(kept.text) for kept in lines) < 1_000_000
