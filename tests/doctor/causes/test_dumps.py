"""Which rank is missing, which calls differ, and what filled a GPU, from dumps of several ranks."""

import pickle

import pytest

from gpudoc.doctor.examine import examine_text
from gpudoc.units import MIB
from tests.facts.readers.test_dumps import call, recorded, snapshot


def report(**dumps):
    return examine_text([(name, pickle.dumps(content)) for name, content in dumps.items()])


def told(found):
    return " | ".join(f"{seen.fact}: {seen.value} ({seen.origin})" for seen in found.evidence)


def ranks(*calls, of):
    """The first ranks of a job with the calls that each of them recorded."""
    whole = str(list(range(of)))
    dumps = [recorded(list(own), enqueued=own[-1]["record_id"], ranks=whole) for own in calls]
    return report(**{f"rank_{rank}": dump for rank, dump in enumerate(dumps)})


DONE, WAITS = call(7), call(8, state="started")


def test_the_rank_that_did_not_come_is_named_with_the_line_where_the_others_wait():
    found = ranks((DONE, WAITS), (DONE,), (DONE, WAITS), of=3)
    first = found.findings[0]
    assert first.id == "nccl_timeout_one_rank_busy"
    assert first.title == "Rank 1 did not come to the collective in which the others wait at train.py:42 in step"
    assert "rank 1 got only as far as collective 7, all_reduce" in told(first)
    assert found.verdict == "broken"
    assert found.recognised == ("NCCL flight recorder",)


def test_a_rank_without_a_dump_is_missing_too():
    first = ranks((WAITS,), (WAITS,), of=3).findings[0]
    assert first.title.startswith("Rank 2 did not come")
    assert "no dump of rank 2" in told(first)


@pytest.mark.parametrize("other", [{"name": "broadcast"}, {"sizes": ((4, 9),)}])
def test_ranks_in_different_calls_are_told_from_a_late_one(other):
    first = ranks((DONE, WAITS), (DONE, call(8, state="started", **other)), (DONE, WAITS), of=2).findings[0]
    assert (first.id, first.title) == ("collective_mismatch", "Rank 1 calls a different collective from rank 0")
    assert "rank 1: collective 8" in told(first)


def test_ranks_that_are_alike_are_no_finding():
    assert ranks((DONE, call(8)), (DONE, call(8)), of=2).findings == ()


@pytest.mark.parametrize(
    ("pieces", "cause"), [((40, 40), "oom_fragmentation"), ((80, 0), "oom_capacity"), ((10, 10), "oom_capacity")]
)
def test_a_snapshot_tells_a_full_gpu_from_one_in_pieces(pieces, cause):
    """64 MiB were asked for: free in two pieces of 40, in one of 80 that another stream may own, or not at all."""
    blocks = [(500 * MIB, "active_allocated"), *((size * MIB, "inactive") for size in pieces if size)]
    found = report(memory=snapshot(blocks, {"action": "oom", "addr": 0, "size": 64 * MIB}))
    first = found.findings[0]
    assert first.id == cause
    assert "500 MiB held from train.py:42 in step (memory, GPU 0)" in told(first)
    assert found.recognised == ("CUDA memory snapshot",)


def test_a_snapshot_of_a_gpu_that_did_not_run_out_is_no_finding():
    assert report(memory=snapshot([(500 * MIB, "active_allocated")])).findings == ()


def test_a_snapshot_that_train_wrote_names_the_request_and_whose_the_memory_is():
    """Without a recording of the allocator there is no entry of the request, and no block knows where it was made."""
    written = {"device": 0, "wanted_bytes": 64 * MIB, "device_free_bytes": None}
    owners = {"weights": 100 * MIB, "gradients": 0, "optimizer": 200 * MIB}
    content = snapshot([(500 * MIB, "active_allocated")])
    content["segments"][0]["blocks"][0].pop("frames")
    first = report(memory={**content, "gpudoc": {**written, "owners": owners}}).findings[0]
    assert first.id == "oom_capacity"
    assert "64 MiB were asked for" in told(first)
    expected = "weights 100 MiB, gradients 0 B, optimizer 200 MiB, activations and all else 200 MiB"
    assert f"owner: {expected} (memory, GPU 0)" in told(first)
    assert "not recorded" not in told(first)


def test_where_the_allocator_was_recorded_its_own_figures_count():
    content = snapshot([(500 * MIB, "active_allocated")], {"action": "oom", "addr": 0, "size": 70 * MIB})
    first = report(memory={**content, "gpudoc": {"device": 0, "wanted_bytes": 64 * MIB, "owners": {}}}).findings[0]
    assert "70 MiB were asked for" in told(first)
    assert "500 MiB held from train.py:42 in step" in told(first)
