"""Everything that a stranger may hand to gpudoc, with whole examples to start from and the call that reads it."""

from __future__ import annotations

import functools
import gzip
import importlib.util
import json
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz import folder, tools

if TYPE_CHECKING:
    from tests.fakes.traces import Planted

# must never come out of a document that leaves the machine
# they are known by themselves, so that an edit of the word before them hides nothing
SECRETS = ("ghp_" + "a1B2c3D4e5F6" * 3, "sk-proj-Zz9Yy8Xx7Ww6Vv5Uu4")
_TEXTS = tuple(path.read_text("utf-8") for path in sorted(Path(__file__).with_name("texts").glob("*.log")))
_SECRET_LINES = (
    f"export GITHUB_TOKEN={SECRETS[0]}\n",
    f"train.py --token {SECRETS[0]} torch.OutOfMemoryError: CUDA out of memory\n",
    f"Authorization: token {SECRETS[0]}\nopenai.api_key = '{SECRETS[1]}'\n",
)


@dataclass(frozen=True)
class Entrance:
    """A kind of file: its name's ending, whole examples, and a call whose result is an exit code.

    `needs` is a package without which the call cannot be made.
    """

    name: str
    ending: str
    seeds: Callable[[], tuple[bytes, ...]]
    call: Callable[[Path, str], int]
    modes: tuple[str, ...] = ("",)
    needs: str = ""

    @property
    def is_shut(self) -> str:
        """Why the call cannot be made here; '' where it can."""
        missing = self.needs and importlib.util.find_spec(self.needs) is None
        return f"the package {self.needs} is not installed" if missing else ""


def _doctor(path: Path, mode: str) -> int:
    from gpudoc.cli import app

    return int(app.run(["doctor", str(path), *([mode] if mode else [])]))


def _doctor_of_folder(path: Path, mode: str) -> int:
    """The files that this one holds, as the logs of one job."""
    place = Path("job")
    folder.unpack(path.read_bytes(), place)
    return _doctor(place, mode)


def _doctor_of_each(path: Path, mode: str) -> int:
    """The files that this one holds, handed over together."""
    from gpudoc.cli import app

    places = folder.unpack(path.read_bytes(), Path("several"))
    return int(app.run(["doctor", *map(str, places[:4]), *([mode] if mode else [])]))


def _doctor_of_stdin(path: Path, mode: str) -> int:
    """The file as what is redirected into the command."""
    from gpudoc.cli import app

    given, before = os.open(path, os.O_RDONLY), os.dup(0)
    try:
        os.dup2(given, 0)
        with open(given, closefd=False, encoding="utf-8") as sys.stdin:
            return int(app.run(["doctor", *([mode] if mode else [])]))
    finally:
        sys.stdin = sys.__stdin__
        os.dup2(before, 0)
        os.close(before)
        os.close(given)


def _doctor_to_files(path: Path, mode: str) -> int:
    """What is written as SARIF and as a page, shown as it is."""
    from gpudoc.cli import app

    written = [Path("shown.sarif"), Path("shown.html")]
    places = zip(("--sarif", "--html"), written, strict=True)
    code = int(app.run(["doctor", str(path), "--json", *(str(word) for pair in places for word in pair)]))
    for one in written:
        if one.exists():
            sys.stdout.write(one.read_text("utf-8"))
    return code


def _check(path: Path, mode: str) -> int:
    from gpudoc.cli import app

    return int(app.run(["check", str(path)]))


def _refusable(read: Callable[[Path], object]) -> Callable[[Path, str], int]:
    """The call of a reader that is no command: 0, or 2 where it refuses in a sentence."""

    def call(path: Path, mode: str) -> int:
        from gpudoc.errors import GpudocError
        from gpudoc.render.console import print_lines

        try:
            read(path)
        except GpudocError as refused:
            print_lines(f"gpudoc: {refused.message}\n  try: {refused.hint}", sys.stderr)
            return int(refused.exit_code)
        return 0

    return call


def _texts() -> tuple[bytes, ...]:
    return tuple((text + secret).encode() for text in _TEXTS for secret in ("", *_SECRET_LINES[:1])) + tuple(
        line.encode() for line in _SECRET_LINES
    )


