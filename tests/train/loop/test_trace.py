import json

from gpudoc.train.events import Said
from gpudoc.train.loop.trace import Tracer
from tests.full_disk import full_at
from tests.train.support import train_here, write_workload


def test_without_steps_nothing_is_recorded(tmp_path):
    tracer = Tracer(tmp_path, 0)
    assert not tracer.wanted
    tracer.close()
    assert not list(tmp_path.iterdir())


def test_the_first_steps_are_left_out_and_the_asked_ones_recorded(tmp_path):
    tracer = Tracer(tmp_path, 2)
    said = [event for _ in range(5) for event in (tracer.advance() if tracer.wanted else ())]
    assert [type(event) for event in said] == [Said]
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert not tracer.wanted


def test_a_run_that_ends_early_writes_what_there_is(tmp_path):
    tracer = Tracer(tmp_path, 50)
    for _ in range(6):
        assert not list(tracer.advance())
    tracer.close()
    assert (tmp_path / "trace.json").exists()


def test_the_command_writes_a_trace_with_the_steps_operations(tmp_path):
    write_workload(tmp_path)
    assert train_here(tmp_path, "--model", "cfg.yaml", "--steps", "8", "--profile", "off", "--trace", "2") == 0
    text = (tmp_path / "runs" / "cfg" / "trace.json").read_text()
    assert "aten::addmm" in text or "aten::linear" in text


def test_a_trace_that_a_full_disk_cut_is_not_called_written(tmp_path):
    tracer = Tracer(tmp_path, 2)
    with full_at(1000):
        said = [event for _ in range(5) for event in (tracer.advance() if tracer.wanted else ())]
    assert [event.warning for event in said] == [True]
    assert f"{tmp_path}/trace.json: gpudoc cannot write the trace: " in said[0].text
    assert "training continues" in said[0].text
    assert not tracer.wanted
