import json

from gpudoc.plan.tape import StorageKind
from gpudoc.plan.target import Rung, TargetAnswer, TargetsResult, parse_target
from gpudoc.render.plan import render_targets, show_targets
from gpudoc.units import GIB, MIB


def answer(name, largest, ladder=()):
    return TargetAnswer(
        target=parse_target(name),
        precision="bf16",
        largest_batch=largest,
        peak_bytes_at_1=3 * GIB,
        peak_bytes=20 * GIB,
        bytes_per_sample=512 * MIB,
        interval=(19 * GIB, 21 * GIB),
        composition={StorageKind.WEIGHTS: GIB, StorageKind.ACTIVATIONS: 18 * GIB, StorageKind.INPUTS: 1},
        largest_batch_interval=(largest, largest + 2),
        least_step_s=0.25 if name.startswith("RTX") else None,
        ladder=ladder,
    )


def result(*answers, probed=None, notes=()):
    return TargetsResult(
        name="toy", num_parameters=7_000_000, reference_batch=32, probed=probed, notes=notes, answers=answers
    )


def test_the_table_has_a_row_for_every_target_and_lines_up():
    text = render_targets(result(answer("RTX 3090", 40), answer("80GiB", 1600)))
    lines = text.splitlines()
    header = next(line for line in lines if line.startswith("target"))
    row = next(line for line in lines if line.startswith("RTX 3090"))
    assert "7.0 million parameters" in text
    assert row.index("bf16") == header.index("precision")
    assert "40 to 42" in row
    assert ">= 250 ms" in row
    assert "1,600" in text


def test_parts_too_small_to_matter_are_left_out():
    text = render_targets(result(answer("RTX 3090", 40)))
    assert "activations 18 GiB, weights 1 GiB; each sample adds 512 MiB" in text
    assert "inputs" not in text


def rung(change, peak, fits, **more):
    row = {"how": f"--set {change.split()[0]}", "micro_batch": 1, "accumulation": 32, "slowdown": 1.0, **more}
    return Rung(change=change, peak_bytes=peak, largest_batch=int(fits), **row)


def test_the_ladder_has_a_row_for_each_rung_and_the_way_to_the_first_that_fits():
    ladder = (
        rung("micro batch 1, accumulation 32", 40 * GIB, False),
        rung("activation checkpointing", 30 * GIB, False, slowdown=1.333),
        rung("eight bits", 28 * GIB, False, is_aside=True),
        rung("FSDP2 over 2", 15 * GIB, True, slowdown=None, gpus=2, accumulation=16, moved_bytes=3 * GIB),
        rung("FSDP2 over 2 with offload", 5 * GIB, True, slowdown=4, gpus=2, accumulation=16, host_bytes=9 * GIB),
    )
    text = render_targets(result(answer("RTX 3090", 8, ladder)))
    rows = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "batch 32 does not fit at once" in text
    assert rows["activation checkpointing"].split()[-4:] == ["GiB", "no", ">=", "1.33"]
    assert "1 x 16 x 2" in rows["FSDP2 over 2"]
    assert rows["FSDP2 over 2"].split()[-3:] == ["yes", "3", "GiB"]
    assert "needs: --set micro; --set activation; --set FSDP2. Predicted, not run." in text
    assert "FSDP2 over 2 with offload: 9 GiB of the host's memory for each GPU" in text


def test_what_is_refused_over_several_gpus_is_typed_only_where_it_is_what_fits():
    aside = rung("eight bits", 20 * GIB, True, is_aside=True)
    text = render_targets(result(answer("RTX 3090", 8, (rung("micro batch 1", 40 * GIB, False), aside))))
    assert "needs: --set micro; --set eight. Predicted, not run." in text


def test_what_fits_nowhere_says_so_and_what_to_do():
    text = render_targets(result(answer("RTX 3090", 0)))
    assert "does not fit" in text
    assert "not even one sample fits" in text
    assert "use a larger card" in text


def test_a_prediction_says_what_it_rests_on():
    text = render_targets(result(answer("RTX 3090", 40), probed="aten.nonzero at model.py:3", notes=("a at b",)))
    assert "nothing ran on a GPU" in text
    assert "Not traced: aten.nonzero at model.py:3" in text
    assert "Assumed: a at b." in text


def test_as_json_it_is_one_tune_document(capsys):
    assert show_targets(result(answer("RTX 3090", 40)), as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "gpudoc.tune.v1"
    assert document["targets"][0]["target"] == "RTX 3090"


def test_the_answer_is_bad_only_where_nothing_fits_anywhere(capsys):
    assert show_targets(result(answer("T4", 0), answer("RTX 3090", 4)), plain=True) == 0
    assert show_targets(result(answer("T4", 0)), plain=True) == 1
    assert "does not fit" in capsys.readouterr().out
