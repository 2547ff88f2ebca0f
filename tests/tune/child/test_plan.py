"""A plan traced in this process: what it emits, and that it never fails."""

import pytest

from gpudoc.process.memory import read_process_memory
from gpudoc.tune.child.plan import run_plan
from gpudoc.tune.child.probe import Prepared
from gpudoc.tune.child.samples import collect_samples
from gpudoc.tune.trial.messages import PlanQuestion, TrialRequest
from gpudoc.tune.trial.wire import Fact, RankEnd, RankPlace, TrialStage
from gpudoc.units import GIB, MIB
from gpudoc.workload.build import load_workload
from tests.tune.planted import write_workload


@pytest.fixture
def planned(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))

    def plan(limit_bytes, batch=100_000, asked=None, **changes):
        workload = load_workload(str(write_workload(tmp_path, **changes)))
        prepared = Prepared(workload=workload, samples=collect_samples(workload), eval_samples=None, num_threads=1)
        question = PlanQuestion(limit_bytes=limit_bytes, **(asked or {}))
        request = TrialRequest(kind="plan", batches=(batch,), question=question)
        told = []
        run_plan(prepared, request, RankPlace(device="cpu", limit_bytes=None), told.append)
        return told

    return plan


def test_a_plan_tells_the_memory_at_the_largest_batch_that_the_limit_allows(planned):
    limit = read_process_memory().data_bytes + 256 * MIB
    first, *facts, ended = planned(limit, net={"depth": 2})
    assert first == TrialStage(stage="plan")
    assert ended == RankEnd()
    line = {fact.name: fact.value for fact in facts if isinstance(fact, Fact)}
    assert line["peak_bytes"] <= limit < line["peak_bytes"] + 2 * line["bytes_per_sample"]
    # two blocks keep 1024 x 256 numbers of 4 bytes per sample
    assert line["bytes_per_sample"] > 2 * MIB
    assert 1 < line["batch"] < 100_000


def test_what_steps_took_already_lets_the_first_probe_be_larger_and_never_smaller(planned):
    limit = read_process_memory().data_bytes + 256 * MIB

    def batch_of(**asked):
        told = planned(limit, net={"depth": 2}, asked=asked)
        return next(fact.value for fact in told if isinstance(fact, Fact) and fact.name == "batch")

    plain = batch_of()
    assert batch_of(seen=(8, limit)) == plain
    assert batch_of(seen=(8, limit - 400 * MIB)) > plain + 4


def test_what_cannot_be_traced_ends_well_and_says_in_one_line_why(planned):
    first, ended = planned(GIB, fault="dynamic")
    assert first == TrialStage(stage="plan")
    assert "size depends on the data" in ended.detail
    assert "\n" not in ended.detail


def test_asked_for_a_policy_it_names_the_cheapest_with_which_the_batch_fits(planned):
    """Four blocks keep 64 MiB each at batch 16, none of it a product's: 388 MiB in all, 197 when that is recomputed."""
    net = {"depth": 4, "spread": 4096}

    def ask(limit_bytes):
        told = planned(limit_bytes, batch=16, asked={"asks": "policy"}, net=net)
        assert told[-1] == RankEnd()
        return {fact.name: fact.value for fact in told if isinstance(fact, Fact)}

    roomy = read_process_memory().data_bytes + 2 * GIB
    assert ask(roomy) == {}
    assert ask(read_process_memory().data_bytes + 320 * MIB) == {"policy selective": 1.0}
    assert ask(MIB) == {}


def test_asked_for_the_most_it_names_the_cheapest_with_which_as_many_fit_as_with_any(planned):
    net = {"depth": 4, "spread": 4096}

    def ask(cap, asks="policy"):
        # what the questions before took stays with this process
        limit_bytes = read_process_memory().data_bytes + 320 * MIB
        told = planned(limit_bytes, batch=cap, asked={"asks": asks}, net=net)
        assert told[-1] == RankEnd()
        return {fact.name: fact.value for fact in told if isinstance(fact, Fact)}

    # a data set of 16 samples is reached without whole blocks, one of 8 without any policy
    assert ask(16, asks="most") == ask(16) == {"policy selective": 1.0}
    assert ask(8, asks="most") == {}
    # no policy holds 10,000 samples, and some hold more than 16
    assert ask(10_000) == {}
    ((name, factor),) = ask(10_000, asks="most").items()
    assert name.startswith("policy ")
    assert factor >= 1
