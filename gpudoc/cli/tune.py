"""The `gpudoc tune` command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from gpudoc.cli.options import DeviceName, HtmlFile, JsonFlag, PlainFlag, SharedFlag, VerboseFlag

Model = Annotated[
    str,
    typer.Option(
        "--model", metavar="FILE", help="cfg.yaml, or the built-in quickstart or images. Or: tune -- COMMAND."
    ),
]
Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="How long the search may take: 90s, 5m, 1h.")]
Goal = Annotated[
    str, typer.Option("--goal", metavar="GOAL", help="throughput: fastest with memory to spare; or largest.")
]
Only = Annotated[
    str,
    typer.Option("--only", metavar="PART,...", help="batch,speed,loader, or scaling; of a command look,loader,batch."),
]
Gpus = Annotated[
    str | None,
    typer.Option("--gpus", "--ranks", metavar="N", help="auto or N: one process each; on a CPU N processes."),
]
MaxBatch = Annotated[int | None, typer.Option("--max-batch", metavar="N", help="Try no batch above this one.")]
Limit = Annotated[str, typer.Option("--memory-limit", metavar="SIZE", help="Live under this much memory: 8GiB.")]
Target = Annotated[
    str, typer.Option("--target", metavar="GPU_OR_SIZE,...", help="Run nothing: predict for 'RTX 3090', 24GiB, ...")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the profile to this file.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget the trials of an earlier, unfinished search.")]
Allow = Annotated[
    str, typer.Option("--allow", metavar="WHAT,...", help="Of a command: network in trials; batch: compare it as well.")
]
InPlace = Annotated[bool, typer.Option("--in-place", help="Of a command: trials write and send as it does by itself.")]


def tune(
    context: typer.Context,
    model: Model = "",
    budget: Budget = "5m",
    goal: Goal = "throughput",
    only: Only = "",
    max_batch: MaxBatch = None,
    device: DeviceName = "auto",
    gpus: Gpus = None,
    shared: SharedFlag = False,
    memory_limit: Limit = "",
    target: Target = "",
    allow: Allow = "",
    in_place: InPlace = False,
    out: Out = None,
    as_json: JsonFlag = False,
    html: HtmlFile = None,
    fresh: Fresh = False,
    plain: PlainFlag = False,
    verbose: VerboseFlag = False,
) -> int:
    """Find the largest batch, the fastest one and the loader that keeps up; write them as a profile.

    Example: gpudoc tune --model cfg.yaml --budget 5m | gpudoc tune -- python train.py --batch-size {batch}
    """
    started = time.monotonic()
    foreign = {"--target": target, "--gpus": gpus, "--device": "" if device == "auto" else device}
    from gpudoc.cli.scripts import Shown, refuse_both, refuse_for_config, tune_script

    if context.obj.command or not model:
        refuse_both(model, context.obj.command)
        from gpudoc.script.options import Typed

        typed = Typed(
            budget=budget, goal=goal, only=only, allow=allow, memory_limit=memory_limit, max_batch=max_batch,
            out=out, in_place=in_place, fresh=fresh, shared=shared,
            foreign=tuple(name for name, value in foreign.items() if value),
        )  # fmt: skip
        return tune_script(context.obj.command, typed, Shown(as_json=as_json, plain=plain, verbose=verbose, html=html))
    refuse_for_config({"--allow": allow, "--in-place": in_place})
    if target:
        return _predict(model, target, as_json=as_json, plain=plain)
    from gpudoc.process.openmp import bound_spinning
    from gpudoc.render.live import Live
    from gpudoc.render.tune import show
    from gpudoc.render.tune_page import save as save_page
    from gpudoc.tune.options import Options
    from gpudoc.tune.run import run

    options = Options.of(
        source=model, device=device, goal=goal, only=only or "batch,speed,loader", budget=budget,
        memory_limit=memory_limit,
    ).also(max_batch=max_batch, out=out, fresh=fresh, gpus=gpus, shared=shared)  # fmt: skip
    bound_spinning()
    with Live(plain=plain or as_json, keep=verbose) as progress:
        result = run(options, progress, since=started)
    if html:
        save_page(html, result)
    show(result, as_json=as_json, plain=plain, verbose=verbose)
    return result.exit_code


def _predict(model: str, target: str, *, as_json: bool, plain: bool) -> int:
    from gpudoc import plan
    from gpudoc.render.live import Live
    from gpudoc.render.plan import show_targets
    from gpudoc.workload.build import load_workload

    with Live(plain=plain or as_json) as progress:
        result = plan.targets(load_workload(model), target.split(","), progress=progress)
    return show_targets(result, as_json=as_json, plain=plain)
