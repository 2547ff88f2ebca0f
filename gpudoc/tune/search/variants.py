"""The changes other than the batch that are worth a trial on this device for this model: one table of levers; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gpudoc.policy import Policy, in_words
from gpudoc.profile.model import Allocator
from gpudoc.tune.model.losses import BOUNDS
from gpudoc.tune.trial.messages import Variant
from gpudoc.tune.trial.wire import Inspection
from gpudoc.workload.config import Train

Changes = Mapping[str, bool | str]
_COMPILE_BUDGET_S = 240.0
# TF32 came with Ampere; CUDA graphs and Triton's kernels need Volta
_AMPERE, _VOLTA = (8, 0), (7, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Facts that decide whether a variant can help: the device, its formats, the model's layers, the time.

    `free_switches` are torch's own switches that the user's code did not change. `threads_spin`: threads spin while
    other processes compute, and nobody has set how they wait.
    """

    device: str
    native_bf16: bool
    has_images: bool
    precision: str
    budget_s: float
    can_compile: bool
    can_recompute: bool = False
    has_policies: bool = False
    can_fuse: bool = False
    can_foreach: bool = False
    can_shrink: bool = False
    has_blocks: bool = False
    has_convolutions: bool = False
    sizes_differ: bool = False
    is_deterministic: bool = False
    free_switches: frozenset[str] = frozenset()
    ranks: int = 1
    capability: tuple[int, int] | None = None
    threads_spin: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a CUDA device."""
        return self.device.startswith("cuda")

    @property
    def may_compile(self) -> bool:
        """Whether there is a compiler, and time to wait for it."""
        return self.can_compile and self.budget_s >= _COMPILE_BUDGET_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One row of the table: a change that is tried on top of what won before it.

    `works` says where it can help. `tolerance` is how far its losses may differ from the reference's, by its number
    format. `to_show` names a property that only a GPU can show. If one lever of a `family` fails, the later ones would
    fail, too, and are not tried.
    """

    name: str
    changes: Changes
    works: Callable[[Abilities], bool]
    tolerance: float = BOUNDS["fp32"]
    for_speed_alone: bool = False
    family: str = ""
    to_show: str = ""

    def is_worth_a_trial(self, abilities: Abilities, goal: str, now: Variant) -> bool:
        """Whether it can work here, may serve the goal, and changes the current variant."""
        if self.for_speed_alone and goal != "throughput":
            return False
        changes = any(getattr(now, name) != value for name, value in self.changes.items())
        return changes and self.works(abilities)

    def beside(self, other: Lever) -> Lever:
        """Both levers combined into one."""
        tolerance = max(self.tolerance, other.tolerance)
        changes = {**self.changes, **other.changes}
        return replace(self, name=f"{self.name} and {other.name}", changes=changes, tolerance=tolerance)


SLEEPING = Lever(
    name="threads that sleep while they wait",
    changes={"wait_policy": "passive"},
    works=lambda a: a.device == "cpu" and a.threads_spin,
    for_speed_alone=True,
)