def _encoded() -> tuple[bytes, ...]:
    secret = _SECRET_LINES[1]
    russian = (f"Почему обучение падает? Вот журнал:\n{text}{secret}Заранее спасибо\n" for text in _TEXTS[:4])
    chinese = (f"训练开始后报错，日志如下：\n{text}{secret}请问怎么解决？\n" for text in _TEXTS[:4])
    made = [text.encode(code, "replace") for text in russian for code in ("cp1251", "koi8-r", "cp866", "utf-16-le")]
    return (*made, *(text.encode(code, "replace") for text in chinese for code in ("gb18030", "utf-16", "utf-16-be")))


def _planted_jobs(*names: str) -> tuple[dict[str, bytes], ...]:
    """The logs by path of jobs of four ranks, each with a secret in its last log."""
    from tests.fakes import rank_logs

    styles = [style for style in rank_logs.STYLES if style.__name__ in names]
    jobs = [rank_logs.plant(fault, style, 4, steps=20) for style in styles for fault in rank_logs.FAULTS[::2]]
    made = [{name: "\n".join(lines).encode() + b"\n" for name, lines in job.files.items()} for job in jobs]
    return tuple({**files, (last := list(files)[-1]): files[last] + _SECRET_LINES[1].encode()} for files in made)


def _error_files() -> tuple[bytes, ...]:
    """What torchrun keeps of a rank that failed."""
    stacks = [text + secret for text in _TEXTS[:3] for secret in _SECRET_LINES]
    said = [
        {
            "message": {
                "message": stack.splitlines()[-1],
                "extraInfo": {"py_callstack": stack, "timestamp": "1700000000"},
            }
        }
        for stack in stacks
    ]
    return tuple(json.dumps(one).encode() for one in said)


def _error_folders() -> tuple[bytes, ...]:
    files = _error_files()
    names = [f"attempt_{number % 2}/{number}/error.json" for number in range(4)]
    return (folder.pack(dict(zip(names, files, strict=False))), folder.pack({"a/error.json": files[0]}))


def _job_folders() -> tuple[bytes, ...]:
    return tuple(folder.pack(files) for files in _planted_jobs("apart", "folders"))


def _job_logs() -> tuple[bytes, ...]:
    return tuple(held for files in _planted_jobs("tee", "labelled", "plain", "late") for held in files.values())


def _reports() -> tuple[bytes, ...]:
    from gpudoc.doctor import document
    from gpudoc.doctor.examine import examine_machine, examine_text
    from gpudoc.facts.model import Machine

    reports = [examine_machine(Machine()), *(examine_text([("a", text.encode())]) for text in _TEXTS[:4])]
    return tuple(json.dumps(document.dump(report)).encode() for report in reports)


def _compared() -> tuple[bytes, ...]:
    first, *others = _reports()
    return tuple(folder.pack({"a.json": first, "b.json": other}) for other in (first, *others))


def _fleets() -> tuple[bytes, ...]:
    from gpudoc.fleet import documents
    from tests.fleet.test_documents import a_record

    return (json.dumps(documents.record_to_json(a_record())).encode(),)


