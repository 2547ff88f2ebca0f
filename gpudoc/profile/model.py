"""A profile: what was learned about one workload on one kind of machine, as `gpudoc.profile.v1`.

Format history: v1 (0.1.0) first released form.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gpudoc.policy import Policy

# a profile may come with a repository: a number beyond what any machine can use is a mistake or an attack
MOST_WORKERS, MOST_AHEAD = 1_024, 1_024

SCHEMA: Literal["gpudoc.profile.v1"] = "gpudoc.profile.v1"


class ProfilePart(BaseModel):
    """A part of a profile: unknown keys are mistakes, values do not change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Made(ProfilePart):
    """When and by which gpudoc the profile was made, and what that cost; `interrupted` only where the search was."""

    at: str
    gpudoc: str
    seconds: float = Field(ge=0)
    trials: int = Field(ge=0)
    interrupted: bool | None = None


class Hardware(ProfilePart):
    """The kind of machine, without anything that names this very one; sizes in bytes.

    `instructions` is the instruction set that torch computes with on a CPU, with the switches that limit it.
    """

    device: Literal["cuda", "cpu", "mps", "xpu"]
    name: str = ""
    capability: tuple[int, int] | None = None
    memory_bytes: int | None = Field(default=None, gt=0)
    count: int = Field(default=1, ge=1)
    torch: str = ""
    cuda: str | None = None
    driver: str | None = None
    cpu_cores: float | None = Field(default=None, gt=0)
    ram_bytes: int | None = Field(default=None, gt=0)
    shm_bytes: int | None = Field(default=None, ge=0)
    power_limit_w: float | None = Field(default=None, gt=0)
    instructions: str | None = None

    @property
    def title(self) -> str:
        """'AMD EPYC 9654, AVX512': the name (the device if it has none) and the instruction set."""
        return ", ".join(filter(None, (self.name or self.device, self.instructions)))


class WorkloadKey(ProfilePart):
    """What was trained: fingerprints of model and data, the optimizer, and the samples' shapes without the batch.

    `command` is the fingerprint of a script's command line, None for a workload of a config.
    """

    config: str
    model: str
    command: str | None = None
    data: str = ""
    optimizer: str = ""
    inputs: str = ""
    global_batch: int | None = Field(default=None, ge=1)


class Loader(ProfilePart):
    """How the data is fed."""

    num_workers: int = Field(default=0, ge=0, le=MOST_WORKERS)
    prefetch_factor: int = Field(default=2, ge=1, le=MOST_AHEAD)
    pin_memory: bool = False
    persistent_workers: bool = False


Precision = Literal["fp32", "bf16", "fp16"]
Allocator = Literal["default", "exact", "expandable"]
CompileMode = Literal["whole", "blocks", "reduce-overhead", "dynamic"]
MatmulPrecision = Literal["default", "high", "medium"]
WaitPolicy = Literal["default", "passive"]
OptimizerState = Literal["full", "8bit"]


class Levers(ProfilePart):
    """What may change about a step apart from its batch; the defaults are what training does without a profile.

    `compile_mode` says what `compile` compiles and how. `fused` says whether an optimizer with a fused kernel may use
    it; `foreach` asks for kernels over lists of tensors in its place. `matmul_precision` is torch's
    float32_matmul_precision, 'default' what torch or the user's code set. With `wait_policy` 'passive', OpenMP threads
    that wait for each other sleep. `optimizer_state` is how wide Adam's moments are kept. `activation_checkpointing` is
    true, false or the name of a policy.
    """

    precision: Precision = "fp32"
    allocator: Allocator = "default"
    activation_checkpointing: Policy = False
    channels_last: bool = False
    compile: bool = False
    compile_mode: CompileMode = "whole"
    fused: bool = True
    foreach: bool = False
    matmul_precision: MatmulPrecision = "default"
    cudnn_benchmark: bool = False
    wait_policy: WaitPolicy = "default"
    optimizer_state: OptimizerState = "full"


class Settings(Levers):
    """What training runs with; `micro_batch` is an upper bound per device."""

    # a file must name it
    precision: Precision = Field()
    micro_batch: int = Field(ge=1)
    accumulation: int = Field(default=1, ge=1)
    loader: Loader = Field(default_factory=Loader)


class MemoryFit(ProfilePart):
    """Peak memory as fixed + per sample, in bytes, with the largest residual of the fit."""

    fixed_bytes: float
    bytes_per_sample: float
    residual: float = 0.0


class ProfileTrial(ProfilePart):
    """One thing that was tried, in a separate process; what was not measured is None."""

    kind: str
    batch: int = Field(ge=1)
    fits: bool
    end: str = "fits"
    peak_bytes: int | None = None
    samples_per_s: float | None = None
    seconds: float = Field(default=0.0, ge=0)
    settings: Settings | None = None


