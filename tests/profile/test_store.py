import os
import stat

import pytest
import yaml

from gpudoc.errors import GpudocError
from gpudoc.profile import store
from gpudoc.profile.model import Hardware, Made, Profile, Settings, WorkloadKey
from gpudoc.profile.store import (
    LOCAL_FOLDER,
    Stored,
    Unreadable,
    file_name,
    folder_to_write,
    load,
    presets,
    save,
    tuned_profiles,
    user_folder,
)


def tuned(**changes):
    return Profile(
        made=Made(at="2026-11-20", gpudoc="0.1.0", seconds=1, trials=3),
        hardware=Hardware(device="cpu", name="A CPU (R) / 3.0", memory_bytes=24 << 30, torch="2.13.0+cpu"),
        workload=WorkloadKey(config="mine", model="0123abcd"),
        settings=Settings(precision="fp32", micro_batch=16),
        **changes,
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUDOC_PROFILE_DIR", str(tmp_path / "user"))
    return tmp_path


def test_what_is_saved_is_loaded(here):
    path = save(tuned(why=("größte",)), here / "deep" / "p.yaml")
    assert load(path) == tuned(why=("größte",))
    assert [entry.name for entry in path.parent.iterdir()] == ["p.yaml"]


def test_a_profile_goes_to_the_folder_here_if_there_is_one(here):
    assert folder_to_write() == user_folder() == here / "user"
    LOCAL_FOLDER.mkdir(parents=True)
    assert folder_to_write() == LOCAL_FOLDER


def test_the_folder_here_is_read_before_the_users(here):
    save(tuned(), here / "user" / "a.yaml")
    save(tuned(), LOCAL_FOLDER / "b.yaml")
    assert [entry.path.name for entry in tuned_profiles()] == ["b.yaml", "a.yaml"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"schema: gpudoc.profile.v9\n", "newer than this gpudoc"),
        (b"schema: other\n", "not a gpudoc profile"),
        (b"schema: gpudoc.profile.v1\nsettings: {micro_batch: 0}\n", "hardware: Field required"),
        (b"a: [", "<stream end>', line 1"),
        (b"schema: \x7f", "a control character (0x7f), which no YAML may hold, line 1"),
        (b"a: &a {<<: *a}\nb: " + b"9" * 5000, "nested too deeply"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"- 1\n", "not a mapping"),
        (b"x" * ((1 << 20) + 1), "at most 1 MiB"),
        (b"schema: gpudoc.profile.v1\nhardware: {device: cpu, memory_bytes: .nan}\n", ""),
        (b"schema: gpudoc.profile.v1\nhardware: 2020-01-01\n", "not a profile"),
    ],
)
def test_a_bad_file_is_a_reason_not_a_crash_and_stays_as_it_is(here, content, says):
    path = LOCAL_FOLDER / "bad.yaml"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    (entry,) = tuned_profiles()
    assert isinstance(entry, Unreadable)
    assert says in entry.reason
    assert path.read_bytes() == content
    with pytest.raises(GpudocError, match=r"bad\.yaml"):
        load(path)


def test_a_named_file_that_is_missing(here):
    with pytest.raises(GpudocError, match="no such profile"):
        load(here / "none.yaml")


def test_a_place_that_cannot_be_written_is_said(here):
    blocker = here / "file"
    blocker.write_text("")
    with pytest.raises(GpudocError, match="folder cannot be created") as caught:
        save(tuned(), blocker / "p.yaml")
    assert "--out" in caught.value.hint


def test_every_shipped_preset_is_valid_and_each_value_has_its_reason():
    found = {entry.path.stem: entry for entry in presets()}
    sizes = ["gpu-8gb", "gpu-16gb", "gpu-24gb", "gpu-48gb", "gpu-80gb", "gpu-141gb"]
    assert set(found) == {"cpu", *sizes}
    batches = [found[name].profile.settings.micro_batch for name in sizes]
    assert batches == sorted(batches)
    for entry in found.values():
        assert isinstance(entry, Stored)
        lines = entry.path.read_text("utf-8").splitlines()
        settings = yaml.safe_load("\n".join(lines))["settings"]
        values = {key for key in settings if key != "loader"} | set(settings["loader"])
        for line, before in zip(lines[1:], lines, strict=False):
            key = line.strip().partition(":")[0]
            if key in values:
                assert before.strip().startswith("#"), f"{entry.path.name}: {key} has no reason"
                values.discard(key)
        assert not values
        assert entry.profile.why


def test_the_file_name_says_what_for_and_nothing_of_the_machine():
    assert file_name(tuned()) == "mine--A-CPU-R-3.0-24GiB-x1--torch2.13.0+cpu-0123abcd.yaml"


def test_saved_files_can_be_read_by_others(here):
    path = save(tuned(), here / "p.yaml")
    assert path.stat().st_mode & stat.S_IRUSR


def test_of_a_folder_with_very_many_files_the_newest_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_MOST_PROFILES", 3)
    for number in range(5):
        path = tmp_path / f"{number}.yaml"
        path.write_text("schema: none")
        os.utime(path, (number, number))
    assert [entry.path.stem for entry in store._read_folder(tmp_path)] == ["4", "3", "2"]
