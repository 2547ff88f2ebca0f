import io
from dataclasses import replace

import pytest
from rich.console import Console

from gpudoc.bench.compare import compare
from gpudoc.bench.model import Ceiling, Doubt, NoCeiling, NotMeasured, Record
from gpudoc.bench.report import BenchReport
from gpudoc.bench.verdicts import corrupted
from gpudoc.render.bench import (
    doubts_text,
    figure,
    parameters_text,
    print_comparison,
    print_record,
    report_to_json,
    share_text,
)
from tests.bench.builders import row

ENVIRONMENT = {"device": "cpu", "cpu": "a CPU", "threads": 2, "memory_gib": 24, "torch": "2.13.0", "mode": "full"}
PRODUCT = replace(
    row("cpu_matmul", "cpu", 200.0, {"dtype": "fp32", "size": 1024, "threads": 2}, unit="GFLOP/s"),
    ceiling=Ceiling(250.0, "2 cores × 16 × 2 × 3.9 GHz", 220.0),
    doubts=(Doubt("spread", "spread 20%"), Doubt("stolen", "4% stolen"), Doubt("busy_host", "1.0 CPUs busy")),
)
REFUSED = replace(row("h2d", value=457.0), value=None, doubts=(Doubt("impossible", "refused: 457 GB/s"),))
BARE = replace(row("memory_copy", "cpu", 40.0), ceiling=NoCeiling("not readable"))
RECORD = Record(
    environment=ENVIRONMENT,
    measurements=(PRODUCT, REFUSED, BARE),
    not_measured=(NotMeasured("folder", "no folder was named"),),
    findings=(corrupted(replace(PRODUCT, corrupted="off by 3")),),
    seconds=81.0,
)


def screen(record=RECORD, width=150):
    out = Console(file=io.StringIO(), width=width, no_color=True, markup=False, highlight=False)
    print_record(record, out)
    return out.file.getvalue()


def test_every_figure_stands_beside_its_ceiling_and_its_doubts():
    text = screen()
    line = next(line for line in text.splitlines() if line.startswith("cpu_matmul"))
    for word in ("fp32, 1024, 2 threads", "200", "GFLOP/s", "80% (91%)", "spread 20%; 4% stolen; 1.0 CPUs busy"):
        assert word in line
    assert "ceiling of cpu_matmul fp32, 250 GFLOP/s: 2 cores × 16 × 2 × 3.9 GHz" in text
    assert "refused" in next(line for line in text.splitlines() if line.startswith("h2d"))


def test_causes_gaps_and_the_meaning_of_doubts_are_said():
    text = screen()
    assert "not measured: folder: no folder was named" in text
    assert "broken: cpu_matmul fp32 gave wrong data" in text
    assert "doubt: stolen (1 row):" in text
    assert "3 rows in 1 min 21 s; 1 finding" in text


def test_it_says_why_there_is_no_ceiling():
    assert "no ceiling for memory_copy: not readable" in screen()


def test_no_name_of_a_row_is_cut_at_80_columns():
    record = replace(RECORD, measurements=(row("memory_triad", value=1.0, parameters={"bytes": 2**27, "threads": 2}),))
    assert "memory_triad" in screen(record, width=80)


def test_rows_of_one_ceiling_share_its_line_with_its_source():
    both = [replace(row(name, value=50.0), ceiling=Ceiling(63.0, "Gen5 x16; the standard")) for name in ("h2d", "d2h")]
    record = replace(RECORD, measurements=tuple(both), findings=())
    assert "ceiling of h2d, d2h, 63 GB/s: Gen5 x16; the standard\n" in screen(record)


def test_an_interrupted_run_says_so_and_a_clean_one_too():
    assert "interrupted: 1 row" in screen(Record(environment=ENVIRONMENT, measurements=(BARE,), interrupted=True))
    assert "nothing below normal" in screen(Record(environment=ENVIRONMENT, measurements=(BARE,)))


def test_a_comparison_shows_what_moved_by_how_much_and_what_else_differs():
    def record(value, **environment):
        return Record(
            environment={**ENVIRONMENT, **environment}, measurements=(row("x", value=value), row("y", value=5.0))
        )

    comparison = compare(record(100.0), record(80.0, torch="2.14.0"))
    out = Console(file=io.StringIO(), width=150, no_color=True)
    print_comparison(comparison, out)
    text = out.file.getvalue()
    assert "1 slower, 1 same" in text
    assert "slower: x: -20%, [100, 100] → [80, 80] GB/s" in text
    assert "torch was 2.13.0, is 2.14.0" in text
    document = report_to_json(BenchReport(record(80.0), comparison))
    assert [one["judgement"] for one in document["comparison"]["changes"]] == ["slower", "same"]


@pytest.mark.parametrize(
    ("value", "text"), [(40.84, "40.8"), (1234.5, "1,234"), (0.00412, "0.00412"), (3.65, "3.65"), (0.0, "0")]
)
def test_three_digits(value, text):
    assert figure(value) == text


def test_parameters_in_words():
    assert parameters_text({"bytes": 2**28, "host": "pinned"}) == "256 MiB, pinned"
    assert parameters_text({"threads": 1}) == "1 thread"
    assert parameters_text({"workers": 2, "from": 0}) == "2 workers, from 0"


def test_shares_and_doubts_as_text():
    assert share_text(BARE) == ""
    assert share_text(replace(PRODUCT, ceiling=Ceiling(250.0, "f", 250.0))) == "80%"
    assert doubts_text(BARE) == ""
