"""The `gpudoc train` command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpudoc.cli.options import (
    DeviceName,
    HtmlFile,
    JsonFlag,
    PlainFlag,
    SharedFlag,
    VerboseFlag,
    import_torch,
)

ModelSource = Annotated[
    str, typer.Option("--model", metavar="FILE", help="Train this cfg.yaml, or the built-in quickstart or images.")
]
ProfileName = Annotated[
    str, typer.Option("--profile", metavar="PROFILE", help="Use this profile: auto, off, or a file that tune wrote.")
]
Steps = Annotated[
    int | None,
    typer.Option("--steps", metavar="N", min=1, help="Stop after this many optimizer steps, counted across resumes."),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", metavar="N", min=1, help="Stop after this many passes over the data.")
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", metavar="N", min=1, help="Limit the micro batch per device to this size.")
]
Workers = Annotated[
    int | None, typer.Option("--num-workers", metavar="N", min=0, help="Load data with this many processes.")
]
PrecisionName = Annotated[
    str | None, typer.Option("--precision", metavar="NAME", help="Compute in auto, bf16, fp16 or fp32.")
]
MemoryLimit = Annotated[
    str | None, typer.Option("--memory-limit", metavar="SIZE", help="Stay under this much memory: 8GiB, 512MiB.")
]
RunDir = Annotated[
    Path | None,
    typer.Option("--run-dir", metavar="DIR", help="Keep the run in this folder; default runs/<config name>."),
]
Resume = Annotated[
    str, typer.Option("--resume", metavar="RUN", help="Resume: auto, never, or the run directory to continue.")
]
NoPreflight = Annotated[bool, typer.Option("--no-preflight", help="Do not run doctor first.")]
ProveResume = Annotated[
    bool, typer.Option("--prove-resume", help="Prove exact resume: run, kill, resume, and compare every bit.")
]
Trace = Annotated[int, typer.Option("--trace", metavar="N", min=0, help="Write a profiler trace of N steps.")]
LogTo = Annotated[
    str,
    typer.Option(
        "--log-to",
        metavar="NAME,...",
        help="Also log to tensorboard, wandb or trackio; separate several with commas.",
    ),
]
Gpus = Annotated[
    str | None,
    typer.Option("--gpus", metavar="N", help="Use this many GPUs (or auto), one process each; on a CPU, N processes."),
]
Slurm = Annotated[
    Path | None, typer.Option("--slurm", metavar="FILE", help="Write an sbatch file for this run instead of running.")
]
OnHang = Annotated[
    str,
    typer.Option(
        "--on-hang", metavar="THEN", help="Choose what happens if the run hangs: report it, or end the run too."
    ),
]
Allow = Annotated[
    str,
    typer.Option("--allow", metavar="batch", help="For a command: use the profile's batch, not the script's."),
]
Assign = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a config value; may be repeated: --set lr=1e-3."),
]


def train(
    context: typer.Context,
    model: ModelSource = "quickstart",
    profile: ProfileName = "auto",
    device: DeviceName = "auto",
    steps: Steps = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    num_workers: Workers = None,
    precision: PrecisionName = None,
    memory_limit: MemoryLimit = None,
    run_dir: RunDir = None,
    resume: Resume = "auto",
    gpus: Gpus = None,
    slurm: Slurm = None,
    on_hang: OnHang = "report",
    allow: Allow = "",
    shared: SharedFlag = False,
    no_preflight: NoPreflight = False,
    prove_resume: ProveResume = False,
    trace: Trace = 0,
    log_to: LogTo = "",
    assign: Assign = None,
    json: JsonFlag = False,
    html: HtmlFile = None,
    plain: PlainFlag = False,
    verbose: VerboseFlag = False,
) -> int:
    """Train with tuned settings, exact resume and rescue from out-of-memory errors.

    Example: gpudoc train --model cfg.yaml --profile auto | gpudoc train --profile auto -- python train.py --epochs 3
    """
    if context.obj.command or allow:
        from gpudoc.cli.running import RunWish, run_command, typed_options

        wish = RunWish(
            profile=profile, allow=allow, slurm=slurm, gpus=gpus, device=device, on_hang=on_hang, json=json, plain=plain
        )
        return run_command(context.obj.command, wish, typed_options(context))
    from gpudoc.render.train import Screen, show, show_proof, tell
    from gpudoc.train.request import TrainRequest
    from gpudoc.train.run import run
    from gpudoc.train.settings import parse_flags, parse_limit
    from gpudoc.train.start.place import as_rank, elsewhere, is_follower, needs_torch
    from gpudoc.train.watch.watch import check

    counts = {"steps": steps, "epochs": epochs, "micro_batch": batch_size, "num_workers": num_workers}
    request = TrainRequest(
        model=model,
        profile=profile,
        device=device,
        flags=parse_flags({**counts, "precision": precision}, assign or []),
        memory_limit_bytes=parse_limit(memory_limit),
        run_dir=run_dir,
        resume=resume,
        preflight=not no_preflight,
        trace_steps=trace,
        log_to=tuple(name for name in log_to.split(",") if name),
        arguments=tuple(sys.argv[2:]),
        may_restart=True,
        shared=shared,
        on_hang=check(on_hang),
    )
    import_torch(needs_torch(request, gpus=gpus, slurm=slurm), quiet=plain or json)
    screen = Screen(as_json=json, plain=plain, verbose=verbose, html=html, quiet=is_follower())
    if prove_resume:
        return show_proof(request, screen)
    other = elsewhere(request, gpus=gpus, slurm=slurm)
    return as_rank(lambda: show(run(request), screen)) if other is None else tell(other, screen)
