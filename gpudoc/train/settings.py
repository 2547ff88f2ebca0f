"""The settings of a run, each knowing where it came from: a flag beats the profile, the profile the config."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

from gpudoc.errors import GpudocError
from gpudoc.policy import Policy
from gpudoc.policy import parse as parse_policy
from gpudoc.profile.model import (
    Allocator,
    CompileMode,
    Levers,
    MatmulPrecision,
    OptimizerState,
    Profile,
    WaitPolicy,
)
from gpudoc.train.data.order import ENDLESS, accumulation, auto_global_batch
from gpudoc.units import parse_size
from gpudoc.workload.config import Config, Fsdp

Value = int | float | bool | str | None
Source = Literal["flag", "profile", "config", "default", "checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """The settings of a training run. `micro_batch` is an upper bound per device, `steps` the total."""

    precision: str = "auto"
    allocator: str = "default"
    micro_batch: int = 1
    accumulation: int = 1
    global_batch: int = 1
    num_workers: int = 0
    prefetch_factor: int = 2
    pin_memory: bool = False
    persistent_workers: bool = True
    channels_last: bool = False
    compile: bool = False
    compile_mode: str = "whole"
    fused: bool = True
    foreach: bool = False
    matmul_precision: str = "default"
    cudnn_benchmark: bool = False
    wait_policy: str = "default"
    optimizer_state: str = "full"
    activation_checkpointing: Policy = False
    may_checkpoint_activations: bool = True
    rescue: bool = True
    steps: int = 1
    seed: int = 0
    deterministic: bool = False
    fsdp_reshard: str = "auto"
    fsdp_prefetch: int = 1
    fsdp_reduce: str = "fp32"
    fsdp_offload: bool = False
    lr: float | None = None
    lr_scaling: str = "auto"
    reference_batch: int = 32
    grad_clip: float | None = None
    log_every: int = 10
    eval_every: int = 0
    checkpoint_every: int = 500
    keep: int = 2
    early_stop: int = 0
    sources: Mapping[str, Source] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def source(self, key: str) -> Source:
        """Where the value of `key` came from."""
        return self.sources.get(key, "default")

    def rows(self) -> list[tuple[str, Value, Source]]:
        """(key, value, source) of every setting, for `--verbose`."""
        skipped = ("sources", "notes", "may_checkpoint_activations")
        return [(f.name, getattr(self, f.name), self.source(f.name)) for f in fields(self) if f.name not in skipped]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The facts on which the settings depend, besides flags, profile and config."""

    num_samples: int
    world: int
    device_type: str
    num_cpus: int = 1
    # the most loader workers that the data set can use; None: any number
    most_workers: int | None = None


# the keys of --set; `object` means a switch or the name of a policy
_KEYS: Mapping[str, type] = {
    "allocator": str,
    "micro_batch": int,
    "accumulation": int,
    "global_batch": int,
    "num_workers": int,
    "prefetch_factor": int,
    "pin_memory": bool,
    "persistent_workers": bool,
    "channels_last": bool,
    "compile": bool,
    "compile_mode": str,
    "fused": bool,
    "foreach": bool,
    "matmul_precision": str,
    "cudnn_benchmark": bool,
    "wait_policy": str,
    "optimizer_state": str,
    "activation_checkpointing": object,
    "log_every": int,
    "checkpoint_every": int,
    "keep": int,
    "eval_every": int,
    "rescue": bool,
    "seed": int,
    "deterministic": bool,
    "lr": float,
    "fsdp_reshard": str,
    "fsdp_prefetch": int,
    "fsdp_reduce": str,
    "fsdp_offload": bool,
}
_LEAST: Mapping[str, int] = {"num_workers": 0, "checkpoint_every": 0, "eval_every": 0, "seed": 0, "fsdp_prefetch": 0}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "allocator": get_args(Allocator),
    "compile_mode": get_args(CompileMode),
    "matmul_precision": get_args(MatmulPrecision),
    "wait_policy": get_args(WaitPolicy),
    "optimizer_state": get_args(OptimizerState),
    "fsdp_reshard": ("auto", "always", "never"),
    "fsdp_reduce": ("fp32", "weights"),
}
_SWITCHES = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}
_POLICIES = "true, false, selective or blocks:K"
# the profile's batch is only a guess if a flag changes one of these
_SHAPES_MEMORY = (
    "precision",
    "compile",
    "compile_mode",
    "activation_checkpointing",
    "fused",
    "foreach",
    "cudnn_benchmark",
    "optimizer_state",
)


