"""cfg.yaml as data: model, training data and settings. Reading it imports nothing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from gpudoc.errors import GpudocError
from gpudoc.patterns import Pattern
from gpudoc.policy import Policy
from gpudoc.workload.document import nearest, read_document, validate
from gpudoc.yaml_files import YamlDocument, parse_yaml

BUILTIN = ("quickstart", "images")

Precision = Literal["auto", "bf16", "fp16", "fp32"]


def _check_target(text: str) -> str:
    if not Pattern(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*").fullmatch(text):
        raise ValueError(f"{text!r} is not a target; write 'package.module:name'")
    return text


TargetName = Annotated[str, AfterValidator(_check_target)]
# a script that reads its own config needs no file of gpudoc for training or tuning
_OF_A_SCRIPT = "if your own script reads this file, use gpudoc train -- python train.py, which needs no gpudoc config"


class ConfigSection(BaseModel):
    """A part of the file: unknown keys are mistakes, values do not change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)


class Target(ConfigSection):
    """Something to import and call: `target: package.module:name` with plain `args`."""

    target: TargetName
    args: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _accept_other_spellings(cls, data: object) -> object:
        return _normalise(data)


class Weights(ConfigSection):
    """A file of weights to start from, seen from the config's folder: safetensors, torch.save, an index or a folder.

    Only names in the file that begin with `prefix` count; it is taken off, and `into` is put before what is left.
    Where `strict`, every tensor of either side must have its counterpart.
    """

    file: str
    prefix: str = ""
    into: str = ""
    strict: bool = True

    @model_validator(mode="before")
    @classmethod
    def _accept_a_name(cls, data: object) -> object:
        return {"file": data} if isinstance(data, str) else data


# names of parameters as `named_parameters` gives them, with * for any part of one
NamePattern = Annotated[str, Field(min_length=1)]


class Model(Target):
    """The model, the weights that it starts from, and the parameters that are not trained."""

    weights: Weights | None = None
    frozen: list[NamePattern] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _without(handler(self), "weights", "frozen")


class ParameterGroup(ConfigSection):
    """Parameters that the optimizer steps with their own arguments; other arguments are as for the rest."""

    parameters: list[NamePattern] = Field(min_length=1)
    args: dict[str, JsonValue] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _accept_arguments_beside(cls, data: object) -> object:
        if not isinstance(data, Mapping) or "args" in data:
            return data
        return {
            "parameters": data.get("parameters", []),
            "args": {key: value for key, value in data.items() if key != "parameters"},
        }


class Optimizer(Target):
    """The optimizer, and the groups of parameters that are not stepped as all others are; the first match counts."""

    groups: list[ParameterGroup] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _without(handler(self), "groups")


class Data(Target):
    """The training set, and with it the eval set, the collate function and what the loss counts."""

    collate: TargetName | None = None
    items: TargetName | None = None
    eval: Target | None = None


class Schedule(ConfigSection):
    """The learning rate as a function of the step."""

    name: Literal["constant", "cosine", "linear", "one_cycle"] = "constant"
    warmup_steps: int = Field(default=0, ge=0)
    final_share: float = Field(default=0.0, ge=0, le=1)


class Fsdp(ConfigSection):
    """How a model that one device does not hold is spread over several (FSDP2).

    `reshard`: whether a block's gathered weights go after its forward pass and are gathered again for backward; auto
    keeps them once the measured memory has room. `prefetch`: how many blocks are gathered ahead of the one that runs.
    `reduce`: the type in which gradients are summed over the ranks. `offload`: weights, gradients and optimizer state
    lie in the host's memory.
    """

    reshard: Literal["auto", "always", "never"] = "auto"
    prefetch: int = Field(default=1, ge=0)
    reduce: Literal["fp32", "weights"] = "fp32"
    offload: bool = False