class LossDeviation(ProfilePart):
    """How far a variant's losses lay from the reference's over the first steps, and how far they may.

    `difference` is the largest of any step, over the mean of the reference's losses; None where one was not finite.
    """

    steps: int = Field(ge=0)
    difference: float | None = None
    bound: float = Field(ge=0)


class VariantTrial(ProfilePart):
    """One variant of the step as it was tried; `times` the speed of the best before it; `why` in one line.

    `rejected` says in a few words why it is not used; None of one that is.
    `losses` is None where the variant did not come so far.
    """

    name: str
    changes: dict[str, bool | str]
    times: float | None = None
    losses: LossDeviation | None = None
    kept: bool = False
    why: str = ""
    rejected: str | None = None


class LoaderTrial(ProfilePart):
    """One loader setting, measured with real steps."""

    num_workers: int = Field(ge=0, le=MOST_WORKERS)
    prefetch_factor: int = Field(ge=1, le=MOST_AHEAD)
    samples_per_s: float
    wait_share: float | None = None
    pin_memory: bool = False
    persistent_workers: bool = False


class Rescue(ProfilePart):
    """An out-of-memory error in training that shrank the micro batch."""

    step: int = Field(ge=0)
    from_batch: int = Field(ge=1)
    to_batch: int = Field(ge=1)
    shapes: str = ""


PartName = Literal["levers", "batch", "loader"]


class PartFound(ProfilePart):
    """One part of the settings as a search found it: when, and how many things were compared with the default.

    `times` is what all parts of that search gained over the default: middle, low and high; None where it was not
    compared. `disturbed`: other work ran meanwhile.
    """

    name: PartName
    at: str
    tried: int = Field(default=0, ge=0)
    times: tuple[float, float, float] | None = None
    disturbed: bool = False


class ProfileEvidence(ProfilePart):
    """How the settings are known: every trial, the limit it ran under, the default that had to be beaten.

    `parts` say which search each part of the settings comes from: profiles before 0.1.1 do not have them.
    `goal` is what the batch was chosen for, None where that is not known.
    `samples_per_s` is the speed of the settings with real data over all devices, None where it was not measured.
    `disturbed_trials` of the timings ran while others kept up to `other_cpus` CPUs busy, so that they are in doubt.
    """

    goal: str | None = None
    largest_batch: int | None = Field(default=None, ge=1)
    fastest_batch: int | None = Field(default=None, ge=1)
    memory_limit_bytes: int | None = Field(default=None, gt=0)
    memory_model: MemoryFit | None = None
    trials: tuple[ProfileTrial, ...] = ()
    variants: tuple[VariantTrial, ...] = ()
    loader: tuple[LoaderTrial, ...] = ()
    default: ProfileTrial | None = None
    samples_per_s: float | None = None
    speedup_over_default: float | None = None
    speedup_interval: tuple[float, float] | None = None
    disturbed_trials: int | None = Field(default=None, ge=0)
    other_cpus: float | None = Field(default=None, ge=0)
    rescues: tuple[Rescue, ...] = ()
    parts: tuple[PartFound, ...] = ()


class ScriptLoader(ProfilePart):
    """One DataLoader of a script as the script itself builds it; `key` names it from run to run."""

    at: str
    key: str = ""
    role: Literal["training", "other"] = "other"
    through: str | None = None
    batch_size: int | None = Field(default=None, ge=1)
    num_workers: int = Field(default=0, ge=0, le=MOST_WORKERS)
    prefetch_factor: int | None = Field(default=None, ge=1, le=MOST_AHEAD)
    pin_memory: bool = False
    persistent_workers: bool = False


class Script(ProfilePart):
    """What a training script looked like: its loaders, its file's digest, and where its batch can be set.

    `lever` is 'flag' where `{batch}` stands in the command, 'loader' where the training loader is built from a batch
    size; `tuned` names what was searched, so that the rest stays the script's own.
    """

    loaders: tuple[ScriptLoader, ...] = ()
    lever: Literal["flag", "loader", "none"] = "none"
    tuned: tuple[Literal["loader", "batch"], ...] = ()
    file: str = ""


class Profile(ProfilePart):
    """A whole profile. A shipped preset has neither `made` nor `workload`: it is estimated, not measured."""

    schema_name: Literal["gpudoc.profile.v1"] = Field(default=SCHEMA, alias="schema")
    made: Made | None = None
    hardware: Hardware
    workload: WorkloadKey | None = None
    settings: Settings
    evidence: ProfileEvidence = Field(default_factory=ProfileEvidence)
    script: Script | None = None
    why: tuple[str, ...] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @property
    def is_preset(self) -> bool:
        """Whether this is a shipped starting point instead of a measured profile."""
        return self.workload is None

    def document(self) -> dict[str, object]:
        """The profile as plain data for JSON and YAML, without the values that are not known."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
