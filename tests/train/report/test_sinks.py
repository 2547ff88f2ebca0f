import json
import math
import sys
import time
import types

import pytest

from gpudoc.errors import GpudocError
from gpudoc.train.report.sinks import NoSinks, Sinks, finite, open_extra
from gpudoc.train.state.run_dir import Run


def test_the_first_object_is_a_line_at_once_and_the_next_ones_within_half_a_second(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    sinks = Sinks(Run(tmp_path))

    def lines():
        return [json.loads(line) for line in Run(tmp_path).metrics.read_text().splitlines()]

    sinks.add({"step": 1, "loss": 0.5})
    assert lines() == [{"step": 1, "loss": 0.5}]
    now[0] += 0.4
    sinks.add({"step": 2, "loss": math.nan, "seconds": {"compute": math.inf}})
    assert len(lines()) == 1
    now[0] += 0.2
    sinks.add({"step": 3})
    assert lines()[1:] == [{"step": 2, "loss": None, "seconds": {"compute": None}}, {"step": 3}]
    sinks.add({"step": 4})
    sinks.write()
    assert lines()[3:] == [{"step": 4}]
    sinks.add({"step": 5})
    sinks.close()
    assert lines()[4:] == [{"step": 5}]


def test_going_on_appends(tmp_path):
    for step in (1, 2):
        sinks = Sinks(Run(tmp_path))
        sinks.add({"step": step})
        sinks.close()
    assert len(Run(tmp_path).metrics.read_text().splitlines()) == 2


def test_a_tracker_gets_nested_figures_under_flat_names(tmp_path, monkeypatch):
    logged = []
    module = types.SimpleNamespace(
        init=lambda **options: logged.append(options), log=logged.append, finish=lambda: logged.append("finished")
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    sinks = Sinks(Run(tmp_path), open_extra(("wandb",), Run(tmp_path), {"lr": 0.1}))
    sinks.add({"step": 3, "loss": 0.25, "seconds": {"compute": 1.5}, "name": "text", "flag": True})
    sinks.close()
    assert logged[0]["config"] == {"lr": 0.1}
    assert logged[1:] == [{"step": 3, "loss": 0.25, "seconds/compute": 1.5}, "finished"]


@pytest.mark.parametrize(("name", "says"), [("wandbb", "unknown"), ("trackio", "not installed")])
def test_a_sink_that_is_not_there_says_what_to_type(tmp_path, monkeypatch, name, says):
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(GpudocError, match=says):
        open_extra((name,), Run(tmp_path), {})


def test_other_ranks_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sinks = NoSinks()
    sinks.add({"step": 1})
    sinks.close()
    assert not list(tmp_path.iterdir())


def test_numbers_that_json_cannot_say_become_null():
    assert finite({"a": [1.0, math.inf], "b": (math.nan,)}) == {"a": [1.0, None], "b": [None]}