class Train(ConfigSection):
    """How it is trained; `global_batch` is the number of samples one optimizer step learns from, on all ranks."""

    global_batch: Union[Literal["auto"], Annotated[int, Field(ge=1)]] = "auto"
    reference_batch: int = Field(default=32, ge=1)
    epochs: int = Field(default=1, ge=1)
    steps: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    precision: Precision = "auto"
    grad_clip: float | None = Field(default=None, gt=0)
    lr_scaling: Literal["auto", "linear", "sqrt", "off"] = "auto"
    log_every: int = Field(default=10, ge=1)
    eval_every: int = Field(default=0, ge=0)
    checkpoint_every: int = Field(default=500, ge=0)
    keep: int = Field(default=2, ge=1)
    early_stop: int = Field(default=0, ge=0)
    activation_checkpointing: Union[Literal["auto", "off"], Policy] = "auto"
    deterministic: bool = False
    fsdp: Fsdp = Field(default_factory=Fsdp)

    @property
    def policy(self) -> Policy | None:
        """The requested activation checkpointing, False if it is forbidden; None if the config leaves it open."""
        asked = self.activation_checkpointing
        return None if asked == "auto" else asked if asked != "off" else False

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        values: dict[str, object] = handler(self)
        return values if self.fsdp != Fsdp() else {key: value for key, value in values.items() if key != "fsdp"}

    @field_validator("grad_clip", mode="before")
    @classmethod
    def _whole_numbers_are_numbers(cls, value: object) -> object:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Config(ConfigSection):
    """A whole cfg.yaml; `loss` is left out when the model returns its loss."""

    model: Model
    data: Data
    loss: Target | None = None
    optimizer: Optimizer = Field(default_factory=lambda: Optimizer(target="torch.optim:AdamW", args={"lr": 3e-4}))
    schedule: Schedule = Field(default_factory=Schedule)
    train: Train = Field(default_factory=Train)
    imports: list[str] = Field(default_factory=list)

    @field_validator("imports")
    @classmethod
    def _are_module_names(cls, names: list[str]) -> list[str]:
        for name in names:
            if not Pattern(r"[A-Za-z_][\w.]*").fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a module")
        return names

    def digest(self) -> str:
        """Twelve hex digits that change with any value in the file, but not with its spelling."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


class LoadedConfig(BaseModel):
    """A config with its name and the folder that its targets may be imported from."""

    model_config = ConfigDict(frozen=True)

    name: str
    folder: Path
    config: Config
    builtin: bool = False


def load_config(source: str) -> LoadedConfig:
    """The config named `source`: 'quickstart', 'images' or a file; GpudocError lists every mistake at once."""
    if source in BUILTIN and not Path(source).is_file():
        text = resources.files("gpudoc.workload").joinpath(f"builtin/{source}.yaml").read_text("utf-8")
        document = parse_yaml(text, f"built-in {source}", "config")
        config = validate(document, document.data, Config, "config")
        return LoadedConfig(name=source, folder=Path.cwd(), config=config, builtin=True)
    path = Path(source)
    # `Path.exists` fails for a name that is too long, and for a folder without permission
    if not path.suffix and not os.path.exists(path):  # noqa: PTH110
        raise GpudocError(f"{source}: no such file or built-in workload{nearest(source, BUILTIN)}")
    document = read_document(path, "config")
    try:
        config = validate(document, document.data, Config, "config")
    except GpudocError as problem:
        if _is_of_a_script(document.data):
            raise GpudocError(problem.message, hint=_OF_A_SCRIPT) from problem
        raise
    _check_builtin_module(config, document)
    return LoadedConfig(name=path.stem, folder=path.resolve().parent, config=config)


def _is_of_a_script(data: object) -> bool:
    """Whether the file has none of a config's sections: then it most likely belongs to a training script."""
    return isinstance(data, Mapping) and bool(data) and not {"model", "data", "loss", "optimizer"} & set(data)


def _check_builtin_module(config: Config, document: YamlDocument) -> None:
    """Reserve `gpudoc.` for the built-in workloads, since a config must not call the program's own code."""
    for key, target in (("model", config.model), ("data", config.data), ("loss", config.loss)):
        if target and target.target.startswith("gpudoc.") and not target.target.startswith("gpudoc.workload."):
            raise GpudocError(f"{document.name}:{document.line_of((key, 'target'))}: {target.target} is not a target")


def _without(values: dict[str, object], *names: str) -> dict[str, object]:
    """`values` without the empty ones among `names`, so the digest of a config without these keys never changes."""
    return {key: value for key, value in values.items() if value or key not in names}


def _normalise(data: object) -> object:
    """Rewrite Hydra's `_target_` (dots, flat arguments) and `class_path`/`init_args` as `target`/`args`."""
    if isinstance(data, str):
        return {"target": data}
    if not isinstance(data, Mapping):
        return data
    kept = {"collate", "items", "eval", "weights", "frozen", "groups"}
    if "_target_" in data:
        args = {key: value for key, value in data.items() if key != "_target_" and key not in kept}
        rest = {key: value for key, value in data.items() if key in kept}
        return {"target": _with_colon(data["_target_"]), "args": args, **rest}
    if "class_path" in data:
        rest = {key: value for key, value in data.items() if key not in ("class_path", "init_args")}
        return {"target": _with_colon(data["class_path"]), "args": data.get("init_args") or {}, **rest}
    return data


def _with_colon(name: object) -> object:
    if isinstance(name, str) and ":" not in name and "." in name:
        module, _, attribute = name.rpartition(".")
        return f"{module}:{attribute}"
    return name
