"""Which of several processes this one is, and that they find each other."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from gpudoc.errors import GpudocError
from gpudoc.train.ranks.meeting import Place, meet, place_here


def test_a_process_that_nobody_placed_has_no_place():
    assert place_here({}) is None


def test_the_place_is_read_from_torchruns_variables():
    found = place_here(
        {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "2"}
    )
    assert found == Place(rank=3, world=4, local_rank=1, local_world=2, restarts=2)
    assert not found.is_one_node


@pytest.mark.parametrize(("rank", "world"), [("x", "2"), ("2", "2"), ("-1", "2")])
def test_places_that_cannot_be_are_named(rank, world):
    with pytest.raises(GpudocError):
        place_here({"RANK": rank, "WORLD_SIZE": world})


def test_ranks_meet_though_the_store_remembers_an_attempt_that_died():
    """Rank 1 comes first and finds the dead rank 0's name; it must not take it for the living one's."""
    store = HashStore()
    store.set_timeout(timedelta(seconds=30))
    store.set("gpudoc/attempt", "dead")
    store.set("gpudoc/dead/hello/1", "somebody")
    found = {}

    def arrive(rank):
        found[rank] = meet(Place(rank=rank, world=2, local_rank=rank, local_world=2), store)

    late = threading.Thread(target=arrive, args=(1,))
    late.start()
    late.join(0.5)
    assert late.is_alive()
    arrive(0)
    late.join(30)
    found[0].set("said", "by 0")
    assert found[1].get("said") == b"by 0"
