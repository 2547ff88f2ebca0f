"""Run a user's real step under fake tensors and return its tape; nothing is allocated."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from gpudoc.errors import GpudocError
from gpudoc.plan.cuda_paths import like_cuda, prefer_foreach
from gpudoc.plan.cuda_rules import CUDA_RULES
from gpudoc.plan.emulate import like_cpu, movable_modules
from gpudoc.plan.owners import Owners
from gpudoc.plan.recorder import TapeRecorder, user_place
from gpudoc.plan.scratch import CPU_RULES
from gpudoc.plan.tape import StepPhase, StorageKind, Tape
from gpudoc.plan.work import weigh

# the first step makes the optimizer's state, the second is like every later step
STEPS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How to train: `build()` makes models and optimizers, `batch(n)` inputs, `step(state, inputs)` trains once.

    `evaluate(state, inputs)`, if given, runs after the last step without gradients. `like` chooses the kernels of the
    step: those of this torch's CPU, or those that CUDA would choose. `num_samples` is the length of the training set,
    if it has one: its last batch may be smaller. `world` is the number of ranks that `build` spreads the model over.
    """

    build: Callable[[], Any]
    batch: Callable[[int], Any]
    step: Callable[[Any, Any], object]
    evaluate: Callable[[Any, Any], object] | None = None
    like: str = "cpu"
    num_samples: int | None = None
    world: int = 1


class UntraceableError(Exception):
    """The step cannot be traced without real values: the value that it needs, and the place in the user's code."""

    def __init__(self, reason: str, place: str) -> None:
        super().__init__(f"{reason} at {place}" if place else reason)
        self.reason = reason
        self.place = place


def record(recipe: Recipe, batch: int) -> Tape:
    """The tape of building and two steps at one batch size; UntraceableError if a real value is needed."""
    try:
        with _fake():
            return _run(recipe, batch, fake=True)
    except (UntraceableError, GpudocError):
        raise
    except Exception as error:
        raise UntraceableError(_reason(error), user_place(error)) from error


def record_real(recipe: Recipe, batch: int) -> Tape:
    """The same tape from a real run on this CPU, for steps that fake tensors cannot trace."""
    with torch.random.fork_rng(devices=[]):
        return _run(recipe, batch, fake=False)


def _run(recipe: Recipe, batch: int, *, fake: bool) -> Tape:
    tape = Tape(batch)
    recorder = TapeRecorder(tape, CUDA_RULES if recipe.like == "cuda" else CPU_RULES, weigh, fake=fake)
    with ExitStack() as stack:
        stack.enter_context(_steady_garbage())
        stack.enter_context(_paths_of(recipe.like, fake=fake))
        stack.enter_context(_others(recipe.world, recorder))
        stack.enter_context(recorder)
        state = recipe.build()
        owners = Owners(state)
        owners.name_weights(recorder)
        if recipe.like == "cuda":
            prefer_foreach(owners.optimizers)
            recorder.begin_with(owners.as_moved())
        stack.enter_context(owners.watch(recorder))
        tape.num_parameters = owners.num_parameters()
        recorder.mark("built")
        for number in range(STEPS):
            recorder.weighing = number == STEPS - 1
            _one_step(recipe, state, owners, recorder)
            recorder.mark(f"step {number + 1}")
        recorder.weighing = False
        if recipe.evaluate is not None:
            recorder.phase = StepPhase.EVALUATE
            with torch.no_grad():
                recipe.evaluate(state, _inputs(recipe, recorder))
            recorder.mark("evaluated")
    tape.add_in_place()
    return tape


def _one_step(recipe: Recipe, state: object, owners: Owners, recorder: TapeRecorder) -> None:
    recorder.phase = StepPhase.INPUTS
    inputs = _inputs(recipe, recorder)
    recorder.phase = StepPhase.FORWARD
    recipe.step(state, inputs)
    recorder.end_forward()
    owners.name_gradients(recorder)
    owners.name_optimizer_state(recorder)
    gc.collect()


def _inputs(recipe: Recipe, recorder: TapeRecorder) -> object:
    inputs = recipe.batch(recorder.tape.batch)
    recorder.name([leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor)], StorageKind.INPUTS)
    return inputs


class _Mode(FakeTensorMode):  # type: ignore[no-untyped-call]
    def __deepcopy__(self, memo: object) -> _Mode:
        # nn.TransformerEncoder deep-copies its layers; two modes must not meet in one operation
        return self


@contextmanager
def _steady_garbage() -> Iterator[None]:
    # a garbage collection in only one of two traces would give them different orders of frees
    was_on = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


@contextmanager
def _fake() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), _Mode(allow_non_fake_inputs=True):
        # printing and deep-copying ask a fake tensor for its address; it has none, and nothing here uses one
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        yield


def _reason(error: Exception) -> str:
    name = type(error).__name__
    match name:
        case "DynamicOutputShapeException":
            return f"{_operation(error)} has a result whose size depends on the data"
        case "DataDependentOutputException":
            return f"{_operation(error)} needs the values of a tensor"
        case "UnsupportedOperatorException":
            return f"{_operation(error)} is a custom operation without a fake (meta) implementation"
        case _:
            text = str(error).strip().splitlines()
            return f"{name}: {text[0]}" if text else name


def _operation(error: Exception) -> str:
    return str(getattr(error, "func", error))


def _others(world: int, recorder: TapeRecorder) -> AbstractContextManager[None]:
    if world == 1:
        return nullcontext()
    from gpudoc.plan.spread import others_of

    return others_of(world, recorder.resized)


@contextmanager
def _paths_of(like: str, *, fake: bool) -> Iterator[None]:
    """The overrides with which a trace follows the 'cpu' or 'cuda' kernels."""
    with ExitStack() as stack:
        if fake:
            stack.enter_context(movable_modules())
        if like == "cuda":
            stack.enter_context(like_cuda())
        elif fake:
            stack.enter_context(like_cpu())
        yield
