"""What a look is evidence of, where it takes arithmetic."""

import pytest

from gpudoc.fix.evidence import read_evidence
from gpudoc.script.look import look_at
from gpudoc.script.messages import LinesSeen
from tests.script.pretended import loader, seen, steps, told

LINES = LinesSeen(at=0.0, looks=100, hot=(), keeps=(), no_backward=(), anomaly=False, threads=1, computing=80)


def evidence(waits, *, parameters="float32", **built):
    """Of steps of a tenth of a second without waiting, in epochs of ten steps."""
    event = steps([0.1 + wait for wait in waits], waits, parameters=parameters)
    known = {"length": 10, "num_workers": 2, **built}
    process = seen(event, loaders=[loader(**known)], lines=LINES)
    return read_evidence(told(process), look_at((process,), warm_steps=0, start_s=1.0), None)


EPOCH = [0.0] * 9


def test_how_long_new_workers_take_is_measured_from_the_second_epoch_on():
    # the imports of the first start are no part of it
    share = evidence([5.0, *EPOCH, 1.0, *EPOCH, 1.0, *EPOCH]).worker_start_share
    assert share == pytest.approx(1.0 / (1.0 + 10 * 10.0 / 30), rel=0.01)
    assert evidence([0.0, *EPOCH, 0.0, *EPOCH]).worker_start_share == 0


@pytest.mark.parametrize("built", [{"num_workers": 0}, {"persistent_workers": True}, {"length": None}])
def test_where_no_worker_starts_again_nothing_is_measured(built):
    assert evidence([1.0, *EPOCH, 1.0, *EPOCH], **built).worker_start_share is None


def test_a_look_that_ends_in_the_first_epoch_measured_no_start():
    assert evidence([1.0, *EPOCH]).worker_start_share is None


def test_double_precision_counts_where_the_weights_have_it():
    assert evidence(EPOCH, parameters="float64").float64_share == 0.8
    assert evidence(EPOCH).float64_share == 0.0


@pytest.mark.parametrize(("grown", "grows"), [(None, False), (0, False), (4 << 20, False), (50 << 20, True)])
def test_an_evaluation_takes_more_memory_where_the_peak_grew_in_it_by_more_than_a_twentieth(grown, grows):
    process = seen(steps([0.1] * 9, EPOCH), lines=LINES.model_copy(update={"evaluation_bytes": grown}))
    assert read_evidence(told(process), look_at((process,), warm_steps=0, start_s=1.0), None).evaluation_grows is grows
