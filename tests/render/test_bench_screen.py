import json
from dataclasses import replace

import pytest

from gpudoc.bench.model import Doubt, NotMeasured, Record
from gpudoc.bench.report import BenchReport
from gpudoc.render.bench_screen import MOST_ROWS, as_text, figures, show
from gpudoc.render.frame import WIDE, Form
from tests.bench.builders import row
from tests.render.test_bench import ENVIRONMENT, RECORD, REFUSED
from tests.terminal import shown

BUSY = (Doubt("busy_host", "1.0 CPUs busy"), Doubt("spread", "spread 20%"))
ROWS = (
    *(row("memory_triad", "cpu", 9.0, {"bytes": 2**27, "threads": n}) for n in (1, 2)),
    *(row("memory_copy", "cpu", 10.0 * n, {"bytes": 2**27, "threads": n}) for n in (1, 2)),
    *(
        replace(row("cpu_matmul", "cpu", 100.0 * size, {"dtype": kind, "size": size}, unit="GFLOP/s"), doubts=BUSY)
        for kind in ("fp32", "bf16")
        for size in (1, 2)
    ),
    *(
        row("loader_batch", "cpu", value, {"workers": n}, unit="ms", better="lower")
        for n, value in ((0, 3.0), (1, 2.0), (2, 4.0))
    ),
    row("cpu_clock", "cpu", 3.5, unit="GHz"),
)
CLEAN = Record(
    environment=ENVIRONMENT,
    measurements=ROWS,
    not_measured=(NotMeasured("folder", "no folder was named"),),
    findings=(),
    seconds=81.0,
)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("colour", [{}, {"NO_COLOR": "1"}])
def test_what_stays_is_five_figures_with_their_doubt_and_the_verdict(columns, colour):
    screen = shown(lambda: show(BenchReport(CLEAN), as_json=False, plain=False, verbose=False), columns, colour)
    assert screen.code == 0
    assert len(screen.lines) <= 20
    assert screen.coloured is not bool(colour)
    place = next(n for n, line in enumerate(screen.lines) if line.startswith("measured"))
    rows = screen.lines[place + 1 : place + 1 + MOST_ROWS]
    assert [line.split("  ")[0] for line in rows] == [
        "loader batch, 1 worker",
        "matmul, bf16, 2",
        "memory copy, 128 MiB, 2 threads",
        "matmul, fp32, 2",
        "CPU clock",
    ]
    assert "200  GFLOP/s" in rows[1]
    assert "1.0 CPUs busy" in rows[1]
    assert screen.lines[place + 1 + MOST_ROWS] == ""
    text = " ".join(screen.text.split())
    assert "✓ 12 rows in 1 min 21 s; nothing below normal" in text
    assert (
        "7 more rows; 4 of 12 rows in doubt, mostly because of: busy host, spread; 1 case not measured: --verbose"
        in text
    )
    assert not any("…" in line for line in screen.lines)


def test_a_fault_stands_in_a_box_and_a_refused_figure_is_always_there():
    screen = shown(lambda: show(BenchReport(RECORD), as_json=False, plain=False, verbose=False))
    top = next(n for n, line in enumerate(screen.lines) if line.startswith("╭"))
    assert screen.lines[top + 1].startswith("│ ✗ cpu_matmul fp32")
    assert any(line.startswith("h2d") and "refused" in line for line in screen.lines)
    assert "✓" not in screen.text


def test_verbose_shows_every_row():
    screen = shown(lambda: show(BenchReport(CLEAN), as_json=False, plain=False, verbose=True), 120)
    assert sum(line.startswith("memory_triad") for line in screen.lines) == 2
    assert "not measured: folder: no folder was named" in screen.lines


def test_a_run_of_other_cases_alone_has_figures_too():
    told = figures([row("launch", value=4.0, better="lower"), row("launch", value=3.0, better="lower"), REFUSED])
    assert [(one.name, one.value) for one, _ in told] == [("launch", 3.0), ("h2d", None)]


def test_forty_columns_keep_name_value_and_unit():
    lines = as_text(CLEAN, Form(40)).splitlines()
    assert max(map(len, lines)) <= 40
    assert any("GFLOP/s" in line for line in lines)


def test_a_failed_case_is_named():
    failed = replace(CLEAN, not_measured=(NotMeasured("copies", "killed by signal 9", failed=True),))
    assert "! failed: copies: killed by signal 9\n" in as_text(failed, Form())


def test_json_is_one_document_on_stdout(capsys):
    show(BenchReport(RECORD), as_json=True, plain=False, verbose=False)
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "gpudoc.bench.v1"
    assert document["findings"][0]["id"] == "data_corrupted"


def test_a_pipe_gets_the_same_words_without_colour(capsys):
    show(BenchReport(CLEAN), as_json=False, plain=False, verbose=False)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "memory copy, 128 MiB, 2 threads" in text


def test_where_nothing_was_measured_nothing_is_called_normal():
    broke = NotMeasured("the rest of the run", "the measuring process ended by SIGKILL: it said nothing", failed=True)
    empty = BenchReport(replace(CLEAN, measurements=(), not_measured=(broke,)))
    screen = shown(lambda: show(empty, as_json=False, plain=False, verbose=False), 120, {})
    assert "! failed: the rest of the run: the measuring process ended by SIGKILL" in screen.text
    assert "nothing was measured in 1 min 21 s" in screen.text
    assert "✓" not in screen.text
    assert "normal" not in screen.text


@pytest.mark.parametrize(("high", "shown_as"), [(150.0, "50%"), (200.0, "100%"), (2500.0, "> 100%")])
def test_a_spread_larger_than_the_figure_is_no_figure(high, shown_as):
    wide = replace(row("memory_copy", "cpu", 100.0), low=90.0, high=high)
    line = next(text for text in as_text(replace(CLEAN, measurements=(wide,)), Form(120)).splitlines() if "100" in text)
    assert f" {shown_as}" in line
    assert "2400%" not in line


def test_a_page_that_was_asked_for_is_not_offered():
    shape = Form(WIDE)
    assert "--verbose shows them, --html FILE draws them" in " ".join(as_text(CLEAN, shape).split())
    text = as_text(CLEAN, shape, drawn=True)
    assert "--verbose shows them" in text
    assert "--html" not in text
