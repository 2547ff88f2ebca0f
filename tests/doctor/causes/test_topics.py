from __future__ import annotations

import pytest

from gpudoc.doctor.causes.topics import guess
from gpudoc.facts.readers import read
from tests.doctor.causes.judge import report_of

STRANGE = (
    "Traceback (most recent call last):\nRuntimeError: CUDA error: something never seen before\n"
    "It began when I moved the data set to a network share; loading files takes hours, copy is quick."
)


def test_words_of_every_report_weigh_less_than_one_that_tells_topics_apart():
    guesses = guess(read("gpu, memory: how slow is LD_LIBRARY_PATH with a wrong cudnn?").text, ())
    assert guesses[0].id == "library_path_shadows_bundled"
    assert guess(read("the gpu").text, ()) == ()


def test_a_guess_is_never_sure():
    guesses = guess(read("the images lie on a slow disk, reading the files takes hours").text, ())
    assert guesses[0].id == "slow_storage"
    assert all(g.severity == "info" and g.confidence <= 0.3 for g in guesses)
    assert guess(read("a disk").text, ()) == ()


def test_what_was_found_is_not_guessed_again():
    text = read("the images lie on a slow disk, reading the files takes hours").text
    assert "slow_storage" not in [g.id for g in guess(text, ["slow_storage"])]
    assert len(guess(text, ())) <= 3


def test_guesses_stand_under_an_unknown_verdict_and_do_not_change_it():
    report = report_of(STRANGE)
    assert report.verdict in ("unknown", "warning")
    assert report.findings


def test_a_healthy_text_is_not_guessed_about():
    report = report_of(
        "Epoch 1 step 2 loss 3.0\nEpoch 1 step 3 loss 2.9\nthe model uses little gpu memory at this batch size"
    )
    assert not [f for f in report.findings if f.confidence < 0.3]


def test_a_complaint_without_any_mechanism_gets_a_guess_and_is_unknown_not_healthy():
    report = report_of(
        "The epochs on my GPU take far too long, the images lie on a disk and are read by one loop. Why so slow?"
    )
    assert report.verdict == "unknown"
    assert report.findings


def test_causes_of_installation_are_guessed_too():
    text = "Something is wrong with the triton of my environment, why does inductor end in an AttributeError?"
    assert guess(read(text).text, ())[0].id == "triton_torch_mismatch"
    text = "Strange: os.environ sets CUDA_VISIBLE_DEVICES after the import of torch, and gpu 0 is filled"
    assert guess(read(text).text, ())[0].id == "visible_devices_set_too_late"


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("vgpu_unlicensed", "Something is strange with the license of our GRID in each virtual machine"),
        ("mig_enabled_no_instance", "Strange things with MIG on an A100, why?"),
        ("fabric_manager_not_running", "Why is the HGX with its nvswitch strange since today?"),
        ("wsl_windows_or_kernel_too_old", "What is wrong with wsl after the insider build?"),
        ("jetson_generic_wheel", "The wheel on my jetson (aarch64) is strange, why?"),
        ("nouveau_loaded", "Why is nouveau in my initramfs, is that a problem?"),
        ("container_toolkit_missing", "A problem with nvidia-container and the device-plugin"),
    ],
)
def test_causes_of_driver_and_device_are_guessed_too(cause, text):
    assert guess(read(text).text, ())[0].id == cause


def test_a_plain_complaint_about_slowness_is_guessed_to_be_the_wrong_device_or_the_loader():
    report = report_of("Training is slow on my machine. Why? An epoch takes the whole night")
    assert report.findings[0].id == "training_on_cpu"
    assert "dataloader_bottleneck" in [f.id for f in report.findings]
    assert {f.severity for f in report.findings} == {"info"}


def test_single_words_place_a_text_that_no_topic_names():
    """No topic is about checkpoints; the words that people use for them were learned."""
    text = read(
        "With save_steps at 10 the trainer writes a checkpoint of nine gigabytes again and again, and writing the state "
        "of the optimizer takes longer than the steps between; saving less often made the whole run twice as quick."
    ).text
    guesses = guess(text, ())
    assert guesses[0].id == "checkpoint_too_often"
    assert guesses[0].confidence <= 0.3
    assert {o.value.lower() for o in guesses[0].evidence} & {"save_steps", "checkpoint", "saving", "often"}


def test_words_of_a_text_in_which_nothing_is_wrong_are_no_ground_for_a_guess():
    text = read(
        "How do I change the learning rate schedule in the config file? I would like a cosine schedule with warmup and "
        "to train on my own data set of images; the problem is that I do not know the name of the option."
    ).text
    assert guess(text, ()) == ()
