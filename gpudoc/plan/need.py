"""The need of one plan on one target: the allocator replays the events of a run at any batch."""

from __future__ import annotations

from functools import cached_property
from itertools import chain

from gpudoc.knowledge.cards import context_bytes, cublas_workspace_bytes
from gpudoc.plan.allocator import Replay, StoryPart, replay_parts
from gpudoc.plan.cuda_rules import CUBLAS, CUBLAS_LT
from gpudoc.plan.memory import MemoryModel, largest_near, largest_that
from gpudoc.plan.planning import Plan
from gpudoc.plan.tape import GATHER, REDUCE, StepPhase, StorageKind
from gpudoc.plan.target import PlanTarget

_MOST = 1 << 20
# CUBLASLT_WORKSPACE_SIZE's default (aten/src/ATen/cuda/CUDABlas.cpp)
_LT_BYTES = 1 << 20
# streams other than the computing one: for the copy of a batch, and for the ranks' exchange of weights and gradients
_COPIES = 1
_EXCHANGES = {GATHER: 2, REDUCE: 3}


class Need:
    """Replays of one plan's run, as a trial of the search runs it, through an allocator of `allocator_bytes`.

    A first step; a step of the last, smaller batch of the data set; an evaluation; two more steps, since the second
    may find another layout of segments than the first. A plan whose steps do not end in the state in which they began
    is replayed as it was traced.
    """

    def __init__(
        self, plan: Plan, allocator_bytes: int, capability: tuple[int, int] | None, *, expandable: bool = False
    ) -> None:
        self.memory: MemoryModel = plan.memory
        self._allocator_bytes = allocator_bytes
        self._capability = capability
        self._expandable = expandable
        self._num_samples = plan.num_samples
        self._known: dict[tuple[int, int | None, bool], Replay] = {}

    @classmethod
    def on(cls, plan: Plan, target: PlanTarget) -> Need:
        """The need of `plan` on `target`."""
        return cls(plan, target.allocator_bytes, target.capability)

    def replay(self, batch: int, limit_bytes: int | None = None, *, rising: bool = False) -> Replay:
        """The allocator's replay of a run at `batch`."""
        key = (batch, limit_bytes, rising)
        if key not in self._known:
            parts, how = self._parts(batch), self._expandable
            self._known[key] = replay_parts(parts, limit_bytes, expandable=how, rising=rising)
        return self._known[key]

    def peak_bytes(self, batch: int) -> int:
        """Expected peak of the process: reserved memory and context; above the card's memory if it cannot fit."""
        return self.reserved_bytes(batch) + context_bytes(self._capability)

    def reserved_bytes(self, batch: int) -> int:
        """The peak without the context: the memory that PyTorch's allocator reserves."""
        # near the end of memory the allocator gives segments back before it fails, so the peak depends on the limit
        bounded = self.replay(batch, self._allocator_bytes)
        story = bounded if bounded.fits else self.replay(batch)
        return story.reserved_peak_bytes

    def fits(self, batch: int, share: float = 1.0, *, rising: bool = False) -> bool:
        """Whether a run at `batch` fits into `share` of the allocator's memory."""
        limit = int(self._allocator_bytes * share)
        if limit <= 0 or self.memory.peak_bytes(batch) > limit:
            return False
        return self.replay(batch, limit, rising=rising).fits

    def largest_batch(self, most: int = _MOST) -> int:
        """The largest batch up to `most` that fits into the allocator's memory, 0 for none."""
        return largest_that(self.fits, most)

    def largest_near(self, guess: int, share: float, *, rising: bool = False) -> int:
        """The largest batch that fits into `share` of the allocator's memory, searched around `guess`."""
        return largest_near(lambda batch: self.fits(batch, share, rising=rising), guess, _MOST)

    def _parts(self, batch: int) -> list[StoryPart]:
        sizes, streams = self._sizes(batch), self._streams
        first = StoryPart(sizes, self._first, streams)
        if self._again is None:
            return [first]
        again, evaluation = StoryPart(sizes, self._again, streams), StoryPart(sizes, self._evaluation, streams)
        rest = 0 if self._num_samples is None else self._num_samples % batch
        smaller = [StoryPart(self._sizes(rest), self._again, streams)] if rest else []
        return [first, *smaller, evaluation, again, again]

    def _sizes(self, batch: int) -> list[int]:
        return [*self.memory.sizes(batch).tolist(), *(size for _, size in self._workspaces)]

    @cached_property
    def _streams(self) -> dict[int, int]:
        blocks = enumerate(self.memory.blocks)
        found = {i: _COPIES if block.phase is StepPhase.INPUTS else _EXCHANGES.get(block.op, 0) for i, block in blocks}
        return {index: stream for index, stream in found.items() if stream}

    @cached_property
    def _workspaces(self) -> list[tuple[int, int]]:
        """(position in the events, bytes) of each workspace, which a thread keeps from its first product on."""
        marks, size = self.memory.marks, cublas_workspace_bytes(self._capability)
        if not self.memory.exact:
            return [(0, size), (0, size)]
        sizes = {CUBLAS: size, CUBLAS_LT: _LT_BYTES}
        named = [(f"{name}, {thread}", size) for thread in ("forward", "backward") for name, size in sizes.items()]
        return [(marks[name], size) for name, size in named if name in marks]

    @cached_property
    def _first(self) -> list[int]:
        """The events of building and of the first step, with the workspaces at their positions."""
        events = [int(event) for event in self.memory.events]
        end = len(events)
        if self._again is not None:
            end = self.memory.marks["step 1"]
            # with the frees of the next step's beginning, as in `_again`
            events = [*events[:end], *self._left_by_first]
            end = len(events)
        count = len(self.memory.blocks)
        taken = {place: [] for place, _ in self._workspaces}  # type: dict[int, list[int]]
        for number, (place, _) in enumerate(self._workspaces):
            taken[place].append(count + number)
        return list(chain.from_iterable((*taken.get(place, ()), events[place]) for place in range(end)))

    @cached_property
    def _second(self) -> list[int]:
        """The events of the second step, which every later step repeats; empty if the trace has no second step."""
        marks = self.memory.marks
        if not {"step 1", "step 2"} <= set(marks):
            return []
        return [int(event) for event in self.memory.events[marks["step 1"] : marks["step 2"]]]

    @cached_property
    def _left_by_first(self) -> list[int]:
        """The frees of blocks that the first step leaves for the second to free: its gradients."""
        made = {event for event in self._second if event >= 0}
        return [event for event in self._second if event < 0 and ~event not in made]

    @cached_property
    def _again(self) -> list[int] | None:
        """The events of a later step, with its leftover blocks freed at its end, as a trial and an evaluation do.

        None if a step leaves other blocks than it found, or keeps the old ones while it computes.
        """
        freed, left = set(self._left_by_first), {event for event in self._second if event >= 0}
        left -= {~event for event in self._second if event < 0}
        blocks = self.memory.blocks
        if not self._second or sorted(blocks[~event].op for event in freed) != sorted(blocks[i].op for i in left):
            return None
        computes = (
            n for n, event in enumerate(self._second) if event >= 0 and blocks[event].phase is StepPhase.FORWARD
        )
        late = freed & set(self._second[next(computes, len(self._second)) :])
        if any(blocks[~event].kind is StorageKind.GRADIENTS for event in late):
            # a loop that keeps gradients until its forward pass is over holds them together with the activations
            return None
        return [*(event for event in self._second if event not in freed), *(~index for index in sorted(left))]

    @cached_property
    def _evaluation(self) -> list[int]:
        marks = self.memory.marks
        events = [int(event) for event in self.memory.events[marks["step 2"] : marks.get("evaluated", marks["step 2"])]]
        made = {event for event in events if event >= 0}
        # the leftovers of the second step are freed already
        events = [event for event in events if event >= 0 or ~event in made]
        # blocks that outlive the evaluation are freed at its end
        return [*events, *(~event for event in made - {~event for event in events if event < 0})]
