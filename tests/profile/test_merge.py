import pytest

from gpudoc.profile import store
from gpudoc.profile.merge import found_in, merge, save_better
from gpudoc.profile.model import (
    Hardware,
    Loader,
    LoaderTrial,
    Made,
    PartFound,
    Profile,
    ProfileEvidence,
    ProfileTrial,
    Settings,
    VariantTrial,
    WorkloadKey,
)

EARLIER, NOW = "2026-11-20T18:40:00+00:00", "2026-11-24T09:00:00+00:00"
SURE, NONE_FASTER = (1.4, 1.3, 1.5), (1.0, 1.0, 1.0)


def part(name, tried, times=None, at=NOW, **more):
    return PartFound(name=name, at=at, tried=tried, times=times, **more)


def profile(*parts, settings=None, at=NOW, **evidence):
    return Profile(
        made=Made(at=at, gpudoc="0.1.0", seconds=10.0, trials=4),
        hardware=Hardware(device="cpu", name="A CPU", memory_bytes=8 << 30, torch="2.13.0"),
        workload=WorkloadKey(config="net", model="m1", optimizer="AdamW"),
        settings=Settings.model_validate({"precision": "fp32", "micro_batch": 32, **(settings or {})}),
        evidence=ProfileEvidence(parts=parts, **evidence),
        why=(f"made at {at}",),
    )


def good(times=SURE, tried=6, **more):
    """An earlier search that found sleeping threads, a batch of 64 and four workers."""
    parts = [part(name, tried, times, at=EARLIER) for name in ("levers", "batch", "loader")]
    settings = {"wait_policy": "passive", "micro_batch": 64, "loader": Loader(num_workers=4)}
    return profile(*parts, settings=settings, at=EARLIER, samples_per_s=117.0, **more)


def nothing():
    """A search whose budget reached for the default alone."""
    return profile(part("levers", 0), part("batch", 0), part("loader", 0))


def test_a_search_that_tried_nothing_replaces_nothing():
    older = good()
    merged, kept = merge(older, nothing())
    assert merged is older
    assert [line.partition(" of ")[0] for line in kept] == ["the levers", "the batch", "the loader"]
    assert all("2026-11-20 18:40 UTC" in line and line.endswith("this search tried none") for line in kept)


def test_a_part_that_was_searched_again_is_taken_and_the_others_keep_their_evidence_and_date():
    older = good(loader=(LoaderTrial(num_workers=4, prefetch_factor=2, samples_per_s=90.0),))
    rows = (
        LoaderTrial(num_workers=4, prefetch_factor=2, samples_per_s=90.0),
        LoaderTrial(num_workers=6, prefetch_factor=2, samples_per_s=120.0),
    )
    newer = profile(
        part("levers", 0), part("batch", 0), part("loader", 6, (1.2, 1.1, 1.3)),
        settings={"loader": Loader(num_workers=6)}, loader=rows, samples_per_s=100.0,
    )  # fmt: skip
    merged, kept = merge(older, newer)
    assert (merged.settings.wait_policy, merged.settings.micro_batch) == ("passive", 64)
    assert merged.settings.loader.num_workers == 6
    assert {found.name: found.at for found in merged.evidence.parts} == {
        "levers": EARLIER,
        "batch": EARLIER,
        "loader": NOW,
    }
    # nobody timed them together
    assert (merged.evidence.samples_per_s, merged.evidence.speedup_over_default) == (None, None)
    assert merged.why[:2] == kept
    assert store.load(save_better(merged, _path(), is_named=False).path) == merged


def _path():
    return store.folder_to_write() / "p.yaml"


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (
            part("levers", 6, (1.1, 1.0, 1.2)),
            "the earlier search reached 1.40 times the default's speed, this one 1.10",
        ),
        (part("levers", 6, NONE_FASTER), "the earlier search reached 1.40 times"),
        (part("levers", 2, (1.35, 1.2, 1.5)), "this search tried 2, the earlier one 6"),
        (part("levers", 6, (1.35, 1.2, 1.5), disturbed=True), "this search was disturbed by other work"),
        (part("levers", 6, (1.35, 1.2, 1.5)), ""),
        (part("levers", 2, (1.8, 1.7, 1.9)), ""),
    ],
    ids=["slower", "none faster", "rests on less", "in doubt", "as good", "faster beyond doubt"],
)
def test_the_better_known_part_wins(now, why):
    merged, kept = merge(good(), profile(now, part("batch", 6, now.times), part("loader", 6, now.times)))
    told = [line for line in kept if line.startswith("the levers")]
    assert (merged.settings.wait_policy == "passive") == bool(why)
    assert [why in line for line in told] == ([True] if why else [])


