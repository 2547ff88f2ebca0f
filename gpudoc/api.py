"""gpudoc from Python: what the commands do, each returning the document that its `--json` prints.

    from gpudoc import api

    api.diagnose()                              # this machine
    api.diagnose("RuntimeError: CUDA error ...")  # a pasted text; a Path is read, an exception is taken apart
    api.watch(pid=4711)                         # a running job
    api.run_bench(quick=True)
    api.run_tune(model="cfg.yaml", budget="5m")
    api.run_train(model="cfg.yaml", steps=500)
    api.run_fix(["python", "train.py"])           # the smallest change that helps, proved; nothing is written

A `Document` is a dict; `print` shows the screen of the command, a notebook its page. What the user can mend raises a
`gpudoc.errors.GpudocError`. Importing this module imports neither torch nor any other library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Unpack

    from gpudoc.progress import Progress
    from gpudoc.train.document import RunSummary

__all__ = ["Document", "diagnose", "run_bench", "run_fix", "run_train", "run_tune", "watch"]


class Document(dict[str, object]):
    """A result as plain data, with its screen (`print`), its page (`html`, `save`) and the command's exit code."""

    def __init__(
        self, data: Mapping[str, object], screen: Callable[[], str], page: Callable[[], str], exit_code: int
    ) -> None:
        super().__init__(data)
        self.exit_code = exit_code
        self._screen = screen
        self._page = page

    @property
    def html(self) -> str:
        """The page that `--html` writes."""
        return self._page()

    def save(self, path: str | Path) -> Path:
        """Write the page to `path`; GpudocError when it cannot be written."""
        from pathlib import Path

        from gpudoc.render.page import save_page

        save_page(Path(path), self.html)
        return Path(path)

    def __str__(self) -> str:
        return self._screen()

    def __reduce__(self) -> tuple[type[dict[str, object]], tuple[dict[str, object]]]:
        """Pickle as the plain data, for another process."""
        return dict, (dict(self),)

    def __rich__(self) -> str:
        """What `rich.print` shows, with its brackets kept."""
        return str(self).replace("[", "\\[")

    def _repr_html_(self) -> str:
        from gpudoc.render.notebook import frame

        return frame(self.html)

    def _repr_pretty_(self, printer: object, cycle: bool) -> None:
        """IPython's prompt shows the screen."""
        text = getattr(printer, "text", None)
        if text is not None and not cycle:
            text(str(self))


class DoctorOptions(TypedDict, total=False):
    """The options of `gpudoc doctor`; `redact=False` keeps names, paths and addresses, `language` is the answer's."""

    quick: bool
    python: str | Path
    expect_gpus: int
    ignore: tuple[str, ...]
    language: Literal["en", "zh", "ru"]
    redact: bool


class BenchOptions(TypedDict, total=False):
    """The options of `gpudoc bench`; `compare` is the file of an older record."""

    only: str
    quick: bool
    soak: str
    data: str | Path
    device: str
    shared: bool
    compare: str | Path


class TuneOptions(TypedDict, total=False):
    """The options of `gpudoc tune`, written as on the command line: budget="5m", memory_limit="8GiB"."""

    device: str
    budget: str
    goal: str
    only: str
    max_batch: int
    memory_limit: str
    out: str | Path
    fresh: bool
    gpus: str
    shared: bool


class TrainOptions(TypedDict, total=False):
    """The options of `gpudoc train`; `set` holds settings by name, as `--set` takes them."""

    profile: str | Path
    device: str
    steps: int
    epochs: int
    batch_size: int
    num_workers: int
    precision: str
    memory_limit: str
    run_dir: str | Path
    resume: str | Path
    gpus: str
    shared: bool
    no_preflight: bool
    trace: int
    log_to: str
    on_hang: str
    set: Mapping[str, object]


class FixSettings(TypedDict, total=False):
    """The options of `gpudoc fix`, written as on the command line: budget="5m", memory_limit="8GiB"."""

    write: bool
    patch: str | Path
    memory_limit: str
    budget: str
    allow: str
    network: bool


def diagnose(
    source: str | Path | BaseException | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[DoctorOptions],
) -> Document:
    """What is wrong: with this machine (None), or according to a pasted text, a file (a Path) or a caught exception.

    It examines the Python that runs this call, whatever environment is active, unless `python` names another.
    """
    import traceback
    from pathlib import Path

    from gpudoc.doctor.document import dump
    from gpudoc.doctor.examine import Request, examine
    from gpudoc.render import doctor, doctor_output, doctor_page

    if isinstance(source, BaseException):
        source = "".join(traceback.format_exception(source))
    python = options.get("python", sys.executable)
    asked = Request(
        sources=(str(source),) if isinstance(source, Path) else (),
        texts=(source,) if isinstance(source, str) else (),
        quick=options.get("quick", False),
        python=Path(python),
        expect_gpus=options.get("expect_gpus"),
        ignore=tuple(options.get("ignore", ())),
        language=options.get("language"),
    )
    with _shown(progress) as teller:
        report = examine(asked, teller)
    clean = doctor_output.shareable(report, redact=options.get("redact", True))
    kept = dump(clean)
    return Document(kept, lambda: doctor.render(clean), lambda: doctor_page.render_page(clean), report.exit_code())


