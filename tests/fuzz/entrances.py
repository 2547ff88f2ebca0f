"""Everything that a stranger may hand to gpudoc, with whole examples to start from and the call that reads it."""

from __future__ import annotations

import functools
import gzip
import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    """A kind of file: its name's ending, whole examples, and a call whose result is an exit code."""

    name: str
    ending: str
    seeds: Callable[[], tuple[bytes, ...]]
    call: Callable[[Path, str], int]
    modes: tuple[str, ...] = ("",)


def _doctor(path: Path, mode: str) -> int:
    from gpudoc.cli import app

    return int(app.run(["doctor", str(path), *([mode] if mode else [])]))


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


def _reports() -> tuple[bytes, ...]:
    from gpudoc.doctor import document
    from gpudoc.doctor.examine import examine_machine, examine_text
    from gpudoc.facts.model import Machine

    reports = [examine_machine(Machine()), *(examine_text([("a", text.encode())]) for text in _TEXTS[:4])]
    return tuple(json.dumps(document.dump(report)).encode() for report in reports)


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


def _traces() -> tuple[bytes, ...]:
    from tests.fakes.traces import Step, planted

    made = planted(Step(data=2_000, talk=300, copy=200, reads=True), steps=3)
    return (json.dumps({"schemaVersion": 1, "traceEvents": made.events}).encode(),)


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
    Entrance("packed", ".gz", _packed(_texts), _doctor, ("",)),
    Entrance("pickle", ".pickle", _pickles, _doctor, ("", "--json")),
    Entrance("trace", ".json", _traces, _doctor, ("", "--json")),
    Entrance("packed trace", ".json.gz", _packed(_traces), _doctor, ("",)),
    Entrance("config", ".yaml", _configs, _refusable(_load_config)),
    Entrance("profile", ".yaml", _profiles, _refusable(_load_profile)),
    Entrance("journal", ".jsonl", _journals, _refusable(_open_journal)),
    Entrance("checkpoint", ".json", _manifests, _refusable(_verify_checkpoint)),
    Entrance("process name", ".name", _names, _process_names, ("", "--json", "--markdown")),
)


@functools.cache
def seeds_of(name: str) -> tuple[bytes, ...]:
    """The whole examples of an entrance."""
    return next(one for one in ENTRANCES if one.name == name).seeds()
