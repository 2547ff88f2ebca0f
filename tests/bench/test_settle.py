import pytest

from gpudoc.bench.settle import interval, merge_contexts, settle, split_enough
from tests.bench.builders import reading


def test_a_value_is_the_median_of_the_processes_so_that_one_bad_one_does_not_count():
    rounds = [reading(samples=(value,) * 9, round=index) for index, value in enumerate((40.0, 25.0, 41.0))]
    (row,) = settle(rounds)
    assert row.value == 40.0
    # mean 35.3, standard deviation 8.96: 4.303 * 8.96 / sqrt(3) to either side
    assert (row.low, row.high) == (pytest.approx(13.06, abs=0.05), pytest.approx(57.6, abs=0.05))
    assert row.rounds == ((40.0,) * 9, (25.0,) * 9, (41.0,) * 9)


def test_the_interval_holds_the_pooled_spread_and_every_process():
    (row,) = settle([reading(samples=tuple(float(v) for v in range(1, 12)))])
    assert (row.p10, row.p50, row.p90) == (2.0, 6.0, 10.0)
    assert (row.low, row.high) == (2.0, 10.0)


def test_an_interval_grows_with_what_the_processes_disagree_and_shrinks_with_their_number():
    assert interval([40.0]) == (40.0, 40.0)
    assert interval([40.0, 40.0, 40.0]) == (40.0, 40.0)
    two, three = interval([40.0, 41.0]), interval([40.0, 40.5, 41.0])
    assert two[0] < three[0] < 40.0 < 41.0 < three[1] < two[1]
    assert interval([1.0, 50.0])[0] == 0.0


def test_rows_keep_their_order_and_only_equal_keys_are_joined():
    rows = settle(
        [reading("b"), reading("a"), reading("b"), reading("b", parameters={"bytes": 1}), reading("c", samples=())]
    )
    assert [(row.name, len(row.rounds)) for row in rows] == [("b", 2), ("a", 1), ("b", 1)]


def test_corruption_in_any_round_stays():
    (row,) = settle([reading(), reading(corrupted="wrong bytes"), reading()])
    assert row.corrupted == "wrong bytes"


def test_contexts_keep_the_worst_where_the_worst_matters():
    merged = merge_contexts(
        [
            reading(context={"sm_clock_mhz": 1000.0, "stolen_share": 0.0, "other_cpus_max": 0.0}),
            reading(context={"sm_clock_mhz": 1400.0, "stolen_share": 0.2}),
            reading(context={"sm_clock_mhz": 1500.0, "other_cpus_max": 1.5}),
        ]
    )
    assert merged == {"sm_clock_mhz": 1400.0, "stolen_share": pytest.approx(0.2), "other_cpus_max": 1.5}


def test_the_units_of_a_core_are_what_the_least_disturbed_process_found():
    found = (8.0, 16.0, 8.0)
    merged = merge_contexts([reading(context={"fp32_fma_per_cycle": value}) for value in found])
    assert merged == {"fp32_fma_per_cycle": 16.0}


def test_a_row_with_too_few_samples_in_all_processes_together_is_named_and_not_shown():
    made = settle(
        [reading("a", samples=(1.0,) * 3), reading("a", samples=(1.0,) * 4), reading("b", samples=(1.0,) * 6)]
    )
    enough, few = split_enough(made)
    assert [row.name for row in enough] == ["a"]
    assert [one.case.split()[0] for one in few] == ["b"]
    assert few[0].because.startswith("6 of 7 samples")


def test_wrong_data_is_shown_however_few_samples_there_are():
    enough, few = split_enough(settle([reading(samples=(1.0,), corrupted="wrong bytes")]))
    assert len(enough) == 1
    assert few == ()
