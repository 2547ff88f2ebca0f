"""Changes that would make a step fit: one on top of the other, cheapest first, each planned and not guessed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from gpudoc.errors import GpudocError
from gpudoc.plan import policies, savings
from gpudoc.plan.from_workload import workload_recipe
from gpudoc.plan.need import Need
from gpudoc.plan.planning import Plan, plan_recipe
from gpudoc.plan.roofline import StepCost, slowdown
from gpudoc.plan.settings import PlanSettings
from gpudoc.plan.target import PlanTarget, Rung
from gpudoc.policy import Policy, in_words
from gpudoc.progress import Progress
from gpudoc.workload.build import Workload
from gpudoc.workload.recompute import policies_of

# numbers of GPUs to spread a model over: the advice names the smallest that holds it
_GPUS = (2, 4, 8, 16, 32, 64)
# a change that saves less than this share of the peak does not count
_LEAST_SAVED = 0.01


class Variants:
    """The plans of one workload under different settings on CUDA, each made once."""

    def __init__(self, workload: Workload, progress: Progress) -> None:
        self.workload = workload
        self._progress = progress
        self._plans: dict[PlanSettings, Plan | None] = {}

    def plan(self, *, precision: str) -> Plan:
        """The plan with only the precision changed; GpudocError if it cannot be made."""
        found = self.plan_or_none(PlanSettings(like="cuda", precision=precision))
        assert found is not None
        return found

    def first(self) -> Plan:
        """The first plan that was made."""
        return next(plan for plan in self._plans.values() if plan is not None)

    @cached_property
    def policies(self) -> tuple[bool, int]:
        """The result of `policies_of` for the workload."""
        return policies_of(self.workload)

    def plan_or_none(self, settings: PlanSettings) -> Plan | None:
        """The plan under `settings`, or None if the model does not allow them."""
        if settings not in self._plans:
            self._progress.say(f"planning {_words(settings)}")
            try:
                recipe = workload_recipe(self.workload, settings)
                self._plans[settings] = plan_recipe(recipe, progress=self._progress)
            except GpudocError:
                if not settings.activation_checkpointing and settings.ranks == 1:
                    raise
                self._plans[settings] = None
        return self._plans[settings]


@dataclass(frozen=True, kw_only=True)
class _Way:
    """A way to run the step: its plan, its number of GPUs, whether it uses the host's memory, and the words for it."""

    plan: Plan
    change: str
    how: str
    gpus: int = 1
    is_offloaded: bool = False


