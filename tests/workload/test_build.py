import sys
import textwrap

import pytest
import torch
import yaml

from gpudoc.errors import GpudocError
from gpudoc.workload.build import Step, Workload, data_fingerprint, load_workload, model_fingerprint
from gpudoc.workload.config import load_config

MODULE = """
import torch
from torch import nn

class Pairs(torch.utils.data.Dataset):
    def __init__(self, n=12, features=4):
        self.x = torch.randn(n, features, generator=torch.Generator().manual_seed(0))
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return self.x[i], int(self.x[i].sum() > 0)

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield torch.zeros(4), 0

def net(width: int = 8):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

def sized(dataset, width: int = 8):
    return nn.Linear(dataset.x.shape[1], 2)

class Frozen(nn.Module):
    def forward(self, x):
        return x

class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(()))
    def forward(self, x, y):
        return (x * self.w).sum(1)

class ReturnsText(Wrong):
    def forward(self, x, y):
        return {"logits": "none"}

def count(batch):
    return 7

def not_a_model():
    return "model"

def smooth(outputs, target, epsilon: float = 0.1):
    return nn.functional.cross_entropy(outputs, target, label_smoothing=epsilon)
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"mine_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MODULE))

    def build(**changes) -> Workload:
        config = {
            "model": {"target": "M:net"},
            "data": {"target": "M:Pairs"},
            "loss": {"target": "torch.nn:CrossEntropyLoss"},
            **changes,
        }
        text = yaml.safe_dump({key: value for key, value in config.items() if value is not None})
        path = tmp_path / "cfg.yaml"
        path.write_text(text.replace("M:", f"{name}:"))
        return load_workload(str(path))

    return build


def one_loss(workload):
    model = workload.build_model()
    workload.build_optimizer(model)
    return workload.step().loss(model, batch_of(workload))


def batch_of(workload, count=4):
    return torch.utils.data.default_collate([workload.dataset[i] for i in range(count)])


def test_a_config_becomes_a_step_that_learns(make):
    workload = make(optimizer={"target": "torch.optim:SGD", "args": {"lr": 0.5}})
    model, step = workload.build_model(), workload.step()
    optimizer = workload.build_optimizer(model)
    first = step.loss(model, batch_of(workload, 12))
    for _ in range(40):
        loss = step.loss(model, batch_of(workload, 12))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.dim() == 0
    assert loss.item() < first.item() / 2


def test_the_same_config_builds_the_same_model(make):
    first, second = make().build_model(), make().build_model()
    assert all(a.equal(b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_factory_that_asks_for_the_data_set_gets_it(make):
    workload = make(model={"target": "M:sized"}, data={"target": "M:Pairs", "args": {"features": 9}})
    assert workload.build_model().in_features == 9


def test_overrides_beat_the_configs_arguments(make):
    workload = make(optimizer={"target": "torch.optim:SGD", "args": {"lr": 0.5}})
    assert workload.build_optimizer(workload.build_model(), {"lr": 0.125}).defaults["lr"] == 0.125


def test_frozen_parameters_get_no_gradient_and_no_optimizer_state(make):
    workload = make(model={"target": "M:net", "frozen": ["0.*"]})
    model = workload.build_model()
    optimizer = workload.build_optimizer(model)
    workload.step().loss(model, batch_of(workload)).backward()
    optimizer.step()
    assert model[0].weight.grad is None
    assert model[0].bias.grad is None
    assert set(optimizer.state) == {model[2].weight, model[2].bias}
    assert model_fingerprint(model) != model_fingerprint(make().build_model())


def test_a_pattern_that_matches_nothing_is_a_mistake_with_the_nearest_name(make):
    with pytest.raises(GpudocError, match=r"model\.frozen: no parameter is named '2\.wieght'") as problem:
        make(model={"target": "M:net", "frozen": ["2.wieght"]}).build_model()
    assert "'2.weight'" in problem.value.hint
    with pytest.raises(GpudocError, match="no parameter to train"):
        make(model={"target": "M:net", "frozen": ["*"]}).build_model()


def test_groups_have_arguments_of_their_own_and_the_first_match_counts(make):
    groups = [{"parameters": ["*.bias"], "weight_decay": 0.0}, {"parameters": ["2.*"], "args": {"lr": 0.5}}]
    workload = make(optimizer={"target": "torch.optim:AdamW", "args": {"lr": 0.1}, "groups": groups})
    model = workload.build_model()
    rest, biases, head = workload.build_optimizer(model, {"lr": 0.2}).param_groups
    assert [each is own for each, own in zip(rest["params"], [model[0].weight], strict=True)] == [True]
    assert (rest["lr"], rest["weight_decay"]) == (0.2, 0.01)
    assert [id(each) for each in biases["params"]] == [id(model[0].bias), id(model[2].bias)]
    assert (biases["lr"], biases["weight_decay"]) == (0.2, 0.0)
    assert [id(each) for each in head["params"]] == [id(model[2].weight)]
    assert (head["lr"], head["weight_decay"]) == (0.5, 0.01)


def test_a_group_has_no_frozen_parameter_and_no_unknown_argument(make):
    group = {"parameters": ["0.*", "2.bias"], "lr": 0.5}
    optimizer = {"target": "torch.optim:SGD", "args": {"lr": 0.1}, "groups": [group]}
    workload = make(model={"target": "M:net", "frozen": ["0.*"]}, optimizer=optimizer)
    model = workload.build_model()
    assert [len(each["params"]) for each in workload.build_optimizer(model).param_groups] == [1, 1]
    optimizer["groups"] = [{"parameters": ["0.*"], "weight_decy": 0.5}]
    workload = make(optimizer=optimizer)
    with pytest.raises(GpudocError, match=r"groups\.0.* has no argument 'weight_decy'; did you mean 'weight_decay'"):
        workload.build_optimizer(workload.build_model())


def test_a_loss_can_be_a_plain_function_with_arguments(make):
    workload = make(loss={"target": "M:smooth", "args": {"epsilon": 0.0}})
    plain = make()
    model, batch = plain.build_model(), batch_of(plain)
    assert workload.step().loss(model, batch).item() == pytest.approx(plain.step().loss(model, batch).item())


def test_items_are_counted_by_the_configs_function(make):
    workload = make(data={"target": "M:Pairs", "items": "M:count"})
    assert workload.step().count_items(batch_of(workload)) == 7
    assert make().step().count_items(batch_of(workload)) == 4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": {"target": "M:Pairs", "args": {"n": 0}}}, "is empty"),
        ({"model": {"target": "M:Frozen"}}, "no parameter to train"),
        ({"model": {"target": "M:not_a_model"}}, "not a torch.nn.Module"),
        ({"model": {"target": "M:net", "args": {"widht": 3}}}, "unexpected keyword argument 'widht'"),
        ({"model": {"target": "M:net", "args": {"width": -3}}}, "failed: RuntimeError"),
        ({"optimizer": {"target": "torch.nn:Linear", "args": {}}}, "Linear"),
        ({"model": {"target": "M:Wrong"}, "loss": None}, "shape .4., not a single number"),
        ({"model": {"target": "M:ReturnsText"}, "loss": None}, "the loss is NoneType"),
    ],
)
def test_what_cannot_be_trained_says_why(make, changes, says):
    with pytest.raises(GpudocError, match=says):
        one_loss(make(**changes))


def test_an_iterable_set_without_a_length_is_named(make):
    with pytest.raises(GpudocError, match="without a length"):
        _ = make(data={"target": "M:Stream"}).num_samples
    assert make(data={"target": "M:Stream"}).is_stream
    assert not make().is_stream


def test_a_model_from_transformers_that_returns_its_loss(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "hf_model.py").write_text(
        "import torch\n"
        "from transformers import GPT2Config, GPT2LMHeadModel\n"
        "def build(n_layer: int):\n"
        "    return GPT2LMHeadModel(GPT2Config(n_layer=n_layer, n_head=2, n_embd=32, vocab_size=64, n_positions=16))\n"
        "class Tokens(torch.utils.data.Dataset):\n"
        "    def __len__(self):\n        return 8\n"
        "    def __getitem__(self, i):\n"
        "        ids = torch.arange(i, i + 16) % 64\n        return {'input_ids': ids, 'labels': ids}\n"
    )
    path = tmp_path / "cfg.yaml"
    path.write_text("model: {target: 'hf_model:build', args: {n_layer: 1}}\ndata: {target: 'hf_model:Tokens'}\n")
    workload = Workload(load_config(str(path)))
    model = workload.build_model()
    loss = workload.step().loss(model, batch_of(workload))
    loss.backward()
    assert loss.dim() == 0
    assert model.transformer.wte.weight.grad is not None


def test_a_data_set_from_scikit_learn(tmp_path):
    pytest.importorskip("sklearn")
    (tmp_path / "digits_data.py").write_text(
        "import torch\nfrom sklearn.datasets import load_digits\n"
        "class Digits(torch.utils.data.Dataset):\n"
        "    def __init__(self):\n        self.x, self.y = load_digits(return_X_y=True)\n"
        "        self.num_features, self.num_classes = self.x.shape[1], 10\n"
        "    def __len__(self):\n        return len(self.x)\n"
        "    def __getitem__(self, i):\n        return torch.tensor(self.x[i]).float() / 16, int(self.y[i])\n"
        "def build(dataset):\n    return torch.nn.Linear(dataset.num_features, dataset.num_classes)\n"
    )
    path = tmp_path / "cfg.yaml"
    path.write_text(
        "model: {target: 'digits_data:build'}\ndata: {target: 'digits_data:Digits'}\n"
        "loss: {target: 'torch.nn:CrossEntropyLoss'}\n"
    )
    workload = load_workload(str(path))
    assert workload.num_samples == 1797
    assert workload.step().loss(workload.build_model(), batch_of(workload)).item() == pytest.approx(2.3, abs=0.7)


def test_fingerprints_see_shapes_not_values_or_wrappers(make):
    workload = make()
    plain = workload.build_model()
    other = make(model={"target": "M:net", "args": {"width": 9}}).build_model()
    wrapped = torch.nn.Module()
    wrapped.module = plain
    assert model_fingerprint(plain) == model_fingerprint(workload.build_model())
    assert model_fingerprint(plain) != model_fingerprint(other)
    assert data_fingerprint(workload.dataset) == data_fingerprint(make().dataset)
    assert data_fingerprint(workload.dataset) != data_fingerprint(
        make(data={"target": "M:Pairs", "args": {"n": 13}}).dataset
    )


def test_the_signature_changes_with_what_shapes_memory(make):
    assert make().signature() == make().signature()
    assert make().signature() != make(optimizer={"target": "torch.optim:SGD", "args": {"lr": 0.1}}).signature()


class Pair(torch.nn.Module):
    def forward(self, x):
        return x, x


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.DataParallel])
def test_a_model_that_returns_a_tuple_to_torchs_loss_is_named_with_its_line(wrap):
    step = Step(loss=torch.nn.MSELoss(), name="mine:Pair")
    with pytest.raises(GpudocError, match=r"returned a tuple \(Tensor, Tensor\), and MSELoss takes a tensor") as told:
        step.loss(wrap(Pair()), (torch.ones(2), torch.ones(2)))
    assert f"{__file__}:{Pair.forward.__code__.co_firstlineno}" in told.value.message
    assert "return only the output" in told.value.hint


def test_an_error_inside_a_loss_of_the_users_stays_theirs():
    def loss(output, target):
        return output.no_such_thing

    with pytest.raises(AttributeError, match="no_such_thing"):
        Step(loss=loss, name="x").loss(Pair(), (torch.ones(2), torch.ones(2)))
