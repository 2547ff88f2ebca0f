"""A pretended training script: tells what the inside would have told, without importing torch."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time

from gpudoc.script.messages import ErrorSeen, ExceptionLink, LoaderSeen, ScriptStart, StepsSeen, Total


def steps(first: int, count: int, *, rank: int | None, seconds: float, **more: object) -> StepsSeen:
    """One event of steps, all of them so far in `seconds`, half of that waiting for data."""
    total = Total(steps=first + count, seconds=seconds, wait_s=seconds / 2, evaluate_s=0.0, samples=8 * (first + count))
    fields = {"loader": 0, "rank": rank, "world": None, "device": "cpu", "device_name": None, "parameters": "float32"}
    rest = {"autocast": None, "tf32": None, "peak_bytes": 3 << 20}
    return StepsSeen.model_validate(
        {"at": time.time(), "first": first, "count": count, "total": total, **fields, **rest, **more}
    )


def loader(**more: object) -> LoaderSeen:
    """The training loader, with the order applied as far as `more` says."""
    fields = {
        "at": 1.0, "number": 0, "key": "train.py:4", "place": "train.py:4", "file": "train.py", "line": 4,
        "through": "torch", "remade_from": None, "dataset": "D", "samples": 80, "sampler": "RandomSampler",
        "batch_size": 8, "num_workers": 4, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": False,
        "own_batch_sampler": False, "iterable": False, "sharded": False, "length": 10, "drop_last": False, "script": {},
    }  # fmt: skip
    return LoaderSeen.model_validate({**fields, **more})


def start(rank: int | None = None) -> ScriptStart:
    """A process that imported torch."""
    fields = {"pid": os.getpid(), "ppid": os.getppid(), "local_rank": rank, "world": None, "program": "train.py"}
    return ScriptStart(at=time.time(), rank=rank, python="3.11", torch="2.13.0", cuda=None, **fields)


def out_of_memory() -> ErrorSeen:
    """The error of a process that ran out of the GPU's memory."""
    link = ExceptionLink(
        types=("OutOfMemoryError", "RuntimeError"), text="CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    return ErrorSeen(at=time.time(), chain=(link,), allocator={"allocated_bytes": 3 << 30, "reserved_bytes": 5 << 30})


def tell(*events: object, rank: int | None = None) -> None:
    """Write the events where the inside would."""
    folder = pathlib.Path(os.environ["GPUDOC_SCRIPT_FOLDER"])
    with (folder / f"{rank or 0}-{os.getpid()}.jsonl").open("a") as file:
        file.writelines(event.model_dump_json() + "\n" for event in events)


def order() -> dict[str, object]:
    """The order that the inside would read."""
    found = json.loads((pathlib.Path(os.environ["GPUDOC_SCRIPT_FOLDER"]) / "order.json").read_text())
    assert isinstance(found, dict)
    return found


if __name__ == "__main__":
    tell(
        start(),
        loader(applied={"num_workers": 4}, refused={"pin_memory": "no GPU"}),
        steps(0, 5, rank=None, seconds=1.0),
    )
    tell(steps(5, 5, rank=None, seconds=2.0))
    sys.stdout.write(json.dumps(order()) + "\n")
    if "oom" in sys.argv:
        tell(out_of_memory())
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
