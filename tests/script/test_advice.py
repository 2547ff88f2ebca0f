import pytest

from gpudoc.profile.model import Loader
from gpudoc.script.advice import about_a_larger_batch, about_order, by_option, describe_loader, lines, said_not_set
from gpudoc.script.look import look_at
from tests.script.pretended import Pretended, loader, seen, session_of, steps

FEED = Loader(num_workers=6, prefetch_factor=4, pin_memory=True, persistent_workers=True)


def look(**built):
    return session_of(Pretended(), built=loader(**built)).runner.look


@pytest.mark.parametrize(
    ("through", "feed", "batch", "line"),
    [
        (
            "torch", FEED, None,
            "train.py:7: DataLoader(..., num_workers=6, prefetch_factor=4, pin_memory=True, persistent_workers=True)",
        ),
        ("torch", Loader(), None, "train.py:7: DataLoader(..., num_workers=0, pin_memory=False)"),
        ("torch", None, 64, "train.py:7: DataLoader(..., batch_size=64)"),
        (
            "transformers", FEED, 64,
            ("train.py:7: TrainingArguments(..., per_device_train_batch_size=64, dataloader_num_workers=6, "
            "dataloader_prefetch_factor=4, dataloader_pin_memory=True, dataloader_persistent_workers=True)"),
        ),
        (
            "lightning", Loader(num_workers=2), None,
            ("train.py:7: train_dataloader() returns DataLoader(..., num_workers=2, prefetch_factor=2, "
            "pin_memory=False, persistent_workers=False)"),
        ),
    ],
)  # fmt: skip
def test_the_line_is_in_the_words_of_whoever_builds_the_loader(through, feed, batch, line):
    assert [str(one) for one in lines(look(through=through), feed, batch)] == [line]


def test_that_workers_kept_over_epochs_change_the_order_of_a_loader_that_shuffles_is_said():
    assert "the second and later epochs are shuffled differently" in about_order(look(sampler="RandomSampler"), FEED)
    assert about_order(look(sampler="SequentialSampler"), FEED) == ""
    assert about_order(look(sampler="RandomSampler", persistent_workers=True), FEED) == ""
    assert about_order(look(sampler="RandomSampler"), Loader(num_workers=6)) == ""
    assert about_order(look(sampler="RandomSampler"), None) == ""


def test_there_is_no_line_where_nothing_changes_or_no_loader_trains():
    assert lines(look(), None, None) == ()
    assert lines(look(number=4), FEED, None) == ()


def test_a_trainer_may_read_its_arguments_from_the_command_line():
    assert by_option(look(through="transformers"), FEED) == (
        "--dataloader_num_workers 6 --dataloader_pin_memory True --dataloader_prefetch_factor 4 "
        "--dataloader_persistent_workers True"
    )
    assert by_option(look(), FEED) == ""


def test_a_larger_batch_comes_with_the_rules_of_scaling_and_with_who_decides():
    told = " ".join(about_a_larger_batch(look(), 32, "loader", 8))
    assert "learning rate x 4 with SGD" in told
    assert "x 2 with Adam" in told
    assert "--allow batch" in told
    assert "--allow batch" not in " ".join(about_a_larger_batch(look(), 32, "flag", 8))


def test_a_smaller_batch_is_accumulated_and_the_same_is_nothing_to_say():
    assert "accumulate 3 batches of 3" in " ".join(about_a_larger_batch(look(), 3, "loader", 8))
    assert about_a_larger_batch(look(), 8, "loader", 8) == ()


def test_precision_on_a_gpu_is_said_and_not_set():
    event = steps([0.1] * 5, [0.0] * 5, device="cuda:0", tf32=False)
    told = said_not_set(look_at([seen(event)], warm_steps=0, start_s=1.0))
    assert any("bfloat16" in sentence for sentence in told)
    assert any("TF32 is off" in sentence for sentence in told)
    assert said_not_set(look()) == ()


def test_a_loader_is_described_with_what_makes_it_special():
    built = loader(through="accelerate", own_batch_sampler=True, batch_size=None, num_workers=1)
    told = describe_loader(built, look())
    assert told.startswith("train.py:7 (built by accelerate): trains, no batch size, 1 worker,")
    assert "own batch_sampler" in told