def parse_flags(typed: Mapping[str, Value], assignments: Sequence[str]) -> dict[str, Value]:
    """Options and `key=value` texts as typed values; GpudocError names the key most similar to an unknown one."""
    found: dict[str, Value] = {key: value for key, value in typed.items() if value is not None}
    for text in assignments:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals:
            raise GpudocError(f"--set {text}: write key=value", hint=f"--set {text or 'log_every'}=...")
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it takes: {', '.join(_KEYS)}"
            raise GpudocError(f"--set {text}: no setting {key!r}", hint=hint)
        found[key] = _parse(key, value.strip())
    return found


def parse_limit(text: str | None) -> int | None:
    """--memory-limit in bytes; GpudocError if it is not a size."""
    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as problem:
        raise GpudocError(f"--memory-limit: {problem}", hint="--memory-limit 8GiB") from None


def resolve(flags: Mapping[str, Value], config: Config, profile: Profile | None, around: Surroundings) -> TrainSettings:
    """The settings of a run from flags (already parsed), config and profile; GpudocError if they conflict."""
    values: dict[str, Value] = {}
    sources: dict[str, Source] = {}

    def put(layer: Mapping[str, Value], source: Source) -> None:
        for key, value in layer.items():
            values[key] = value
            sources[key] = source

    put(_from_config(config), "config")
    for key in _unset_in(config):
        sources.pop(key, None)
    notes: list[str] = []
    if profile is not None:
        layer, notes = _from_profile(profile, flags, config.train.policy)
        put(layer, "profile")
    put(flags, "flag")
    known = {f.name for f in fields(TrainSettings)}
    later = ("global_batch", "steps")
    settings = TrainSettings(**{k: v for k, v in values.items() if k in known and k not in later})  # type: ignore[arg-type]
    settings = replace(settings, sources=sources, notes=tuple(notes))
    if "compile_mode" in flags and not settings.compile:
        raise GpudocError(
            f"--set compile_mode={settings.compile_mode}: it has no effect without compile", hint="--set compile=true"
        )
    settings = _with_batches(settings, values, sources, around)
    return _with_workers(_with_steps(settings, values, sources, around), around)


def _from_config(config: Config) -> dict[str, Value]:
    train = config.train
    given: dict[str, Value] = {} if train.global_batch == "auto" else {"global_batch": train.global_batch}
    if train.policy is not None:
        given["activation_checkpointing"] = train.policy
    return {
        **given,
        "precision": train.precision,
        "steps": train.steps,
        "epochs": train.epochs,
        "seed": train.seed,
        "deterministic": train.deterministic,
        "lr_scaling": train.lr_scaling,
        "reference_batch": train.reference_batch,
        "grad_clip": train.grad_clip,
        "log_every": train.log_every,
        "eval_every": train.eval_every,
        "checkpoint_every": train.checkpoint_every,
        "keep": train.keep,
        "early_stop": train.early_stop,
        # a rescue may recompute more than the config asks for, up to every block
        "may_checkpoint_activations": train.policy is not False,
        **_of_fsdp(train.fsdp),
    }


def _of_fsdp(fsdp: Fsdp) -> dict[str, Value]:
    return {f"fsdp_{key}": value for key, value in fsdp.model_dump().items()}


def choose_fsdp(flags: Mapping[str, Value], config: Config) -> Fsdp:
    """How a model is sharded, if at all: from flags, else the config; needed before the other settings exist."""
    values = {**_of_fsdp(config.train.fsdp), **{key: value for key, value in flags.items() if key.startswith("fsdp_")}}
    return Fsdp.model_validate({key.removeprefix("fsdp_"): value for key, value in values.items()})


def _unset_in(config: Config) -> list[str]:
    train, fsdp = config.train, config.train.fsdp
    unset = [name for name in type(train).model_fields if name not in train.model_fields_set]
    return unset + [f"fsdp_{name}" for name in type(fsdp).model_fields if name not in fsdp.model_fields_set]


def _from_profile(
    profile: Profile, flags: Mapping[str, Value], policy: Policy | None
) -> tuple[dict[str, Value], list[str]]:
    """The layer of a profile and the notes about it; a `policy` from the config beats the profile's."""
    found = profile.settings
    loader = found.loader
    values: dict[str, Value] = {
        **{name: getattr(found, name) for name in Levers.model_fields},
        "micro_batch": found.micro_batch,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": loader.pin_memory,
        "persistent_workers": loader.persistent_workers,
    }
    if flags.get("precision") == "fp32":
        # a user who types fp32 wants it inside matrix products too
        values["matmul_precision"] = "default"
    fixed: Mapping[str, Value] = flags if policy is None else {"activation_checkpointing": policy, **flags}
    changed = [key for key in _SHAPES_MEMORY if key in fixed and fixed[key] not in ("auto", values[key])]
    how = "by a flag" if set(changed) <= set(flags) else "by the config or a flag"
    if policy is not None:
        del values["activation_checkpointing"]
    notes = []
    if changed and "micro_batch" not in flags:
        del values["micro_batch"]
        notes.append(
            f"{' and '.join(changed)} differ from the profile {how}, so its micro batch of {found.micro_batch} "
            "is not used"
        )
    return values, notes


