from gpudoc.tune.model.noise import noise_of
from gpudoc.tune.trial.messages import End, Trial, TrialRequest


def trial(kind="speed", others=0.0, share=1.0, end=End.FITS, **measured):
    request = TrialRequest(kind=kind, batches=(8,))
    return Trial(request=request, end=end, measured={"other_cpus": others, "busy_share": share, **measured})


def test_only_timings_are_counted_and_the_most_is_said():
    noise = noise_of([trial(others=1.0), trial("variant", others=1.9), trial(), trial("fit", others=2.0)])
    assert (noise.num_disturbed, noise.num_timed, noise.most_cpus) == (2, 3, 1.9)
    assert str(noise).startswith("other processes kept up to 1.9 CPUs busy during 2 of 3 timings, ")


def test_a_quiet_search_has_no_noise():
    assert noise_of([trial(), trial(others=4.0, share=0.5), trial(others=1.0, end=End.OOM_HOST)]) is None


def test_what_no_other_process_did_is_said_as_what_it_is():
    stolen, throttled = trial(stolen_share=0.3), trial(throttled_share=0.25)
    assert str(noise_of([stolen, throttled, trial()])) == (
        "a hypervisor took up to 30% of the CPU time, the cgroup's CPU quota was used up in 25% of its periods "
        "during 2 of 3 timings, so the speeds and the settings chosen from them are in doubt"
    )
