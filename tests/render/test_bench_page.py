from dataclasses import replace

import pytest

from gpudoc.bench.compare import compare
from gpudoc.bench.model import Ceiling, Doubt, NotMeasured, Record
from gpudoc.bench.report import BenchReport
from gpudoc.bench.verdicts import corrupted
from gpudoc.errors import GpudocError
from gpudoc.render.bench_page import render_page, save
from tests.bench.builders import row
from tests.render.test_page import words as words_of

KIB = 1024


def curve(name, host=None, device="cuda:0"):
    return [
        row(name, device, 1.0 + power, {"bytes": KIB * 4**power, **({"host": host} if host else {})})
        for power in range(4)
    ]


def product(dtype, value, size=1024):
    made = row("cpu_matmul", "cpu", value, {"dtype": dtype, "size": size, "threads": 2}, unit="GFLOP/s")
    return replace(made, ceiling=Ceiling(2 * value, f"the formula of {dtype}"), doubts=(Doubt("stolen", "4% stolen"),))


RECORD = Record(
    environment={"device": "cpu", "cpu": "a <CPU>", "threads": 2, "memory_gib": 24, "gpudoc": "0.1"},
    measurements=(
        *curve("memory_curve", device="cpu"),
        row("memory_copy", "cpu", 40.0, {"bytes": 2**27, "threads": 2}),
        product("fp32", 200.0),
        product("bf16", 400.0),
    ),
    not_measured=(NotMeasured("folder", "no folder"),),
)


def words(report):
    return words_of(render_page(report))


def test_the_page_has_the_curve_the_roofline_the_table_and_the_doubts():
    markup = render_page(BenchReport(RECORD))
    assert markup.count('<svg class="wide"') == 2
    assert 'aria-label="CPU memory copy"' in markup
    assert 'aria-label="Roofline of the CPU"' in markup
    text = words(BenchReport(RECORD))
    assert "the formula of bf16" in text
    assert "stolen (2 rows)" in text
    assert "no folder" in text
    assert "a <CPU>" in text
    assert "Nothing is below normal" in text


def test_a_gpus_copies_are_drawn_with_the_roof_of_its_link():
    rows = [*curve("h2d", "pinned"), *curve("d2h", "pinned"), *curve("h2d", "pageable")]
    rows = [replace(one, ceiling=Ceiling(63.0, "PCIe Gen5 x16")) for one in rows]
    markup = render_page(BenchReport(replace(RECORD, measurements=tuple(rows))))
    assert 'aria-label="Copies between host and GPU"' in markup
    for name in ("host to GPU, pinned", "GPU to host, pinned", "host to GPU, pageable", "link"):
        assert f">{name}<" in markup


def test_a_gpus_roofline_is_in_the_same_unit_as_its_products():
    parameters = {"dtype": "bf16", "shape": "8448x8192x8192", "mode": "burst"}
    fast = replace(row("matmul", value=700.0, unit="TFLOP/s", parameters=parameters), ceiling=Ceiling(989.0, "f"))
    copy = replace(row("device_copy", value=2900.0), ceiling=Ceiling(3352.0, "f"))
    markup = render_page(BenchReport(replace(RECORD, measurements=(fast, copy))))
    assert ", 700</title>" in markup
    assert "10¹² operations/s" in markup
    assert "Roofline of cuda:0" in markup


def test_refused_rows_and_findings_are_on_the_page():
    refused = replace(row("h2d", value=457.0, parameters={"bytes": 4, "host": "pinned"}), value=None)
    bad = corrupted(replace(row(), corrupted="wrong bytes"))
    text = words(BenchReport(replace(RECORD, measurements=(refused,), findings=(bad,))))
    assert "refused" in text
    assert "wrong bytes" in text


def test_the_comparison_is_on_the_page():
    slower = replace(RECORD, measurements=tuple(replace(one, low=1e-3, high=2e-3) for one in RECORD.measurements))
    text = words(BenchReport(slower, compare(RECORD, slower)))
    assert "5 slower, 2 doubtful, 0 faster, 0 the same" in text


def test_an_empty_record_is_still_a_page():
    assert "0 rows" in words(BenchReport(Record(environment={}, measurements=())))


def test_saving(tmp_path):
    save(tmp_path / "p.html", BenchReport(RECORD))
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")
    with pytest.raises(GpudocError, match="cannot be written"):
        save(tmp_path / "no" / "p.html", BenchReport(RECORD))


def test_the_best_of_each_kind_stands_on_top_and_the_curve_is_folded():
    text = words(BenchReport(RECORD))
    assert "✓ nothing below normal" in text
    assert "matrix product 400 GFLOP/s 50% of the ceiling; bf16, 1024, 2 threads memory 40 GB/s" in text
    assert text.index("memory_copy") < text.index("All sizes of the curves 4 rows") < text.index("memory_curve")


def test_the_badge_says_what_is_wrong():
    bad = corrupted(replace(row(), corrupted="wrong bytes"))
    assert "✗ broken" in words(BenchReport(replace(RECORD, findings=(bad,))))
    slower = replace(RECORD, measurements=tuple(replace(one, low=1e-3, high=2e-3) for one in RECORD.measurements))
    assert "✗ 5 slower" in words(BenchReport(slower, compare(RECORD, slower)))
    assert "! nothing measured" in words(BenchReport(Record(environment={}, measurements=())))
