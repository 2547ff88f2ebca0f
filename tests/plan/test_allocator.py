"""Cases worked out by hand from the rules of c10/cuda/CUDACachingAllocator.cpp."""

import pytest

from gpudoc.plan.allocator import CachingAllocator, OutOfMemoryError, StoryPart, replay_parts

KIB, MIB = 1 << 10, 1 << 20


def test_one_byte_takes_512_and_reserves_a_small_segment_of_2_mib():
    allocator = CachingAllocator()
    allocator.allocate(1)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (512, 2 * MIB)


def test_up_to_1_mib_comes_from_small_segments_and_513_bytes_round_to_1024():
    allocator = CachingAllocator()
    allocator.allocate(513)
    allocator.allocate(MIB)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (1024 + MIB, 2 * MIB)


def test_between_1_and_10_mib_a_segment_of_20_mib_is_split():
    allocator = CachingAllocator()
    allocator.allocate(3 * MIB)
    allocator.allocate(9 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    allocator.allocate(8 * MIB + 1)  # 8 MiB are left of the first segment, one byte too few
    assert allocator.reserved_bytes == 40 * MIB


def test_from_10_mib_on_a_segment_is_rounded_to_2_mib():
    allocator = CachingAllocator()
    allocator.allocate(10 * MIB)
    allocator.allocate(11 * MIB)
    assert allocator.reserved_bytes == (10 + 12) * MIB


def test_a_remainder_of_at_most_1_mib_stays_with_a_large_block():
    allocator = CachingAllocator()
    allocator.allocate(11 * MIB)
    assert allocator.allocated_bytes == 12 * MIB


def test_the_best_fitting_free_block_is_taken():
    allocator = CachingAllocator()
    large, small = allocator.allocate(40 * MIB), allocator.allocate(12 * MIB)
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(12 * MIB) == small
    assert allocator.reserved_bytes == 52 * MIB


def test_free_neighbours_join_so_that_a_larger_block_fits_again():
    allocator = CachingAllocator()
    parts = [allocator.allocate(5 * MIB) for _ in range(4)]
    assert allocator.reserved_bytes == 20 * MIB
    for part in parts:
        allocator.free(part)
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 20 * MIB


def test_blocks_with_a_living_one_between_them_do_not_join():
    allocator = CachingAllocator()
    first, _middle, last = (allocator.allocate(size * MIB) for size in (8, 4, 8))
    allocator.free(first)
    allocator.free(last)
    allocator.allocate(9 * MIB)
    assert allocator.reserved_bytes == 40 * MIB


def test_small_and_large_pools_do_not_mix():
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(8 * MIB))
    allocator.allocate(KIB)
    assert allocator.reserved_bytes == 22 * MIB


def test_at_the_limit_free_segments_are_given_back_and_the_allocation_is_tried_again():
    allocator = CachingAllocator(40 * MIB)
    allocator.free(allocator.allocate(30 * MIB))
    allocator.allocate(32 * MIB)
    assert (allocator.reserved_bytes, allocator.retries) == (32 * MIB, 1)


def test_a_segment_with_a_living_block_cannot_be_given_back():
    allocator = CachingAllocator(40 * MIB)
    first = allocator.allocate(8 * MIB)
    allocator.allocate(8 * MIB)
    allocator.free(first)
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(30 * MIB)


def test_expandable_segments_grow_by_20_mib_and_leave_no_gaps_between_sizes():
    allocator = CachingAllocator(expandable=True)
    allocator.allocate(30 * MIB)
    assert allocator.reserved_bytes == 40 * MIB
    allocator.allocate(30 * MIB)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (60 * MIB, 60 * MIB)


def test_expandable_segments_extend_a_free_tail_instead_of_reserving_anew():
    plain, expandable = CachingAllocator(), CachingAllocator(expandable=True)
    for allocator in (plain, expandable):
        allocator.free(allocator.allocate(20 * MIB))
        allocator.allocate(40 * MIB)
    assert (plain.reserved_bytes, expandable.reserved_bytes) == (60 * MIB, 40 * MIB)


def test_expandable_segments_unmap_their_tail_at_the_limit():
    allocator = CachingAllocator(64 * MIB, expandable=True)
    allocator.free(allocator.allocate(60 * MIB))
    allocator.allocate(MIB)
    allocator.allocate(MIB)
    allocator.allocate(512)
    assert allocator.reserved_bytes == 64 * MIB
    allocator.allocate(512 * KIB)
    assert allocator.retries == 0
    for _ in range(3):
        allocator.allocate(MIB)
    assert (allocator.retries, allocator.reserved_bytes) == (1, 6 * MIB)


def test_a_replay_reports_peaks_and_whether_all_of_it_fitted():
    story = [StoryPart([30 * MIB, 20 * MIB, 12 * MIB], [0, 1, ~0, 2, ~1, ~2])]
    free = replay_parts(story)
    assert free.fits
    assert free.allocated_peak_bytes == 50 * MIB
    assert free.reserved_peak_bytes == 50 * MIB
    assert not replay_parts(story, 40 * MIB).fits


def test_every_byte_is_returned_after_many_random_allocations():
    import random

    draw = random.Random(1)
    allocator, living = CachingAllocator(), []
    for _ in range(3000):
        if living and draw.random() < 0.5:
            allocator.free(living.pop(draw.randrange(len(living))))
        else:
            living.append(allocator.allocate(draw.choice((1, 700, 300 * KIB, 3 * MIB, 15 * MIB))))
        assert len(set(living)) == len(living)
        assert allocator.allocated_bytes <= allocator.reserved_bytes
    for address in living:
        allocator.free(address)
    assert allocator.allocated_bytes == 0
    allocator.limit_bytes = allocator.reserved_bytes
    allocator.allocate(allocator.reserved_bytes)
    assert allocator.reserved_bytes == allocator.limit_bytes, "every segment must have become whole again"


def test_what_one_stream_allocated_is_not_given_to_another():
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(15 * MIB, stream=1))
    allocator.allocate(15 * MIB)
    assert allocator.reserved_bytes == 32 * MIB
    allocator.allocate(15 * MIB, stream=1)
    assert allocator.reserved_bytes == 32 * MIB


def test_at_the_limit_the_segments_of_every_stream_are_given_back():
    allocator = CachingAllocator(32 * MIB)
    allocator.free(allocator.allocate(30 * MIB, stream=1))
    allocator.allocate(30 * MIB)
    assert (allocator.retries, allocator.reserved_bytes) == (1, 30 * MIB)


@pytest.mark.parametrize("rising", [False, True])
def test_of_free_blocks_of_one_size_the_lowest_address_is_taken(rising):
    allocator = CachingAllocator(rising=rising)
    first, second = allocator.allocate(30 * MIB), allocator.allocate(30 * MIB)
    assert (first < second) is rising
    allocator.free(first)
    allocator.free(second)
    assert allocator.allocate(30 * MIB) == min(first, second)


def test_the_parts_of_a_story_share_one_allocator_and_may_have_sizes_of_their_own():
    kept = StoryPart([30 * MIB, 20 * MIB], [0, 1, ~1])
    smaller = StoryPart([30 * MIB, 12 * MIB], [1, ~1, ~0])
    story = replay_parts([kept, smaller])
    assert (story.reserved_peak_bytes, story.allocated_peak_bytes) == (50 * MIB, 50 * MIB)
    assert replay_parts([kept, smaller], 50 * MIB).fits
    assert not replay_parts([kept, smaller], 48 * MIB).fits
    larger = StoryPart([30 * MIB, 22 * MIB], [1, ~1])
    assert replay_parts([kept, larger], 52 * MIB).retries == 1
