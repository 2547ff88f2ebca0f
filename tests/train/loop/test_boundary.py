"""Between steps: the best and the last checkpoint, and no gradients beside what is done there."""

from __future__ import annotations

from gpudoc.train.loop import evaluation, saving
from tests.train.loop.test_saving import LINE, steps_in
from tests.train.support import metrics, summary, train_here, write_workload


def test_the_best_stays_beside_the_last_ones(tmp_path):
    """The learning rate is so high that later evaluations are worse."""
    write_workload(tmp_path, evaluated=True, eval_every=2, checkpoint_every=2, keep=1, epochs=2)
    assert train_here(tmp_path, *LINE, "--set", "lr=0.5") == 0
    run = tmp_path / "runs/cfg"
    best = summary(run)["best"]["step"]
    evaluations = {row["step"]: row["eval"]["loss"] for row in metrics(run) if "eval" in row}
    assert evaluations[best] == min(evaluations.values())
    assert set(steps_in(run)) == {16, best}


def test_gradients_give_their_memory_back_before_evaluation_and_checkpoints(tmp_path, monkeypatch):
    write_workload(tmp_path, evaluated=True, eval_every=2, checkpoint_every=3, log_every=1)
    seen = []
    for owner, name, real in ((saving, "capture", saving.capture), (evaluation, "evaluate", evaluation.evaluate)):

        def looked(first, *rest, real=real, **options):
            parts = getattr(first, "parts", first)
            seen.append([p.grad for p in parts.model.parameters()])
            return real(first, *rest, **options)

        monkeypatch.setattr(owner, name, looked)
    assert train_here(tmp_path, *LINE) == 0
    assert len(seen) > 5
    assert all(gradient is None for gradients in seen for gradient in gradients)
    assert all(row["grad_norm"] > 0 for row in metrics(tmp_path / "runs/cfg") if "grad_norm" in row)
