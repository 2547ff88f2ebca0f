"""What a run takes from its profile: loader settings by themselves, the batch only when it is allowed."""

from __future__ import annotations

import pytest

from gpudoc import facts
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Host, Machine
from gpudoc.process.openmp import WAITING
from gpudoc.profile.model import Hardware, Loader, Made, Profile, Script, ScriptLoader, Settings
from gpudoc.profile.store import save, user_folder
from gpudoc.script.apply import apply
from gpudoc.script.messages import HookOrder, LoaderOrder
from gpudoc.script.remember import workload_of

COMMAND = ("python", "train.py", "--width", "64")
AT = "train.py:7 train:9"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUDOC_PROFILE_DIR", str(tmp_path / "user"))
    asked = []

    def collect(**how):
        asked.append(how)
        return Machine(host=Host(memory_total_bytes=8 << 30))

    monkeypatch.setattr(facts, "collect", collect)
    return asked


def keep(command=COMMAND, *, tuned=("loader", "batch"), lever="loader", workers=6, torch="", waits="default"):
    profile = Profile(
        made=Made(at="now", gpudoc="0.1.0", seconds=1, trials=1),
        hardware=Hardware(device="cpu", memory_bytes=8 << 30, torch=torch),
        workload=workload_of(command),
        settings=Settings(
            precision="fp32",
            micro_batch=48,
            loader=Loader(num_workers=workers, prefetch_factor=4, pin_memory=True),
            wait_policy=waits,
        ),
        script=Script(
            loaders=(
                ScriptLoader(at="train.py:7", key=AT, role="training", batch_size=8),
                ScriptLoader(at="train.py:8", key="other", batch_size=100),
            ),
            tuned=tuned,
            lever=lever,
        ),
    )
    return save(profile, user_folder() / "p.yaml")


def test_without_a_profile_it_is_the_script_alone_and_the_machine_is_not_asked(here):
    applied = apply(COMMAND, profile="auto", allow_batch=False)
    assert applied.words == COMMAND
    assert applied.order == HookOrder(purpose="run")
    assert applied.profile is None
    assert "gpudoc tune -- COMMAND creates one" in applied.sentences[0]
    assert here == []


def test_loader_settings_are_taken_with_their_source():
    keep()
    applied = apply(COMMAND, profile="auto", allow_batch=False)
    assert applied.order.keys == (AT,)
    assert applied.order.loader == LoaderOrder(
        num_workers=6, prefetch_factor=4, pin_memory=True, persistent_workers=False
    )
    assert applied.order.batch is None
    assert any("train.py:7: num_workers 6" in text and "profile p.yaml" in text for text in applied.sentences)
    assert any("to use it: --allow batch" in text and "48" in text for text in applied.sentences)


def test_without_workers_nothing_is_said_of_what_workers_do():
    keep(workers=0)
    order = apply(COMMAND, profile="auto", allow_batch=False).order
    assert order.loader == LoaderOrder(num_workers=0, pin_memory=True)


def test_the_batch_of_a_loader_is_taken_when_it_is_allowed():
    keep()
    applied = apply(COMMAND, profile="auto", allow_batch=True)
    assert applied.order.batch == 48
    assert any("the script says 8" in text and "--allow batch" in text for text in applied.sentences)


def test_what_was_not_tuned_stays_the_scripts_own():
    keep(tuned=())
    assert apply(COMMAND, profile="auto", allow_batch=True).order == HookOrder(purpose="run", keys=(AT,))


def test_threads_sleep_where_the_profile_says_so_and_nobody_says_how_they_wait(monkeypatch):
    for name in WAITING:
        monkeypatch.delenv(name, raising=False)
    keep()
    assert apply(COMMAND, profile="auto", allow_batch=False).environment == {}
    keep(waits="passive")
    applied = apply(COMMAND, profile="auto", allow_batch=False)
    assert applied.environment == {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
    assert (
        "threads sleep while they wait: OMP_WAIT_POLICY=passive KMP_BLOCKTIME=0 (profile p.yaml)" in applied.sentences
    )
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert apply(COMMAND, profile="auto", allow_batch=False).environment == {}


def test_off_takes_nothing():
    keep()
    assert apply(COMMAND, profile="off", allow_batch=True).order == HookOrder(purpose="run")


def test_a_placeholder_is_filled_in_when_it_is_allowed():
    words = (*COMMAND, "--batch-size={batch}")
    keep(words, lever="flag")
    applied = apply(words, profile="auto", allow_batch=True)
    assert applied.words == (*COMMAND, "--batch-size=48")
    assert applied.order.batch is None
    with pytest.raises(GpudocError, match="only if you allow it") as caught:
        apply(words, profile="auto", allow_batch=False)
    assert caught.value.exit_code == 2
    assert "--allow batch inserts 48" in caught.value.hint


def test_a_number_where_the_placeholder_was_is_replaced_and_no_other():
    keep((*COMMAND, "--batch", "{batch}"), lever="flag")
    words = (*COMMAND, "--batch", "16")
    assert apply(words, profile="auto", allow_batch=False).words == words
    assert apply(words, profile="auto", allow_batch=True).words == (*COMMAND, "--batch", "48")


@pytest.mark.parametrize("profile", ["auto", "off"])
def test_a_placeholder_that_nothing_fills_in_is_a_mistake(profile):
    with pytest.raises(GpudocError, match="no profile gives a number for it"):
        apply((*COMMAND, "{batch}"), profile=profile, allow_batch=True)


def test_a_placeholder_and_a_profile_without_a_batch():
    words = (*COMMAND, "{batch}")
    keep(words, tuned=("loader",), lever="flag")
    with pytest.raises(GpudocError, match="gives no batch"):
        apply(words, profile="auto", allow_batch=True)


def test_a_file_for_another_command_is_refused():
    path = keep()
    with pytest.raises(GpudocError, match="made for something else"):
        apply(("python", "other.py"), profile=str(path), allow_batch=False)


def test_of_a_launcher_the_torch_of_its_script_is_not_known(here, monkeypatch):
    words = ("torchrun", "train.py")
    keep(words, torch="2.9.1")
    assert apply(words, profile="auto", allow_batch=False).profile == "p.yaml"
    assert here == [{"quick": True, "python": None}]