class _Ladder:
    """The ways of one workload on one target, each on top of those before it that saved something; a plan holds two
    micro batches, if there are two."""

    def __init__(self, variants: Variants, target: PlanTarget, precision: str, reference: int) -> None:
        self._variants = variants
        self._target = target
        self._reference = reference
        self._micros = min(2, reference)
        whole = variants.plan(precision=precision)
        self._whole = StepCost(works=tuple(whole.work.at(reference)), num_samples=reference)
        self._settings = PlanSettings(like="cuda", precision=precision, accumulation=self._micros)
        self.rungs: list[Rung] = []

    def climb(self) -> None:
        """Climb to the first rung that fits; if that needs several GPUs, also try offloading on fewer of them."""
        if self._alone():
            return
        ways = self._over_gpus(self._spread(self._settings))
        if not ways or not any(self._judge(way).fits for way in ways[-1:]):
            recomputed = replace(self._settings, activation_checkpointing=True)
            ways = self._over_gpus(self._spread(recomputed), " with activation checkpointing") or ways
        for choices in (ways, [replace(way, is_offloaded=True) for way in ways]):
            judged = map(self._judge, choices)
            best = next((rung for rung in judged if rung.fits), None)
            self.rungs += [best] if best else [self._judge(way) for way in choices[-1:]]

    def _alone(self) -> bool:
        """Whether one GPU is enough; changes that save something are kept."""
        changes = [(self._settings, "", "")]
        if self._settings.precision == "fp32":
            changes.append((replace(self._settings, precision="bf16"), "precision bf16", "--precision bf16"))
        for settings, change, how in changes:
            if self._add(settings, change, how):
                return True
        policy = self._policy()
        recomputed = replace(self._settings, activation_checkpointing=policy)
        how = f"--set activation_checkpointing={str(policy).lower()}"
        if self._add(recomputed, in_words(policy, self._variants.policies[1]), how):
            return True
        if not savings.can_shrink(self._variants.workload):
            return False
        plan = self._variants.plan_or_none(self._settings)
        assert plan is not None
        way = _Way(plan=savings.with_small_state(plan), change=savings.SMALL_STATE, how=savings.SMALL_STATE_HOW)
        # training refuses it if weights are spread over GPUs
        self.rungs.append(replace(self._judge(way), is_aside=True))
        return self.rungs[-1].fits

    def _policy(self) -> Policy:
        """The cheapest policy with which one sample fits; every block if none does."""

        def plan_of(policy: Policy) -> Plan | None:
            return self._variants.plan_or_none(replace(self._settings, activation_checkpointing=policy))

        is_selective, num_blocks = self._variants.policies
        question = policies.Question(
            plan_of=plan_of,
            left_bytes=lambda plan: self._target.allocator_bytes - Need.on(plan, self._target).reserved_bytes(1),
            is_selective=is_selective,
            num_blocks=num_blocks,
            batch=1,
            card=self._target.card,
        )
        found = policies.cheapest(question)
        return True if found is None else found.policy

    def _add(self, settings: PlanSettings, change: str, how: str) -> bool:
        """Whether the step fits under `settings`; they are kept if it does or if they save something."""
        plan = self._variants.plan_or_none(settings)
        if plan is None:
            return False
        rung = self._judge(_Way(plan=plan, change=change, how=how))
        if rung.fits or not self.rungs or rung.peak_bytes < (1 - _LEAST_SAVED) * self.rungs[-1].peak_bytes:
            self._settings = settings
            self.rungs.append(rung)
        return rung.fits

    def _spread(self, settings: PlanSettings) -> Plan | None:
        """The plan of one of several GPUs; None if it cannot be planned block by block."""
        plan = self._variants.plan_or_none(replace(settings, ranks=savings.TRACED_RANKS))
        if plan is None or plan.probed or not plan.memory.exact:
            return None
        # as training spreads it, with the state in full
        return plan

    def _over_gpus(self, traced: Plan | None, words: str = "") -> list[_Way]:
        if traced is None:
            return []
        more = " --set activation_checkpointing=true" if words else ""
        words += ", its state in full" if any(rung.is_aside for rung in self.rungs) else ""
        return [
            _Way(
                plan=savings.over(traced, gpus),
                change=f"FSDP2 over {gpus} such GPUs{words}",
                how=f"gpudoc train --gpus {gpus}{more}",
                gpus=gpus,
            )
            for gpus in _GPUS
        ]

    def _judge(self, way: _Way) -> Rung:
        plan = savings.offloaded(way.plan, way.gpus) if way.is_offloaded else way.plan
        need = Need.on(plan, self._target)
        each = max(1, self._reference // way.gpus)
        largest = need.largest_batch(each)
        micro = max(1, largest)
        times = -(-self._reference // (micro * way.gpus))
        exchange = savings.exchange_of(way.plan, way.gpus, is_offloaded=way.is_offloaded)
        cost = StepCost(works=tuple(plan.work.at(micro)), num_samples=micro * self._micros, exchange=exchange)
        change, how = way.change, way.how
        if way.is_offloaded:
            change, how = f"{change}, offloaded to the host", f"{how} --set fsdp_offload=true"
        return Rung(
            change=change or f"micro batch {micro}, accumulation {times}",
            how=how or f"--set micro_batch={micro}",
            micro_batch=micro,
            accumulation=times,
            largest_batch=largest,
            peak_bytes=need.peak_bytes(micro),
            slowdown=slowdown(self._whole, cost, self._target.card, times / self._micros),
            gpus=way.gpus,
            moved_bytes=(exchange.link_bytes + exchange.up_bytes + exchange.down_bytes) // self._micros,
            host_bytes=exchange.host_bytes,
        )


def ladder(variants: Variants, target: PlanTarget, precision: str, reference: int) -> tuple[Rung, ...]:
    """Changes that let a global batch of `reference` train on `target`: each on top of those before it, cheapest first,
    up to the first that fits."""
    found = _Ladder(variants, target, precision, reference)
    found.climb()
    return tuple(found.rungs)


def _words(settings: PlanSettings) -> str:
    words = [settings.precision]
    words += [in_words(settings.activation_checkpointing)] if settings.activation_checkpointing else []
    words += ["accumulation"] if settings.accumulation > 1 else []
    words += ["FSDP2"] if settings.ranks > 1 else []
    return ", ".join(words)