# In the order of expected gain. A new lever is a row here, a field of profile.model.Levers, and its function in
# train/start/levers.py.
LEVERS: tuple[Lever, ...] = (
    SLEEPING,
    Lever(
        name="TF32 in matrix products",
        changes={"matmul_precision": "high"},
        works=lambda a: a.on_gpu and (a.capability or (0, 0)) >= _AMPERE and _may_round_products(a),
        tolerance=BOUNDS["tf32"],
        to_show="the gain on Ampere and newer, and how far the losses differ there",
    ),
    Lever(
        name="bf16",
        changes={"precision": "bf16"},
        works=lambda a: a.precision == "auto" and a.native_bf16,
        tolerance=BOUNDS["bf16"],
    ),
    Lever(
        name="fp16 with loss scaling",
        changes={"precision": "fp16"},
        works=lambda a: a.precision == "auto" and a.on_gpu and not a.native_bf16,
        tolerance=BOUNDS["fp16"],
        to_show="the losses on a GPU without native bf16",
    ),
    Lever(
        name="channels_last",
        changes={"channels_last": True},
        works=lambda a: a.has_images,
        # torch chooses other convolutions, and cuDNN's compute in TF32 by default
        tolerance=BOUNDS["tf32"],
    ),
    Lever(
        name="cudnn.benchmark",
        changes={"cudnn_benchmark": True},
        works=lambda a: (
            a.on_gpu
            and a.has_convolutions
            and "cudnn_benchmark" in a.free_switches
            # every new shape is benchmarked again
            and not (a.is_deterministic or a.sizes_differ)
        ),
        tolerance=BOUNDS["tf32"],
        to_show="the gain, and the memory that cuDNN takes while it tries its algorithms",
    ),
    Lever(
        name="the exact allocator",
        changes={"allocator": "exact"},
        works=lambda a: not a.on_gpu,
        for_speed_alone=True,
    ),
    Lever(
        name="expandable segments",
        changes={"allocator": "expandable"},
        works=lambda a: a.on_gpu,
    ),
    Lever(
        # training uses the fused kernel wherever there is one: the trial leaves it out
        name="the optimizer without its fused kernel",
        changes={"fused": False},
        works=lambda a: a.can_fuse,
        for_speed_alone=True,
    ),
    Lever(
        name="the optimizer with foreach kernels",
        changes={"foreach": True},
        # on a GPU torch uses foreach by default if it does not take a fused kernel
        works=lambda a: a.device == "cpu" and a.can_foreach,
        for_speed_alone=True,
    ),
    Lever(
        name="8-bit optimizer state",
        changes={"optimizer_state": "8bit"},
        # torchao compiles the update
        works=lambda a: a.can_shrink and a.may_compile,
        tolerance=BOUNDS["8bit"],
        to_show="the gain of the compiled update, and the memory",
    ),
    Lever(
        name="torch.compile",
        changes={"compile": True, "compile_mode": "whole"},
        works=lambda a: a.may_compile,
        family="compile",
        to_show="the gain of Triton's kernels",
    ),
    Lever(
        name="torch.compile by block",
        changes={"compile": True, "compile_mode": "blocks"},
        works=lambda a: a.may_compile and a.has_blocks,
        family="compile",
        to_show="the gain and the time to compile, compared with the whole model's",
    ),
    Lever(
        name="torch.compile, reduce-overhead",
        changes={"compile": True, "compile_mode": "reduce-overhead"},
        works=lambda a: (
            a.may_compile
            and a.on_gpu
            and (a.capability or (0, 0)) >= _VOLTA
            # a graph is recorded for every shape, and not across the gradients' exchange
            and a.ranks == 1
            and not a.sizes_differ
        ),
        family="compile",
        to_show="that graphs replay with the same losses, including accumulation and evaluation, and the gain",
    ),
    Lever(
        name="torch.compile, dynamic shapes",
        changes={"compile": True, "compile_mode": "dynamic"},
        works=lambda a: a.may_compile and a.sizes_differ,
        family="compile",
        to_show="that no length is recompiled, and the gain",
    ),
)


def _may_round_products(abilities: Abilities) -> bool:
    """Whether matrix products run in fp32 although nobody asked for it."""
    return abilities.precision == "auto" and "matmul_precision" in abilities.free_switches


def abilities_of(
    told: Inspection, train: Train, *, device: str, budget_s: float, ranks: int, can_compile: bool
) -> Abilities:
    """The abilities that an inspection found and the config allows."""
    is_free = {"matmul_precision": told.matmul_precision == "highest", "cudnn_benchmark": not told.cudnn_benchmark}
    return Abilities(
        device=device,
        native_bf16=told.has_bf16,
        has_images=told.has_images,
        precision=train.precision,
        budget_s=budget_s,
        can_recompute=told.can_recompute and train.policy is None,
        has_policies=told.has_policies and train.policy is None,
        can_fuse=told.can_fuse,
        can_foreach=told.can_foreach,
        can_shrink=told.can_shrink,
        has_blocks=told.has_blocks,
        has_convolutions=told.has_convolutions,
        sizes_differ=told.sizes_differ,
        is_deterministic=train.deterministic,
        free_switches=frozenset(name for name, free in is_free.items() if free),
        ranks=ranks,
        capability=None if told.card is None else told.card.capability,
        can_compile=can_compile,
    )


def ways_out(abilities: Abilities, now: Variant, policy: Policy = False) -> tuple[tuple[str, Changes], ...]:
    """Changes that may make a step fit, cheapest in speed first: (name, changes), each on top of `now`.

    `policy` is the part of the activations whose recomputation should be enough, by the plan.
    """
    frugal: Allocator = "expandable" if abilities.on_gpu else "exact"
    frugally: Changes = {"allocator": frugal}
    found: list[tuple[str, Changes]] = []
    if now.allocator != frugal:
        found.append((f"the allocator {frugal!r}", frugally))
    recomputed: Changes = {**frugally, "activation_checkpointing": True}
    if isinstance(policy, str):
        found.append((in_words(policy), {**frugally, "activation_checkpointing": policy}))
    if abilities.can_recompute:
        found.append(("activation checkpointing", recomputed))
    if abilities.precision == "auto" and now.precision == "fp32":
        lower = "fp16" if abilities.on_gpu and not abilities.native_bf16 else "bf16"
        found.append((lower, {**frugally, "precision": lower}))
        if abilities.can_recompute:
            found.append((f"activation checkpointing and {lower}", {**recomputed, "precision": lower}))
    if abilities.can_shrink and abilities.can_compile:
        small = "8-bit optimizer state"
        found.append((small, {**frugally, "optimizer_state": "8bit"}))
        name, changes = found[-2] if len(found) > 1 else ("", frugally)
        if set(changes) - set(frugally):
            found.append((f"{name} and {small}", {**changes, "optimizer_state": "8bit"}))
    return tuple(found)
