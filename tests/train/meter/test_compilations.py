"""What torch.compile compiled once more, with torch's own records of real compilations."""

from __future__ import annotations

import runpy
import sys
import types

import pytest
import torch

from gpudoc.train.meter.compilations import Compilations


def scaled(x, factor):
    return x * factor


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    yield Compilations(), torch.compile(scaled, backend="eager", dynamic=False)
    torch._dynamo.reset()


def test_a_function_that_is_compiled_once_more_is_named_with_the_reason(compiled):
    found, function = compiled
    function(torch.ones(4), 2.0)
    seconds = found.read()
    assert seconds > 0
    assert found.document()["count"] == 1
    assert found.document()["recompilations"] == 0
    assert found.worst() == ""
    for length in (5, 6):
        function(torch.ones(length), 2.0)
    assert found.read() > 0
    told = found.document()
    assert (told["count"], told["recompilations"]) == (3, 2)
    (again,) = told["again"]
    assert again["function"].startswith("scaled (test_compilations.py:")
    assert again["times"] == 2
    assert "size mismatch at index 0" in again["reason"]
    assert "2 more times, the last because" in found.worst()


def test_what_the_optimizer_compiles_for_every_shape_is_no_function_compiled_again(tmp_path):
    """As torchao does: its update is compiled anew for each shape of parameters, from a file of its package."""
    module = tmp_path / "torchao" / "optim" / "adam.py"
    module.parent.mkdir(parents=True)
    module.write_text("def single_param_adam(p, grad):\n    p.sub_(0.1 * grad)\n")
    found = runpy.run_path(str(module))
    torch._dynamo.reset()
    counted = Compilations()
    for length in (4, 5, 6):
        update = torch.compile(found["single_param_adam"], backend="eager", fullgraph=True, dynamic=False)
        update(torch.ones(length), torch.ones(length))
    assert counted.read() > 0
    told = counted.document()
    assert (told["count"], told["of_optimizer"], told["recompilations"], told["again"]) == (3, 3, 0, [])
    assert counted.worst() == ""
    torch._dynamo.reset()


def test_what_was_compiled_before_it_was_made_is_not_counted(compiled):
    _, function = compiled
    function(torch.ones(4), 2.0)
    later = Compilations()
    assert (later.read(), later.count) == (0.0, 0)


def test_what_was_read_is_not_read_again(compiled):
    found, function = compiled
    function(torch.ones(4), 2.0)
    assert found.read() > 0
    function(torch.ones(4), 2.0)
    assert found.read() == 0.0
    assert found.document()["count"] == 1


def test_backward_is_time_and_no_compilation_of_its_own(monkeypatch):
    def record(**more):
        known = {"co_name": "f", "co_filename": "/x/net.py", "co_firstlineno": 3, "recompile_reason": None}
        return types.SimpleNamespace(**{**known, "duration_us": 2_000_000, "is_forward": True, **more})

    records = [record(), record(is_forward=False, co_name=None)]
    module = types.SimpleNamespace(get_compilation_metrics=lambda: list(records))
    found = Compilations()
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)
    assert found.read() == 4.0
    assert found.count == 1


def test_without_torchs_records_nothing_was_compiled(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", types.SimpleNamespace())
    found = Compilations()
    assert found.read() == 0.0
    assert found.document() == {"count": 0, "recompilations": 0, "of_optimizer": 0, "seconds": 0.0, "again": []}
