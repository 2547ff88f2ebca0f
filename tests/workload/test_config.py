import contextlib
import copy

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.workload.config import BUILTIN, load_config

VALID = {
    "model": {"target": "mine:build", "args": {"hidden_dim": 8}},
    "data": {"target": "mine:Data", "args": {"root": "x"}, "eval": {"target": "mine:Data"}, "collate": "mine:pad"},
    "loss": {"target": "torch.nn:CrossEntropyLoss"},
    "optimizer": {"target": "torch.optim:AdamW", "args": {"lr": 3.0e-4}},
    "schedule": {"name": "cosine", "warmup_steps": 10},
    "train": {"global_batch": "auto", "reference_batch": 32, "epochs": 1, "grad_clip": 1},
    "imports": ["mine"],
}


def load(tmp_path, data):
    path = tmp_path / "cfg.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return load_config(str(path))


@pytest.mark.parametrize("name", BUILTIN)
def test_built_in_workloads_are_valid(name):
    loaded = load_config(name)
    assert loaded.builtin
    assert loaded.name == name


def test_a_valid_file_is_read_whole(tmp_path):
    loaded = load(tmp_path, VALID)
    assert loaded.name == "cfg"
    assert loaded.folder == tmp_path.resolve()
    assert loaded.config.model.args == {"hidden_dim": 8}
    assert loaded.config.train.grad_clip == 1.0


def test_all_mistakes_are_reported_at_once_with_their_lines(tmp_path):
    path = tmp_path / "cfg.yaml"
    path.write_text(
        "model: {target: 'no colon'}\n"
        "dta: {target: 'x:y'}\n"
        "data: {target: 'x:y'}\n"
        "train: {global_batch: many, epoch: 3, grad_clip: -1}\n"
        "schedule: {name: cosin}\n"
    )
    with pytest.raises(GpudocError) as caught:
        load_config(str(path))
    message = caught.value.message
    assert message.startswith("6 mistakes in ")
    assert f"{path}:1: model.target: 'no colon' is not a target" in message
    assert f"{path}:2: unknown key 'dta'; did you mean 'data'?" in message
    assert f"{path}:4: train.global_batch: 'many' should be 'auto' or a valid integer" in message
    assert f"{path}:4: unknown key 'train.epoch'; did you mean 'epochs'?" in message
    assert f"{path}:5: schedule.name: 'cosin' should be" in message
    assert caught.value.exit_code is ExitCode.NOT_DONE


@pytest.mark.parametrize(
    "spelling",
    [
        {"_target_": "torch.optim.AdamW", "lr": 0.1},
        {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.1}},
        {"target": "torch.optim:AdamW", "args": {"lr": 0.1}},
    ],
)
def test_other_peoples_spellings_mean_the_same(tmp_path, spelling):
    loaded = load(tmp_path, {**VALID, "optimizer": spelling})
    assert loaded.config.optimizer.target == "torch.optim:AdamW"
    assert loaded.config.optimizer.args == {"lr": 0.1}


def test_a_config_without_weights_and_groups_keeps_the_digest_that_its_runs_are_known_by():
    assert load_config("quickstart").config.digest() == "582e61d89b86"


def test_weights_are_a_file_or_a_section(tmp_path):
    short = load(tmp_path, {**VALID, "model": {**VALID["model"], "weights": "w.safetensors"}}).config.model.weights
    long = {"file": "w.safetensors", "prefix": "", "into": "", "strict": True}
    assert short is not None
    assert short.model_dump() == long
    flat = {"_target_": "mine.Net", "width": 3, "weights": long, "frozen": ["0.*"]}
    model = load(tmp_path, {**VALID, "model": flat}).config.model
    assert model.args == {"width": 3}
    assert model.weights == short
    assert model.frozen == ["0.*"]


def test_the_digest_depends_on_content_not_on_spelling(tmp_path):
    first = load(tmp_path, VALID).config.digest()
    again = load(tmp_path, {key: VALID[key] for key in reversed(VALID)}).config.digest()
    other = load(tmp_path, {**VALID, "train": {**VALID["train"], "seed": 1}}).config.digest()
    assert first == again != other


def test_a_name_that_is_no_workload_offers_the_nearest():
    with pytest.raises(GpudocError, match="did you mean 'quickstart'"):
        load_config("quickstar")


def test_the_programs_own_code_is_no_target(tmp_path):
    with pytest.raises(GpudocError, match="is not a target"):
        load(tmp_path, {**VALID, "model": {"target": "gpudoc.cli.app:main"}})


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def paths_in(data, prefix=()):
    yield prefix
    if isinstance(data, dict):
        for key, value in data.items():
            yield from paths_in(value, (*prefix, key))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused_in_words(tmp_path, data):
    mutated = copy.deepcopy(VALID)
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from([p for p in paths_in(mutated) if p] or [("model",)]))
        inner = mutated
        for key in parents:
            inner = inner[key]
        action = data.draw(st.sampled_from(["replace", "drop", "rename"]))
        if action == "replace":
            inner[last] = data.draw(plain)
        elif action == "drop":
            inner.pop(last, None)
        elif last in inner:
            inner[data.draw(st.text(max_size=10))] = inner.pop(last)
    try:
        text = yaml.safe_dump(mutated, allow_unicode=True)
    except yaml.YAMLError:
        return
    cut = data.draw(st.integers(0, len(text)))
    for content in (text, text[:cut]):
        path = tmp_path / "cfg.yaml"
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
        with contextlib.suppress(GpudocError):
            load_config(str(path))


def test_a_config_that_says_nothing_of_sharding_keeps_its_digest(tmp_path):
    plain = load(tmp_path, VALID).config
    same = load(tmp_path, {**VALID, "train": {**VALID["train"], "fsdp": {"reshard": "auto"}}}).config
    other = load(tmp_path, {**VALID, "train": {**VALID["train"], "fsdp": {"offload": True}}}).config
    assert "fsdp" not in plain.model_dump()["train"]
    assert plain.digest() == same.digest() != other.digest()
    assert other.train.fsdp.offload


def test_the_config_of_a_script_leads_to_the_command_for_scripts(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("classes: 4\nlr: 0.1\n")
    with pytest.raises(GpudocError, match="unknown key 'classes'") as caught:
        load_config(str(path))
    assert "gpudoc train -- python train.py" in caught.value.hint
    path.write_text("model: 3\nlr: 0.1\n")
    with pytest.raises(GpudocError, match="mistake") as caught:
        load_config(str(path))
    assert caught.value.hint == ""
