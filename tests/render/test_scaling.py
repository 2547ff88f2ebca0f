import pytest

from gpudoc.render.scaling import as_lines, cause_of, table
from gpudoc.tune.model.scaling import Scaling, ScalingPoint, SpeedSpan
from gpudoc.tune.trial.messages import End


@pytest.fixture
def scaling():
    one = ScalingPoint(
        ranks=1,
        threads=2,
        step_s=0.1,
        samples_per_s=SpeedSpan(320, 310, 330),
        speedup=1.0,
        compute_s=0.08,
        fixed_s=0.02,
    )
    two = ScalingPoint(
        ranks=2,
        threads=1,
        step_s=0.2,
        samples_per_s=SpeedSpan(320, 300, 340),
        speedup=1.0,
        efficiency=SpeedSpan(0.8, 0.75, 0.83),
        losses={
            "loader": SpeedSpan(-0.01, -0.02, 0.01),
            "communication": SpeedSpan(0.16, 0.12, 0.2),
            "contention": SpeedSpan(0.05, 0.0, 0.1),
        },
        cause="communication",
        why="exchanging gradients takes 32 ms of a step of 200 ms",
    )
    four = ScalingPoint(ranks=4, threads=1, end=End.OOM_HOST, detail="no memory <left>")
    return Scaling(
        device="cpu",
        batch=32,
        settings_from="as tuned",
        gradient_bytes=4 << 20,
        points=(one, two, four),
        verdict="2 processes train at 1.00 times the speed of one",
        command="gpudoc train --model cfg.yaml",
        notes=("4 ranks share 2 CPUs",),
    )


def test_a_row_for_each_number_of_ranks_with_its_doubt_and_its_name(scaling):
    head, one, two, four = table(scaling)
    assert head[:3] == ("ranks", "threads", "samples/s")
    assert "transfer" not in head
    assert dict(zip(head, two, strict=True)) == {
        "ranks": "2",
        "threads": "1",
        "samples/s": "320",
        "times one": "1.00",
        "efficiency": "80% ±5",
        "step": "200 ms",
        "loader": "0% ±2",
        "communication": "16% ±4",
        "contention": "5% ±5",
        "cause": "communication",
    }
    assert one[4:] == ("", "100 ms", "", "", "", "")
    assert four[2:] == ("", "", "", "", "", "", "", "oom_host")


def test_the_screen_ends_with_the_verdict_and_the_command(scaling):
    lines = as_lines(scaling)
    assert lines[0] == ("scaling: micro batch 32 on every rank (weak scaling), 4 MiB of gradients exchanged per step")
    assert "  2 ranks: exchanging gradients takes 32 ms of a step of 200 ms" in lines
    assert "  4 ranks: oom_host: no memory <left>" in lines
    assert "  4 ranks share 2 CPUs" in lines
    assert lines[-2] == "verdict  2 processes train at 1.00 times the speed of one"
    assert lines[-1] == "next     gpudoc train --model cfg.yaml"


def test_little_loss_is_called_nothing_much(scaling):
    assert [cause_of(point) for point in scaling.points] == ["", "communication", "oom_host"]
    good = ScalingPoint(ranks=2, threads=1, samples_per_s=SpeedSpan(1, 1, 1))
    assert cause_of(good) == "nothing much"


def test_on_a_narrow_screen_the_table_is_turned_round(scaling):
    def ranks(width):
        return next(line.split() for line in as_lines(scaling, width) if line.split()[:1] == ["ranks"])

    assert all(len(line) <= 80 for line in as_lines(scaling, 80))
    assert ranks(80) == ["ranks", "1", "2", "4"]
    assert ranks(118)[:3] == ["ranks", "threads", "samples/s"]
