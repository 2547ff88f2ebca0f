import pytest

from gpudoc.script.outcome import divergence, refusal, trial_of
from gpudoc.tune.trial.messages import End, TrialRequest
from tests.script.pretended import error, seen, steps, told

REQUEST = TrialRequest(kind="fit", batches=(16,))
EIGHT = steps([0.1] * 8, [0.02] * 8, samples=16)


def trial(launch, request=REQUEST):
    return trial_of(request, launch, warm_steps=0)


def test_measured_steps_are_a_trial_that_fits():
    found = trial(told(seen(EIGHT)))
    assert found.fits
    assert found.point(16).peak_bytes == 100 << 20
    assert found.point(16).samples_per_s == pytest.approx(160.0)
    assert found.measured["samples_per_s"] == pytest.approx(160.0)
    assert found.measured["wait_share"] == pytest.approx(0.2)


def test_a_step_of_several_batches_counts_as_so_many():
    found = trial(told(seen(steps([0.4] * 8, [0.0] * 8, samples=64))))
    assert found.point(16).seconds == pytest.approx(0.1)
    assert found.point(16).samples_per_s == pytest.approx(160.0)


@pytest.mark.parametrize(
    ("text", "types", "end"),
    [
        ("CUDA out of memory. Tried to allocate 2 GiB", ("OutOfMemoryError",), End.OOM_DEVICE),
        ("CUDNN_STATUS_ALLOC_FAILED", ("RuntimeError",), End.OOM_WORKSPACE),
        ("[enforce fail] DefaultCPUAllocator: can't allocate memory", ("RuntimeError",), End.OOM_HOST),
        ("unable to write to file </torch_1_2>: No space left on device (28)", ("RuntimeError",), End.OOM_SHM),
    ],
)
def test_running_out_of_memory_is_told_by_the_exception_whatever_the_launcher_ends_with(text, types, end):
    found = trial(told(seen(EIGHT, error=error(text, *types)), status=1))
    assert found.end is end
    assert found.failed_batch == 16


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"status": -9, "cgroup_killed": True}, End.OOM_CGROUP),
        ({"status": 1, "cgroup_killed": True}, End.OOM_CGROUP),
        ({"status": -9}, End.SIGNAL),
        ({"status": -7}, End.OOM_SHM),
        ({"status": 1, "tail": "torch.OutOfMemoryError: CUDA out of memory."}, End.OOM_DEVICE),
        ({"status": 1, "tail": "ValueError: wrong"}, End.USER_ERROR),
        ({"status": 0}, End.USER_ERROR),
        ({"timed_out": True}, End.HANG),
    ],
)
def test_every_other_end_is_told_by_what_is_left(changes, end):
    assert trial(told(seen(), **changes)).end is end


def test_a_script_that_ends_by_itself_after_enough_steps_fits():
    assert trial(told(seen(EIGHT), status=0)).fits
    assert trial(told(seen(EIGHT), timed_out=True)).fits


@pytest.mark.parametrize(
    ("launch", "says", "hint"),
    [
        (told(status=0), "without importing torch", "command that trains"),
        (told(status=2, tail="usage: train.py\ntrain.py: error: bad"), "train.py: error: bad", ""),
        (told(timed_out=True), "imported no torch within", "--budget"),
        (told(seen(), status=0), "no optimizer step before it ended with code 0 (1 DataLoader seen)", "trains"),
        (told(seen(), timed_out=True), "no optimizer step within", "--budget"),
        (told(seen(steps([1.0], [0.0])), status=0), "only 1 optimizer step before", "longer"),
        (told(status=1, tail="EOFError: EOF when reading a line"), "EOFError", "no terminal"),
        (
            told(seen(error=error("Target 3 is out of bounds.", "IndexError")), status=1),
            "fails even unchanged: IndexError: Target 3",
            "gpudoc doctor -- COMMAND",
        ),
        (
            told(status=1, tail="socket.gaierror: Temporary failure in name resolution", has_network=False),
            "fails even unchanged",
            "--allow network",
        ),
    ],
)
def test_a_launch_without_steady_steps_is_refused_with_what_to_type(launch, says, hint):
    found = refusal(launch, "train.py")
    assert says in found.message
    assert hint in found.hint


def test_a_long_error_is_cut_between_two_words():
    long = error("the size of tensor a must match the size of tensor b " * 20, "RuntimeError")
    message = refusal(told(seen(error=long), status=1), "train.py").message
    assert message.endswith("...")
    assert message.removesuffix("...").rpartition(" ")[2] in ["the", "size", "of", "tensor", "a", "must", "match", "b"]


def test_a_hook_that_stepped_aside_is_said():
    assert "no such loader" in refusal(told(seen(asides=("no such loader",)), status=0), "train.py").message


NAN = steps([0.1] * 8, [0.02] * 8, samples=16, finite=False)


@pytest.mark.parametrize("kind", ["joint", "default", "loader", "speed"])
def test_a_trial_whose_weights_are_no_numbers_is_no_speed_to_compare(kind):
    found = trial(told(seen(NAN)), TrialRequest(kind=kind, batches=(16,)))
    assert found.end is End.USER_ERROR
    assert found.detail == "the weights are NaN or infinite after 8 optimizer steps: it trains differently"


def test_what_fits_is_no_question_of_what_is_learned():
    assert trial(told(seen(NAN))).end is End.FITS
    assert trial(told(seen(steps([0.1] * 8, [0.02] * 8, finite=True))), TrialRequest(kind="joint", batches=())).fits


def test_why_a_training_that_learns_nothing_is_not_tuned():
    said = divergence(told(seen(NAN)), "train.py")
    assert said.exit_code == 1
    assert said.message.startswith(
        "train.py learns nothing even unchanged: its weights are NaN or infinite after 8 optimizer"
    )
    assert "learning rate" in said.hint
