"""Watches made by hand for tests: stacks by phase, processes, limits and GPUs."""

from gpudoc.facts.model import Absent
from gpudoc.facts.process import (
    Frame,
    GpuMoment,
    GpuTrack,
    GpuUser,
    Limits,
    ProcessTrack,
    Stacks,
    ThreadStacks,
    Watch,
)

TORCH = "/v/lib/python3.11/site-packages/torch"
STD = "/usr/lib/python3.11"
USER = "/home/me/train.py"
LOOP = Frame("main", USER, 10)
LOADER, FETCHER, PROCESS = (
    f"{TORCH}/utils/data/dataloader.py",
    f"{TORCH}/utils/data/_utils/fetch.py",
    f"{STD}/multiprocessing/process.py",
)
NEXT = (Frame("_BaseDataLoaderIter.__next__", LOADER, 700),)
MANY = (*NEXT, Frame("_MultiProcessingDataLoaderIter._next_data", LOADER, 1500))
TRY = Frame("_MultiProcessingDataLoaderIter._try_get_data", LOADER, 1290)
BUILD = Frame("_MultiProcessingDataLoaderIter.__init__", LOADER, 1100)
FETCH = Frame("_MapDatasetFetcher.fetch", FETCHER, 54)
CALL_COLLATE = Frame("_MapDatasetFetcher.fetch", FETCHER, 57)
WORKER = Frame("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 300)
QUEUE_GET = Frame("Queue.get", f"{STD}/multiprocessing/queues.py", 113)
POLL = Frame("wait", f"{STD}/multiprocessing/connection.py", 947)
GETITEM = Frame("Images.__getitem__", "/home/me/data.py", 7)
LINEAR = Frame("Linear.forward", f"{TORCH}/nn/modules/linear.py", 134)
CALL = Frame("Module._call_impl", f"{TORCH}/nn/modules/module.py", 1789)
DATA_PARALLEL = Frame("DataParallel.forward", f"{TORCH}/nn/parallel/data_parallel.py", 192)
ENGINE = Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 979)
IMPORT = Frame("_call_with_frames_removed", "<frozen importlib._bootstrap>", 241)