def _with_batches(
    settings: TrainSettings, values: Mapping[str, Value], sources: dict[str, Source], around: Surroundings
) -> TrainSettings:
    micro, steps_given = values.get("micro_batch"), values.get("accumulation")
    world = around.world
    reference = settings.reference_batch
    wanted = micro if isinstance(micro, int) else reference
    if isinstance(values.get("global_batch"), int):
        batch = _as_int(values["global_batch"])
    elif isinstance(steps_given, int) and isinstance(micro, int):
        batch = micro * steps_given * world
        sources["global_batch"] = "flag"
    else:
        batch = auto_global_batch(reference=reference, micro_batch=wanted, world=world, num_samples=around.num_samples)
    if batch > around.num_samples:
        raise GpudocError(
            f"global_batch {batch} is more than the {around.num_samples} samples of the data set",
            hint=f"--set global_batch={around.num_samples}",
        )
    if isinstance(steps_given, int) and sources.get("micro_batch") != "flag":
        wanted = -(-batch // (steps_given * world))
    most = -(-batch // world)
    wanted = min(wanted, most)
    needed = accumulation(batch, wanted, world)
    if isinstance(steps_given, int) and steps_given != needed:
        raise GpudocError(
            f"global_batch {batch} over {world} x micro_batch {wanted} needs accumulation {needed}, not {steps_given}",
            hint="leave out one of the three",
        )
    return replace(settings, micro_batch=wanted, accumulation=needed, global_batch=batch)


def _with_steps(
    settings: TrainSettings, values: Mapping[str, Value], sources: dict[str, Source], around: Surroundings
) -> TrainSettings:
    """`steps` is the total; --epochs beats the config's steps, --steps beats both."""
    steps = values.get("steps")
    by_epochs = sources.get("epochs") == "flag" and sources.get("steps") != "flag"
    if around.num_samples == ENDLESS and (steps is None or by_epochs):
        raise GpudocError("the data set has no length, so its epochs never end", hint="--steps N")
    if steps is None or by_epochs:
        steps = _as_int(values["epochs"]) * -(-around.num_samples // settings.global_batch)
        sources["steps"] = sources.get("epochs", "default")
    return replace(settings, steps=_as_int(steps))


def _with_workers(settings: TrainSettings, around: Surroundings) -> TrainSettings:
    """Limits a preset's workers to the CPUs of this process; a flag's value stays as it is."""
    updates: dict[str, Value] = {}
    if settings.source("num_workers") != "flag" and settings.num_workers > around.num_cpus:
        updates["num_workers"] = around.num_cpus
    most = around.most_workers
    if most is not None and settings.num_workers > most:
        updates["num_workers"] = most
        reason = "it is read in order" if most else "its position must be that of the step"
        worker = "one loader worker" if most else "no loader worker"
        updates_note = f"an iterable data set: {worker} instead of {settings.num_workers}, since {reason}"
        settings = replace(settings, notes=(*settings.notes, updates_note))
    if settings.pin_memory and around.device_type != "cuda":
        updates["pin_memory"] = False
    return replace(settings, **updates)  # type: ignore[arg-type]


def _parse(key: str, text: str) -> Value:
    kind = _KEYS[key]
    readers: Mapping[type, Callable[[str], Value]] = {int: int, float: float, str: str, bool: _switch, object: _policy}
    try:
        value = readers[kind](text)
    except (ValueError, KeyError):
        name = {int: "a whole number", float: "a number", bool: "true or false", object: _POLICIES}[kind]
        raise GpudocError(f"--set {key}={text}: not {name}", hint=f"--set {key}={_example(kind)}") from None
    if isinstance(value, int) and not isinstance(value, bool) and value < _LEAST.get(key, 1):
        raise GpudocError(f"--set {key}={text}: at least {_LEAST.get(key, 1)}")
    if isinstance(value, float) and not value > 0:
        raise GpudocError(f"--set {key}={text}: more than 0")
    if key in _CHOICES and value not in _CHOICES[key]:
        raise GpudocError(f"--set {key}={text}: no such {key}", hint=f"one of {', '.join(_CHOICES[key])}")
    return value


def _switch(text: str) -> bool:
    return _SWITCHES[text.lower()]


def _policy(text: str) -> Policy:
    return _switch(text) if text.lower() in _SWITCHES else parse_policy(text)


def _example(kind: type) -> str:
    return {int: "4", float: "0.001", bool: "true", object: "selective"}.get(kind, "default")


def _as_int(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    return value
