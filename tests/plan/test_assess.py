import json

import pytest

from gpudoc import plan
from gpudoc.errors import GpudocError
from gpudoc.workload.build import load_workload


@pytest.fixture(scope="module")
def result():
    return plan.targets(load_workload("quickstart"), ["RTX 3090", "T4", "1GiB"])


def test_every_target_gets_its_answer_in_order(result):
    assert [answer.target.name for answer in result.answers] == ["RTX 3090", "T4", "1GiB"]
    large, _, small = result.answers
    assert large.largest_batch > small.largest_batch > 0
    assert large.precision == "bf16"
    assert result.answers[1].precision == "fp16"
    assert result.all_fit


def test_the_peak_is_inside_the_memory_and_inside_its_interval(result):
    for answer in result.answers:
        assert answer.peak_bytes <= answer.target.memory_bytes
        assert answer.interval[0] <= answer.peak_bytes <= answer.interval[1]
        low, high = answer.largest_batch_interval
        assert low <= answer.largest_batch <= high


def test_a_time_is_only_given_where_the_card_is_known(result):
    assert result.answers[0].least_step_s > 0
    assert result.answers[2].least_step_s is None


def test_the_document_has_what_the_contract_names(result):
    documents = json.loads(json.dumps(result.documents()))
    for document in documents:
        assert {"target", "memory_bytes", "fits", "largest_batch", "peak_bytes_at_1"} <= set(document)
        assert {"bytes_per_sample", "composition", "interval", "advice", "basis"} <= set(document)
        assert sum(document["composition"].values()) > 0
    assert documents[0]["basis"] == "traced"


def test_no_target_at_all_is_a_usage_error():
    with pytest.raises(GpudocError, match="no target"):
        plan.targets(load_workload("quickstart"), [" "])
