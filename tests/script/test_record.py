from gpudoc.doctor import spinning
from gpudoc.process.openmp import OpenMp
from gpudoc.profile.store import load, save
from gpudoc.script.record import why
from gpudoc.script.remember import remembered
from gpudoc.tune.model.noise import Noise
from tests.script.pretended import result_of, searched


def test_the_profile_of_a_search_is_read_again_and_found_for_its_command(tmp_path):
    asked, found, session = searched()
    profile = result_of(asked, found, session).profile
    path = save(profile, tmp_path / "p.yaml")
    again = load(path)
    assert again == profile
    assert again.settings.loader.num_workers == 3
    assert again.settings.micro_batch == found.batch
    assert again.script.lever == "loader"
    assert again.script.tuned == ("loader", "batch")
    assert [(one.at, one.role, one.num_workers) for one in again.script.loaders] == [("train.py:7", "training", 0)]
    assert again.evidence.largest_batch == found.largest.batch
    assert again.evidence.speedup_interval[0] <= again.evidence.speedup_over_default
    assert {row.num_workers for row in again.evidence.loader} >= {0, 1, 3}
    taken = remembered(asked.command, again.hardware.model_copy(update={"torch": ""}), str(path))
    assert taken.profile == profile


def test_what_was_not_searched_stays_the_scripts_own():
    asked, found, session = searched(only="loader")
    profile = result_of(asked, found, session).profile
    assert profile.script.tuned == ("loader",)
    assert profile.settings.micro_batch == 8
    found.feed, found.why_kept = None, "kept"
    profile = result_of(asked, found, session).profile
    assert profile.script.tuned == ()
    assert profile.settings.loader.num_workers == 0
    assert "kept" in profile.why


def test_a_profile_names_no_place_and_nobody():
    asked, found, session = searched()
    text = result_of(asked, found, session).profile.model_dump_json()
    assert "/" not in "".join(one for one in text.split('"') if one.startswith("/"))


def test_why_no_batch_was_searched_is_kept():
    _, found, _ = searched(only="loader")
    found.why_no_lever = "train.py:7 uses a batch_sampler"
    assert "batch not searched: train.py:7 uses a batch_sampler" in why(found)


def test_what_others_disturbed_stands_before_all_reasons():
    asked, found, session = searched()
    told = {"other_cpus": 1.5, "busy_share": 1.0}
    disturbed = session.journal.trials[-1].model_copy(
        update={"measured": {**session.journal.trials[-1].measured, **told}}
    )
    session.journal.trials[-1] = disturbed
    profile = result_of(asked, found, session).profile
    assert profile.evidence.disturbed_trials == 1
    assert profile.why[0].startswith("other processes kept up to 1.5 CPUs busy during 1 of ")


def test_threads_that_spin_beside_others_are_named_where_the_cpu_computes(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("gpudoc.facts.host.cpus_usable", lambda: 2.0)
    monkeypatch.setattr(spinning, "own_openmp", lambda: OpenMp("libgomp"))
    _, found, _ = searched(only="loader")
    noise = Noise(1, 1, 1.0)
    assert why(found, noise, "cpu")[1].endswith("export OMP_WAIT_POLICY=passive")
    assert not [sentence for sentence in why(found, noise, "cuda") if "OMP_WAIT_POLICY" in sentence]
