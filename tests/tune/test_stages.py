from gpudoc.tune.journal import Journal
from gpudoc.tune.launch import Where
from gpudoc.tune.session import Session
from gpudoc.tune.stages import Findings, Plan, run_stages
from gpudoc.tune.trial import End, Feed, Point, Trial, Variant
from gpudoc.tune.variants import Abilities

SPEED = {"fp32": 1.0, "bf16": 2.0}


class Machine:
    """Answers every request from a formula: seconds of a step by batch and variant."""

    def __init__(self, slow_joint=False, budget_s=1e6):
        self.slow_joint, self.asked = slow_joint, []

    def run(self, request, where):
        self.asked.append(request)
        factor = SPEED[request.variant.precision] / (4 if self.slow_joint and request.kind == "joint" else 1)
        points = tuple(
            Point(batch=b, peak_bytes=100 + b, rest_bytes=10, step_s=((0.2 + 0.01 * b) / factor,))
            for b in request.batches
        )
        return Trial(request=request, end=End.FITS, points=points, seconds=1.0)

    def say(self, text):
        pass

    def advance(self, done, total, text):
        pass


def found_by(machine, parts=("speed",), loader=None, budget_s=1e6):
    session = Session(
        launcher=machine,
        journal=Journal(None),
        where=Where(device="cpu", limit_bytes=10_000),
        progress=machine,
        budget_s=budget_s,
    )
    abilities = Abilities(
        device="cpu", native_bf16=True, has_images=False, precision="auto", budget_s=60.0, can_compile=False
    )
    plan = Plan(
        parts=frozenset(parts),
        goal="throughput",
        reference=32,
        cap=1000,
        useful=256,
        base=Variant(),
        abilities=abilities,
    )
    found = Findings()
    run_stages(session, plan, found, loader)
    return found


def test_the_default_is_tried_first_and_beaten():
    machine = Machine()
    found = found_by(machine)
    first = machine.asked[0]
    assert (first.kind, first.batches, first.variant, first.feed) == ("default", (32,), Variant(), Feed())
    assert found.variant.precision == "bf16"
    assert found.choice.batch in (256, 32, 64, 128)
    assert found.speedup > 2
    assert [r.kind for r in machine.asked].count("joint") == 2


def test_a_choice_that_loses_to_the_default_gives_way_to_it():
    found = found_by(Machine(slow_joint=True))
    assert found.kept_default
    assert (found.choice.batch, found.variant, found.feed, found.speedup) == (32, Variant(), Feed(), 1.0)
    assert any("default stands" in note for note in found.notes)


def test_the_loader_is_tuned_at_the_chosen_batch_and_used_in_the_comparison():
    machine = Machine()

    def loader(session, plan, found):
        found.feed = Feed(num_workers=3)

    found_by(machine, parts=("speed", "loader"), loader=loader)
    assert {r.feed.num_workers for r in machine.asked if r.kind == "joint"} == {3}


def test_without_time_the_reference_batch_stays():
    found = found_by(Machine(), budget_s=0.5)
    assert found.choice.batch == 32