def test_a_search_that_timed_the_earlier_choice_too_and_chose_otherwise_is_believed():
    tried = VariantTrial(name="threads that sleep", changes={"wait_policy": "passive"}, times=0.9)
    merged, kept = merge(
        good(),
        profile(
            *(part(name, 6, NONE_FASTER) for name in ("levers", "batch", "loader")),
            variants=(tried,),
            trials=(ProfileTrial(kind="speed", batch=64, fits=True, samples_per_s=50.0),),
            loader=(LoaderTrial(num_workers=4, prefetch_factor=2, samples_per_s=50.0),),
        ),
    )
    assert (merged.settings.wait_policy, merged.settings.micro_batch, kept) == ("default", 32, ())


def test_a_batch_is_known_only_under_the_precision_that_it_was_found_with():
    older = good()
    settings = older.settings.model_copy(update={"precision": "bf16", "micro_batch": 512})
    older = older.model_copy(update={"settings": settings})
    merged, kept = merge(older, profile(part("levers", 0), part("batch", 6, SURE), part("loader", 0)))
    assert (merged.settings.precision, merged.settings.micro_batch) == ("bf16", 512)
    assert any(line.endswith("it belongs to the levers") for line in kept)


@pytest.mark.parametrize(
    ("memory", "goal", "is_taken"),
    [
        (8 << 30, "throughput", False),
        (10 << 30, "throughput", True),
        (8 << 30, "largest", True),
        (8 << 30, None, False),
    ],
    ids=["the same question", "more memory", "another goal", "a goal that is not known"],
)
def test_a_batch_that_was_found_for_another_goal_or_in_less_memory_is_not_kept(memory, goal, is_taken):
    older = good(goal="throughput")
    newer = profile(part("levers", 2), part("batch", 2), part("loader", 0), settings={"micro_batch": 512}, goal=goal)
    newer = newer.model_copy(update={"hardware": newer.hardware.model_copy(update={"memory_bytes": memory})})
    merged, kept = merge(older, newer)
    assert merged.settings.micro_batch == (512 if is_taken else 64)
    assert merged.settings.wait_policy == ("default" if is_taken else "passive")
    # the loader does not depend on either
    assert merged.settings.loader.num_workers == 4
    assert [line.partition(" of ")[0] for line in kept][-1] == "the loader"


def test_profiles_that_do_not_say_their_parts_tell_them_by_their_trials():
    older = profile(
        at=EARLIER, variants=(VariantTrial(name="bf16", changes={"precision": "bf16"}, times=1.2),),
        largest_batch=118, speedup_over_default=1.87,
        loader=(LoaderTrial(num_workers=0, prefetch_factor=2, samples_per_s=9.0),),
    )  # fmt: skip
    assert [found_in(older, name).tried for name in ("levers", "batch", "loader")] == [1, 1, 0]
    assert found_in(older, "batch").times == (1.87, 1.87, 1.87)
    assert found_in(older, "batch").at == EARLIER


def test_what_is_there_for_something_else_or_unreadable_stays_and_the_file_beside_it_is_taken(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("not: a profile")
    other = good()
    other = other.model_copy(update={"workload": other.workload.model_copy(update={"optimizer": "SGD"})})
    store.save(other, tmp_path / "p-2.yaml")
    written = save_better(nothing(), path, is_named=False)
    assert written.path == tmp_path / "p-3.yaml"
    assert path.read_text() == "not: a profile"
    assert store.load(tmp_path / "p-2.yaml") == other
    # the next search finds its own again
    assert save_better(good(), path, is_named=False).path == written.path


def test_a_file_that_the_user_names_is_written_and_still_loses_nothing_of_the_same_workload(tmp_path):
    path = tmp_path / "p.yaml"
    store.save(good(), path)
    before = path.read_text()
    assert save_better(nothing(), path, is_named=True).kept
    assert path.read_text() == before
    path.write_text("not: a profile")
    assert save_better(nothing(), path, is_named=True).path == path
    assert store.load(path) == nothing()
