from gpudoc.process.cpu_load import CpuLoad
from gpudoc.profile.model import Loader
from gpudoc.tune.trial.messages import End, Point, Trial, TrialRequest, Variant


def test_equal_requests_have_one_key_and_others_do_not():
    one = TrialRequest(kind="fit", batches=(8,), variant=Variant(precision="bf16"))
    assert one.key() == TrialRequest(kind="fit", batches=(8,), variant=Variant(precision="bf16")).key()
    others = [
        TrialRequest(kind="steady", batches=(8,), variant=one.variant),
        TrialRequest(kind="fit", batches=(9,), variant=one.variant),
        TrialRequest(kind="fit", batches=(8,)),
        TrialRequest(kind="fit", batches=(8,), variant=one.variant, feed=Loader(num_workers=1)),
        TrialRequest(kind="fit", batches=(8,), variant=one.variant, repeat=1),
    ]
    assert len({one.key(), *(other.key() for other in others)}) == 6


def test_a_trial_survives_the_journal_unchanged():
    trial = Trial(
        request=TrialRequest(kind="speed", batches=(2, 4)),
        end=End.OOM_SHM,
        failed_batch=4,
        points=(Point(batch=2, peak_bytes=7, step_s=(0.1, 0.3, 0.2)),),
        measured={"settled": 1.0},
    )
    assert Trial.model_validate_json(trial.model_dump_json(exclude_defaults=True)) == trial
    assert trial.points[0].seconds == 0.2
    assert trial.points[0].samples_per_s == 10
    assert trial.point(4) is None


def test_a_timing_is_in_doubt_once_others_take_what_it_needed():
    def measured(kind="speed", **told):
        return Trial(request=TrialRequest(kind=kind, batches=(2,)), end=End.FITS, measured=told)

    assert measured(other_cpus=0.9, busy_share=1.0).is_disturbed
    assert not measured(other_cpus=0.1, busy_share=1.0).is_disturbed
    # with CPUs to spare only so many are felt that they fill memory and caches, which all share
    assert not measured(other_cpus=1.0, busy_share=0.3, other_share=1 / 16).is_disturbed
    assert measured(other_cpus=1.0, busy_share=0.5, other_share=1 / 4).is_disturbed
    assert measured(throttled_share=0.2).is_disturbed
    assert measured(stolen_share=0.05).is_disturbed
    assert not measured("fit", other_cpus=0.9, busy_share=1.0).is_disturbed
    assert not measured().is_disturbed


def test_what_was_seen_beside_a_trial_joins_what_it_measured():
    plain = Trial(request=TrialRequest(kind="speed", batches=(2,)), end=End.FITS, measured={"settled": 1.0})
    assert plain.beside(None) == plain
    found = plain.beside(CpuLoad(other_cpus=0.5, other_share=0.25, share=1.0, stolen_share=None))
    assert found.measured == {"settled": 1.0, "other_cpus": 0.5, "other_share": 0.25, "busy_share": 1.0}
    seen = CpuLoad(other_cpus=0.5, other_share=0.25, share=1.0, stolen_share=0.0, throttled_share=0.4)
    # a GPU shares no memory with the CPUs
    on_gpu = plain.beside(seen, on_gpu=True).measured
    assert on_gpu == {"settled": 1.0, "other_cpus": 0.5, "busy_share": 1.0, "stolen_share": 0, "throttled_share": 0.4}


def test_a_batch_that_training_accumulates_is_tried_in_two_micro_batches():
    request = TrialRequest(kind="fit", batches=(8,), accumulate_below=64, ranks=2)
    assert [request.num_micros(batch) for batch in (8, 31, 32, 100)] == [2, 2, 1, 1]
    assert TrialRequest(kind="fit", batches=(8,)).num_micros(1) == 1


def test_which_ends_a_smaller_batch_may_help():
    assert {end for end in End if end.is_too_large} == {
        End.OOM_DEVICE,
        End.OOM_WORKSPACE,
        End.OOM_HOST,
        End.OOM_CGROUP,
        End.OOM_SHM,
        End.ALLOCATOR_RETRY,
        End.INDEX_LIMIT,
        End.GRID_LIMIT,
    }
