"""What a sharded step waits for is told from computing, and nothing of it stays behind."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from gpudoc.plan.spread import Spread, others_of
from gpudoc.train.meter import meters
from gpudoc.train.meter.meters import Stopwatch
from gpudoc.train.meter.waits import _COLLECTIVES, Waits
from gpudoc.train.step.precision import Precision
from gpudoc.train.step.step import Micro, Parts, Stepper
from gpudoc.workload.build import Step
from gpudoc.workload.config import Fsdp
from tests.train.ranks.test_distributed import told, torchrun

CPU = torch.device("cpu")
# seconds that each takes on the clock of the test
GATHER_S, SCATTER_S, FORWARD_S = 1.0, 10.0, 1000.0


class Block(nn.Module):
    """Takes its time in forward."""

    def __init__(self, clock):
        super().__init__()
        self.inner, self.clock = nn.Linear(4, 4), clock

    def forward(self, x):
        self.clock[0] += FORWARD_S
        return self.inner(x)


def slow(plain, seconds, clock):
    def call(*arguments, **named):
        clock[0] += seconds
        return plain(*arguments, **named)

    return call


def sharded(model, ranks):
    model = ranks.wrap(model)
    return Stepper(
        Parts(
            model=model,
            forward=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            step=Step(loss=nn.MSELoss(), name="test"),
            device=CPU,
            precision=Precision("fp32", "test"),
            ranks=ranks,
        )
    )


def test_what_sharded_ranks_exchange_is_communication_and_no_computing(monkeypatch):
    """Three blocks: each gathered in forward and in backward, and its gradients reduced, in two micro batches."""
    clock = [0.0]
    monkeypatch.setattr(meters, "clock", lambda: clock[0])
    for name in _COLLECTIVES:
        if hasattr(dist, name):
            seconds = GATHER_S if "gather" in name else SCATTER_S
            monkeypatch.setattr(dist, name, slow(getattr(dist, name), seconds, clock))
    before = {name: getattr(dist, name, None) for name in _COLLECTIVES}
    batch = [torch.ones(2, 4), torch.ones(2, 4)]
    with others_of(2, lambda _: None):
        ranks = Spread(2, Fsdp(reshard="always"))
        stepper = sharded(nn.Sequential(*[Block(clock) for _ in range(3)]), ranks)
        stepper.meter.restart()
        began = clock[0]
        stepper.backward([Micro(batch, 0.5), Micro(batch, 0.5)])
        stepper.meter.compute += clock[0] - began
        seconds = stepper.meter.take().seconds
        # what is exchanged outside of steps, in an evaluation, is none of theirs
        with torch.no_grad():
            stepper.parts.model(batch[0])
        assert stepper.meter.take().seconds["communicate"] == 0
        assert stepper.waits.notes() == []
    assert seconds["compute"] == 2 * 3 * FORWARD_S
    assert seconds["communicate"] == 2 * 3 * (2 * GATHER_S + SCATTER_S)
    assert {name: getattr(dist, name, None) for name in _COLLECTIVES} == before


def test_what_others_than_torch_call_is_not_counted(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(meters, "clock", lambda: clock[0])
    monkeypatch.setattr(dist, _COLLECTIVES[0], slow(lambda: "done", GATHER_S, clock))
    watch = Stopwatch(CPU)
    waits = Waits(CPU, watch)
    with waits:
        assert dist.all_gather_into_tensor() == "done"
    assert watch.take() == 0


def test_a_torch_that_waits_in_another_way_is_told_once():
    waits = Waits(CPU, Stopwatch(CPU))
    with waits:
        pass
    (said,) = waits.notes()
    assert "counts as computing" in said.text
    assert waits.notes() == []


@pytest.mark.slow
def test_a_rank_that_comes_late_into_a_backward_is_waited_for(tmp_path):
    """Rank 1 sleeps after its forward, from when rank 0 is in the first exchange of backward."""
    done = torchrun(
        tmp_path,
        """
        import torch.distributed as dist
        from torch import nn
        from gpudoc.train.ranks.fsdp import Sharded
        from gpudoc.workload.config import Fsdp
        from tests.train.meter.test_waits import _COLLECTIVES, Micro, sharded
        mark, after = out / "waiting", []
        def marked(plain):
            def call(*arguments, **named):
                if after and place.rank == 0:
                    mark.touch()
                return plain(*arguments, **named)
            return call
        for name in _COLLECTIVES:
            if hasattr(dist, name):
                setattr(dist, name, marked(getattr(dist, name)))
        class Last(nn.Linear):
            def forward(self, x):
                found = super().forward(x)
                after.append(1)
                while place.rank and not mark.exists():
                    time.sleep(0.01)
                time.sleep(0.5 * place.rank)
                return found
        joined = join(place, torch.device("cpu"))
        part = lambda kind: nn.Sequential(kind(4, 4))
        model = nn.Sequential(part(nn.Linear), part(nn.Linear), part(Last))
        stepper = sharded(model, Sharded(place, torch.device("cpu"), Fsdp(reshard="always")))
        stepper.meter.restart()
        began = time.perf_counter()
        stepper.backward([Micro([torch.ones(2, 4), torch.ones(2, 4)], 1.0)])
        stepper.meter.compute += time.perf_counter() - began
        split = stepper.meter.take()
        (out / f"{place.rank}.json").write_text(json.dumps({**split.seconds, "wall": split.wall_s}))
        joined.leave()
        """,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = told(tmp_path, 0), told(tmp_path, 1)
    assert first["communicate"] >= 0.5
    assert second["compute"] >= 0.5
    assert first["compute"] + first["communicate"] <= first["wall"] * 1.001