def _pickles() -> tuple[bytes, ...]:
    block = {"size": 512, "requested_size": 500, "state": "active_allocated", "frames": []}
    segment = {"device": 0, "total_size": 2 << 20, "allocated_size": 512, "blocks": [block], "segment_type": "small"}
    call = {"process_group": ("0", "default"), "collective_seq_id": 3, "profiling_name": "nccl:all_reduce"}
    recorded = {"version": "2.4", "pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [{**call, "state": "started"}]}
    dumps = ({"segments": [segment], "device_traces": [[]]}, recorded)
    return tuple(pickle.dumps(dump, protocol=protocol) for dump in dumps for protocol in (2, 4))


def _planted_trace(loader: str) -> Planted:
    from tests.fakes.traces import Step, planted

    return planted(Step(data=2_000, loader=loader, talk=300, copy=200, reads=True), steps=3)


# a secret as a call of the profiled program has it
_LOADERS = ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", f"load --token {SECRETS[0]}")


def _traces() -> tuple[bytes, ...]:
    planted = [_planted_trace(loader).events for loader in _LOADERS]
    return tuple(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode() for events in planted)


def _databases() -> tuple[bytes, ...]:
    from tests.fakes.traces import write_nsys

    return _written(write_nsys)


def _exports() -> tuple[bytes, ...]:
    from tests.fakes.traces import write_nsys_lines

    return _written(write_nsys_lines)


def _written(write: Callable[[Path, Planted], Path]) -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as place:
        files = [write(Path(place, str(number)), _planted_trace(name)) for number, name in enumerate(_LOADERS)]
        return tuple(file.read_bytes() for file in files)


def _configs() -> tuple[bytes, ...]:
    from tests.test_mutated_files import CONFIG

    return (CONFIG,)


def _profiles() -> tuple[bytes, ...]:
    from tests.test_mutated_files import PROFILE

    return (PROFILE,)


def _journals() -> tuple[bytes, ...]:
    folder = Path(__file__).parents[1] / "journals"
    return tuple(path.read_bytes()[:20_000] for path in sorted(folder.glob("*.jsonl"))[:4])


def _load_config(path: Path) -> object:
    from gpudoc.workload.config import load_config

    return load_config(str(path))


def _load_profile(path: Path) -> object:
    from gpudoc.profile import store

    return store.load(path)


def _open_journal(path: Path) -> object:
    from gpudoc.tune.search.journal import Header, open_journal, recorded_limit

    recorded_limit(path, {"a": "b"})
    journal = open_journal(path, Header(key={"a": "b"}, limit_bytes=None))
    journal.close()
    return journal


def _manifests() -> tuple[bytes, ...]:
    rows = {"state.json": {"bytes": 2, "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}}
    return (json.dumps({"schema": "gpudoc.checkpoint.v1", "files": rows}).encode(),)


def _verify_checkpoint(path: Path) -> object:
    """A checkpoint whose manifest is this file; what is wrong with it is a sentence."""
    from gpudoc.train.state import checkpoint

    folder = Path("checkpoint")
    folder.mkdir(exist_ok=True)
    (folder / "state.json").write_text("{}")
    (folder / checkpoint.MANIFEST).write_bytes(path.read_bytes())
    return checkpoint.verify(folder)


def _sharded() -> tuple[bytes, ...]:
    import torch
    from torch.distributed.checkpoint import save

    from gpudoc.train.state.shards import _Writer

    tensors = {"model.weight": torch.ones(3, 4), "optimizer.0.exp_avg": torch.zeros(3, 4)}
    rows = {"state": {0: {"step": 2.0, "exp_avg": None}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        # that nothing is distributed is meant
        warnings.simplefilter("ignore")
        top = Path(place)
        save(dict(tensors), storage_writer=_Writer(top / "dcp"), no_dist=True)
        torch.save(rows, top / "optimizer.pt")
        (top / "state.json").write_text(json.dumps({"schema": "gpudoc.state.v1", "step": 2}))
        files = sorted(path for path in top.rglob("*") if path.is_file())
        return (folder.pack({str(path.relative_to(top)): path.read_bytes() for path in files}),)


def _load_sharded(path: Path) -> object:
    """A checkpoint of sharded ranks of which every file is somebody's, so that the manifest agrees with it."""
    from gpudoc.train.state import checkpoint, restore

    place = Path("sharded")
    folder.unpack(path.read_bytes(), place)
    checkpoint.verify(place)
    return restore.load(place)


def _calls() -> tuple[bytes, ...]:
    texts = [{"name": "diagnose_text", "arguments": {"text": text + _SECRET_LINES[1], "full": True}} for text in _TEXTS]
    others: list[dict[str, object]] = [
        {"name": "explain_cause", "arguments": {"cause": "gpu_ecc_error"}},
        {"name": "watch_process", "arguments": {"pid": 1, "seconds": 1.5}},
        {"name": "plan_memory", "arguments": {"model": "cfg.yaml", "target": "H100,24GiB"}},
        {"name": "tune_loader", "arguments": {"command": ["python", "train.py"], "budget": "3m"}},
    ]
    return tuple(json.dumps(call, ensure_ascii=False).encode() for call in (*texts, *others))


def _names() -> tuple[bytes, ...]:
    return (b"python", b"python train.py --token " + SECRETS[0].encode(), "пайтон".encode(), b"\x1b]0;OWNED\x07")


def _process_names(path: Path, mode: str) -> int:
    """A machine on whose GPU computes a process of this name, by a user of this name, in a container of this name."""
    from gpudoc.doctor.examine import examine_machine
    from gpudoc.facts.model import Gpu, GpuProcess, Machine
    from gpudoc.render.doctor_output import Output, show

    name = path.read_bytes()[:4096].decode("utf-8", "surrogateescape")
    process = GpuProcess(pid=7, memory_bytes=1 << 30, name=name, command=name, user=name, container=f"docker {name}")
    gpu = Gpu(index=0, name=f"NVIDIA {name}", memory_total_bytes=8 << 30, processes=(process,))
    output = Output(json=mode == "--json", markdown=mode == "--markdown", verbose=True)
    show(examine_machine(Machine(gpus=(gpu,))), output)
    return 0


def _packed(seeds: Callable[[], tuple[bytes, ...]]) -> Callable[[], tuple[bytes, ...]]:
    return lambda: tuple(gzip.compress(seed, mtime=0) for seed in seeds())


ENTRANCES = (
    Entrance("text", ".log", _texts, _doctor, ("", "--json", "--markdown", "--verbose")),
    Entrance("report", ".json", _reports, _doctor, ("", "--json", "--markdown")),
    Entrance("fleet", ".json", _fleets, _doctor, ("", "--json", "--markdown")),
    Entrance("text in another encoding", ".txt", _encoded, _doctor, ("", "--json", "--markdown")),
    Entrance("text in a language", ".log", _texts, _doctor, ("--language=zh", "--language=ru")),
    Entrance("text on stdin", ".log", _texts, _doctor_of_stdin, ("", "--json", "--markdown")),
    Entrance("packed text on stdin", ".gz", _packed(_texts), _doctor_of_stdin, ("",)),
    Entrance("text as SARIF and a page", ".log", _texts, _doctor_to_files, ("--json",)),
    Entrance("error file of a rank", ".json", _error_files, _doctor, ("", "--json", "--markdown")),
    Entrance("folder of error files", ".job", _error_folders, _doctor_of_folder, ("", "--json")),
    Entrance("packed", ".gz", _packed(_texts), _doctor, ("",)),
    Entrance("log of many ranks", ".log", _job_logs, _doctor, ("", "--json", "--markdown")),
    Entrance("folder of logs", ".job", _job_folders, _doctor_of_folder, ("", "--json", "--markdown")),
    Entrance("compared reports", ".pair", _compared, _doctor_of_each, ("", "--json", "--markdown")),
    Entrance("pickle", ".pickle", _pickles, _doctor, ("", "--json")),
    Entrance("trace", ".json", _traces, _doctor, ("", "--json", "--markdown")),
    Entrance("packed trace", ".json.gz", _packed(_traces), _doctor, ("",)),
    Entrance("trace of nsys", ".sqlite", _databases, _doctor, ("", "--json")),
    Entrance("trace of nsys in lines", ".json", _exports, _doctor, ("", "--json")),
    Entrance("config", ".yaml", _configs, _refusable(_load_config)),
    Entrance("check of a config", ".yaml", _configs, _check),
    Entrance("check of a profile", ".yaml", _profiles, _check),
    Entrance("profile", ".yaml", _profiles, _refusable(_load_profile)),
    Entrance("journal", ".jsonl", _journals, _refusable(_open_journal)),
    Entrance("checkpoint", ".json", _manifests, _refusable(_verify_checkpoint)),
    Entrance("sharded checkpoint", ".checkpoint", _sharded, _refusable(_load_sharded), needs="torch"),
    Entrance("call of a tool", ".json", _calls, tools.call_tool, ("--json",), needs="mcp"),
    Entrance("process name", ".name", _names, _process_names, ("", "--json", "--markdown")),
)


@functools.cache
def seeds_of(name: str) -> tuple[bytes, ...]:
    """The whole examples of an entrance."""
    return next(one for one in ENTRANCES if one.name == name).seeds()