STACKS = {
    "wait": (LOOP, *MANY, TRY, QUEUE_GET, POLL),
    "receive": (
        LOOP,
        *MANY,
        TRY,
        QUEUE_GET,
        Frame("rebuild_storage_fd", f"{TORCH}/multiprocessing/reductions.py", 500),
    ),
    "start": (LOOP, BUILD, Frame("BaseProcess.start", PROCESS, 121)),
    "load": (LOOP, *NEXT, FETCH, GETITEM),
    "collate": (LOOP, *NEXT, CALL_COLLATE, Frame("pad", "/home/me/data.py", 20)),
    "forward": (LOOP, CALL, LINEAR),
    "backward": (LOOP, Frame("Tensor.backward", f"{TORCH}/_tensor.py", 623), ENGINE),
    "optimizer": (LOOP, Frame("adamw", f"{TORCH}/optim/adamw.py", 400)),
    "python": (LOOP, Frame("edit_distance", USER, 30)),
    "sync": (LOOP, Frame("step", USER, 40)),
    "copy": (LOOP, Frame("step", USER, 41)),
    "sleep": (LOOP, Frame("rest", USER, 42)),
    "unclear": (LOOP, Frame("mix", USER, 43)),
    "log": (LOOP, Frame("Logger.info", f"{STD}/logging/__init__.py", 1489)),
    "save": (LOOP, Frame("save", f"{TORCH}/serialization.py", 960)),
    "collective": (LOOP, Frame("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3000)),
    "compile": (LOOP, Frame("_compile", f"{TORCH}/_dynamo/convert_frame.py", 1100), LINEAR),
    "import": (LOOP, IMPORT, Frame("<module>", LOADER, 30)),
    "dp_forward": (LOOP, CALL, DATA_PARALLEL, Frame("Thread.join", f"{STD}/threading.py", 1120)),
    "dp_copy": (LOOP, CALL, DATA_PARALLEL, Frame("replicate", f"{TORCH}/nn/parallel/replicate.py", 120)),
    "w_idle": (LOOP, WORKER, QUEUE_GET, POLL),
    "w_fetch": (LOOP, WORKER, FETCH, GETITEM),
    "w_put": (LOOP, WORKER, Frame("Queue.put", f"{STD}/multiprocessing/queues.py", 90)),
}
LINES = {
    (FETCH.file, 54): "data = [self.dataset[idx] for idx in possibly_batched_index]",
    (FETCH.file, 57): "return self.collate_fn(data)",
    (USER, 10): "for x, y in loader:",
    (USER, 30): "current.append(min(a, b))",
    (USER, 40): "total += loss.item()",
    (USER, 41): "x = x.to(device)",
    (USER, 42): "time.sleep(0.05)",
    (USER, 43): "mixed = weight * value + bias",
    ("/home/me/data.py", 7): "image = Image.open(path)",
    ("/home/me/data.py", 20): "for row in rows:",
}


def stacks(threads, accumulations=None):
    """`threads`: {pid: "wait*5 backward*3"}; every count is a number of samples, in order."""
    frames, index, made = [], {}, []
    for pid, text in threads.items():
        samples = []
        for part in text.split():
            name, _, count = part.partition("*")
            sample = []
            for frame in STACKS[name]:
                if frame not in index:
                    index[frame] = len(frames)
                    frames.append(frame)
                sample.append(index[frame])
            samples += [tuple(sample)] * int(count or 1)
        made.append(ThreadStacks(pid=pid, tid=pid, name="MainThread", samples=tuple(samples)))
    return Stacks(
        rate_hz=20.0, start_s=0.0, frames=tuple(frames), threads=tuple(made), lines=dict(LINES),
        accumulations=accumulations or {},
    )  # fmt: skip


def track(pid=1, **changes):
    known = {
        "pid": pid, "parent": 0, "name": "python", "command": "python train.py", "first_s": 0.0, "last_s": 20.0,
        "age_s": 600.0,
        "num_threads": 2, "cpu_s": 10.0, "main_cpu_s": 10.0, "queued_s": 0.0, "main_queued_s": 0.0, "looks": 200,
        "running": 100, "write_chars": 10_000_000, "read_bytes": 0,
    }  # fmt: skip
    return ProcessTrack(**{**known, **changes})


def worker(pid, **changes):
    return track(pid, **{"name": "pt_data_worker", "parent": 1, **changes})


def watch(threads, processes=None, cpus=8, gpus=None, **changes):
    known = {
        "pid": 1, "seconds": 20.0, "directory": "/home/me",
        "stacks": stacks(threads) if isinstance(threads, dict) else threads,
        "processes": tuple(processes or (track(),)),
        "limits": Limits(cpus_online=cpus, cpus_affinity=cpus, machine_busy_cores=0.5, memory_available_bytes=8 << 30),
        "gpus": gpus if gpus is not None else Absent("NVML: not found"),
    }  # fmt: skip
    return Watch(**{**known, **changes})


def gpu(busy=95, power=300.0, moments=200, users=((1, 60.0),), **each):
    """One GPU with `moments` equal looks; `users` are (pid, share of the SMs in percent)."""
    look = {
        "utilization_percent": busy, "power_w": power, "memory_used_bytes": 20 << 30, "sm_clock_mhz": 1700,
        "temperature_c": 60, "throttle_reasons": (), "pcie_generation": 4, "pcie_width": 16, **each,
    }  # fmt: skip
    return GpuTrack(
        index=0, name="Test GPU", memory_total_bytes=80 << 30, sm_clock_max_mhz=1980, power_limit_w=400.0,
        pcie_generation_max=4, pcie_width_max=16,
        users=tuple(GpuUser(pid=p, memory_bytes=1 << 30, sm_percent=s, name=f"job{p}") for p, s in users),
        moments=tuple(
            GpuMoment(time_s=i / 10, **{k: v(i) if callable(v) else v for k, v in look.items()}) for i in range(moments)
        ),
    )  # fmt: skip
