"""The `gpudoc bench` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpudoc.cli.options import (
    DeviceName,
    HtmlFile,
    JsonFlag,
    OutFile,
    PlainFlag,
    SharedFlag,
    VerboseFlag,
    require_training,
)
from gpudoc.writing import check_places

Only = Annotated[str, typer.Option("--only", metavar="NAME,...", help="Measure only these cases: memory,matmul.")]
Quick = Annotated[bool, typer.Option("--quick", help="Take about 15 seconds instead of 90.")]
Soak = Annotated[
    str,
    typer.Option(
        "--soak", metavar="TIME", help="Then keep the GPU busy for this long, to see whether heat slows it: 60s."
    ),
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Also measure how fast this folder can be read.")
]
Across = Annotated[
    bool,
    typer.Option("--across", help="Measure all GPUs of all nodes (under srun, torchrun or mpirun), or of this one."),
]
Slurm = Annotated[
    Path | None, typer.Option("--slurm", metavar="FILE", help="With --across: write an sbatch file instead of running.")
]
BadHosts = Annotated[
    bool, typer.Option("--bad-hosts", help="With --across: print only the hosts to drain, one per line.")
]
Old = Annotated[
    Path | None,
    typer.Option(
        "--compare", metavar="FILE", help="Compare with an older record; exit with 1 if anything became slower."
    ),
]


def bench(
    only: Only = "",
    quick: Quick = False,
    soak: Soak = "",
    data: Data = None,
    device: DeviceName = "auto",
    shared: SharedFlag = False,
    as_json: JsonFlag = False,
    html: HtmlFile = None,
    out: OutFile = None,
    compare: Old = None,
    across: Across = False,
    slurm: Slurm = None,
    bad_hosts: BadHosts = False,
    plain: PlainFlag = False,
    verbose: VerboseFlag = False,
) -> int:
    """Measure this machine; show each figure with what the hardware can do, and the cause when it is low.

    Example: gpudoc bench --quick --out bench.json | srun gpudoc bench --across --out fleet.json
    """
    if slurm is None:
        require_training("bench")
    from gpudoc.doctor.spinning import bound_spinning

    bound_spinning()
    if across or slurm or bad_hosts:
        from gpudoc.cli.across import AcrossOutput, Start, measure_fleet
        from gpudoc.fleet.allocation import AcrossOptions as Fleet

        output = AcrossOutput(json=as_json, html=html, out=out, compare=compare, plain=plain, verbose=verbose)
        start = Start(across=across, slurm=slurm, bad_hosts=bad_hosts, soak=soak)
        return measure_fleet(Fleet.of(device, only, quick, data, shared), start, output)
    from gpudoc.bench.documents import load_record, save_record
    from gpudoc.bench.report import BenchReport
    from gpudoc.bench.run import Options, run
    from gpudoc.bench.target import before_measuring, find_target
    from gpudoc.render.bench_page import save
    from gpudoc.render.bench_screen import show
    from gpudoc.render.console import say_written
    from gpudoc.render.live import Live

    check_places(out, html)
    old = load_record(compare) if compare else None
    with Live(plain=plain or as_json, keep=verbose) as progress:
        target = find_target(device)
        options = Options.of(target.choice.name, only, quick, data, old, soak)
        for sentence in (target.said, *before_measuring(target, quick=quick, shared=shared)):
            progress.say(sentence)
        record = run(options, target.machine, progress)
    if out:
        save_record(out, record)
    report = BenchReport.of(record, old)
    if html:
        save(html, report)
    show(report, as_json=as_json, plain=plain, verbose=verbose, drawn=html is not None)
    say_written(out, html)
    return report.exit_code