def watch(
    pid: int, *, seconds: float = 20.0, ignore: tuple[str, ...] = (), progress: Progress | None = None
) -> Document:
    """Where the time of a running job goes, and the line that costs it; the job is not stopped."""
    from gpudoc import facts
    from gpudoc.doctor import document
    from gpudoc.doctor.live.judge import judge
    from gpudoc.render import doctor_output, watch_page
    from gpudoc.render import watch as screen

    with _shown(progress) as teller:
        seen = facts.watch(pid=pid, seconds=seconds, progress=teller)
    report = judge(seen, ignore=ignore)
    redactor = doctor_output.redactor_of(report)
    clean, shared = redactor.clean(report), redactor.clean(seen)
    return Document(
        screen.to_json(document.dump(clean), shared, None),
        lambda: screen.render(clean, shared),
        lambda: watch_page.render_page(clean, shared),
        report.exit_code(),
    )


def run_bench(*, progress: Progress | None = None, **options: Unpack[BenchOptions]) -> Document:
    """Measure this machine, each figure in a separate process and next to the figure that the hardware can reach."""
    from pathlib import Path

    from gpudoc.bench.documents import load_record
    from gpudoc.bench.report import BenchReport
    from gpudoc.bench.run import Options, run
    from gpudoc.bench.target import before_measuring, find_target
    from gpudoc.render import bench, bench_page, bench_screen

    quick, data, compare = options.get("quick", False), options.get("data"), options.get("compare")
    old = load_record(Path(compare)) if compare else None
    with _shown(progress) as teller:
        target = find_target(options.get("device", "auto"))
        for sentence in (target.said, *before_measuring(target, quick=quick, shared=options.get("shared", False))):
            teller.say(sentence)
        folder = Path(data) if data else None
        asked = Options.of(target.choice.name, options.get("only", ""), quick, folder, old, options.get("soak", ""))
        report = BenchReport.of(run(asked, target.machine, teller), old)
    return Document(
        bench.report_to_json(report),
        lambda: _printed(lambda: bench_screen.show(report, as_json=False, plain=True, verbose=False)),
        lambda: bench_page.render_page(report),
        report.exit_code,
    )


def run_tune(model: str | Path, *, progress: Progress | None = None, **options: Unpack[TuneOptions]) -> Document:
    """Find the batch, the loader and the other settings; the profile is written where the command writes it."""
    from pathlib import Path

    from gpudoc.render import tune, tune_page
    from gpudoc.tune.options import SearchOptions
    from gpudoc.tune.run import document, run

    typed: dict[str, Any] = {**options, **({"out": Path(options["out"])} if options.get("out") else {})}
    asked = SearchOptions(model=str(model), **typed)
    with _shown(progress) as teller:
        result = run(asked, teller)
    return Document(
        document(result),
        lambda: _printed(lambda: tune.show(result, as_json=False, plain=True, verbose=False)),
        lambda: tune_page.render_page(result),
        result.exit_code,
    )


def run_train(
    model: str | Path = "quickstart", *, progress: Progress | None = None, **options: Unpack[TrainOptions]
) -> Document:
    """Train in a separate process, so that memory limits, the allocator and the GPU's memory do not affect this one."""
    from gpudoc.errors import ExitCode
    from gpudoc.render import train, train_page
    from gpudoc.train.events import Finished
    from gpudoc.train.start.separate_process import train_apart

    with _shown(progress) as teller:
        summary, code = train_apart(str(model), dict(options), teller)
    told = cast("RunSummary", summary)
    finished = Finished(summary=told, exit_code=ExitCode(code), reason=told.get("reason") or "", go_on=None)
    return Document(summary, lambda: train.last_words(finished) + "\n", lambda: train_page.render_page(finished), code)


def run_fix(command: Sequence[str], *, progress: Progress | None = None, **options: Unpack[FixSettings]) -> Document:
    """Find and prove the smallest change to the script that `command` starts; `exit_code` is 1 if one is proved.

    The document's `diff` is for `patch -p1`. Nothing is written unless `write=True`.
    """
    from pathlib import Path

    from gpudoc.facts.redact import private
    from gpudoc.fix.document import document
    from gpudoc.fix.options import FixOptions
    from gpudoc.fix.run import run
    from gpudoc.render import fix, fix_page

    typed: dict[str, Any] = {**options, **({"patch": Path(options["patch"])} if options.get("patch") else {})}
    asked = FixOptions(command=tuple(map(str, command)), **typed)
    with _shown(progress) as teller:
        result = run(asked, teller)
    return Document(
        private(document(result)),
        lambda: fix.as_text(result) + "\n",
        lambda: fix_page.render_page(result),
        result.exit_code,
    )


@contextmanager
def _shown(progress: Progress | None) -> Iterator[Progress]:
    """The progress to report to: the given one, a notebook's, a terminal's; `SILENT` if there is none of these."""
    from gpudoc.progress import SILENT
    from gpudoc.render.notebook import Notebook, is_notebook

    if progress is not None:
        yield progress
    elif is_notebook():
        cell = Notebook()
        try:
            yield cell
        finally:
            cell.close()
    elif sys.stderr.isatty():
        from gpudoc.render.live import Live

        with Live() as live:
            yield live
    else:
        yield SILENT


def _printed(action: Callable[[], object]) -> str:
    """What `action` prints to stdout."""
    import io
    from contextlib import redirect_stdout

    stream = io.StringIO()
    with redirect_stdout(stream):
        action()
    return stream.getvalue()
