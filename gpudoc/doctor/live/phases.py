"""Which part of training a stack belongs to: pure rules on frames and on the text of the user's lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from gpudoc.facts.live.sources import is_library
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.process import Frame


class Phase(str, Enum):
    """What the main thread of a training process does; the value is what the user reads."""

    DATA_WAIT = "waiting for data"
    DATA_RECEIVE = "receiving batches"
    DATA_LOAD = "loading data in the main process"
    COLLATE = "collating in the main process"
    WORKER_START = "starting loader workers"
    TRANSFER = "copying to the device"
    SYNC = "waiting for the device"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    COLLECTIVE = "communication"
    CHECKPOINT = "writing a checkpoint"
    LOGGING = "logging"
    COMPILE = "compiling"
    PYTHON = "your Python code"
    UNCLEAR = "your code"
    SLEEP = "sleeping or blocked"
    STARTUP = "start-up"
    LAUNCHER = "waiting for its processes"
    OTHER = "the framework"


COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
DATA = (Phase.DATA_WAIT, Phase.DATA_RECEIVE, Phase.DATA_LOAD, Phase.COLLATE, Phase.WORKER_START)
TRAINING = (*COMPUTE, Phase.DATA_WAIT, Phase.DATA_LOAD, Phase.COLLATE, Phase.SYNC)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One classified stack: its phase, and the user's line that it stands on, where there is one."""

    phase: Phase
    site: Frame | None


@dataclass(frozen=True, slots=True)
class _Mark:
    phase: Phase
    file: Pattern
    function: Pattern

    def fits(self, frame: Frame) -> bool:
        return bool(self.file.search(frame.file) and self.function.search(frame.function))


def _mark(phase: Phase, file: str, function: str = "") -> _Mark:
    return _Mark(phase, Pattern(file), Pattern(function))


# Marks that decide wherever they stand in the stack, because all below them works for them; the outermost wins.
_OUTER = (
    _mark(
        Phase.COMPILE, r"torch/_dynamo/convert_frame\.py|torch/_inductor/compile_fx\.py|torch/_inductor/codecache\.py"
    ),
    _mark(Phase.COMPILE, r"torch/_inductor/async_compile\.py|triton/compiler/|triton/runtime/jit\.py", r"compile|wait"),
    _mark(Phase.LAUNCHER, r"torch/distributed/elastic/|torch/multiprocessing/spawn\.py", r"run|_monitor|join"),
    _mark(Phase.CHECKPOINT, r"torch/serialization\.py$", r"\b_?(legacy_)?save$"),
    _mark(Phase.CHECKPOINT, r"safetensors/|torch/distributed/checkpoint/", r"save"),
    _mark(
        Phase.CHECKPOINT,
        r"",
        r"(^|[._])(_?save_(checkpoint|pretrained|state|model)\b|_save_checkpoint|dump_checkpoint)",
    ),
    _mark(Phase.LOGGING, r"/tqdm/|/rich/(progress|live|console)|/logging/__init__\.py|/wandb/|/mlflow/|/neptune/"),
    _mark(Phase.LOGGING, r"/tensorboard/|/tensorboardX/|/torchmetrics/|/sklearn/metrics/|/matplotlib/"),
    _mark(Phase.LOGGING, r"torch/_tensor_str\.py|lightning\w*/.*/(loggers|progress)/"),
    _mark(Phase.LOGGING, r"lightning\w*/.*logger_connector/.*\.py", r"log|update"),
    _mark(Phase.LOGGING, r"transformers/(trainer|trainer_callback|integrations/.*)\.py", r"(^|\.)(log|on_log)$"),
)

# Marks of which the innermost decides: forward may run inside the optimizer's closure, a collective inside backward.
_INNER = (
    _mark(Phase.COLLECTIVE, r"torch/distributed/(distributed_c10d|_functional_collectives)\.py"),
    _mark(Phase.COLLECTIVE, r"torch/nn/parallel/distributed\.py", r"_sync|_pre_forward|_verify"),
    _mark(Phase.SYNC, r"torch/cuda/(__init__|streams)\.py", r"synchronize|wait"),
    _mark(
        Phase.TRANSFER,
        r"lightning\w*/.*(move_data|apply_func)\.py|accelerate/utils/operations\.py",
        r"send_to|move_data|batch_to",
    ),
    _mark(Phase.OTHER, r"lightning\w*/|accelerate/", r"closure"),
    _mark(Phase.BACKWARD, r"torch/autograd/(graph|__init__)\.py|torch/_tensor\.py", r"backward|grad$"),
    _mark(Phase.OPTIMIZER, r"torch/optim/|torch/nn/utils/clip_grad\.py|torch/amp/grad_scaler\.py"),
    _mark(Phase.OPTIMIZER, r"torch/utils/_foreach_utils\.py|bitsandbytes/optim/|apex/optimizers/|timm/optim/"),
    _mark(Phase.FORWARD, r"torch/nn/(modules|functional|attention|init)|torch/_C/|torch/functional\.py"),
    _mark(Phase.FORWARD, r"torchvision/models/|torchvision/ops/|timm/(models|layers)/|transformers/models/"),
    _mark(Phase.FORWARD, r"torchinductor_|torch/_functorch/_aot_autograd/runtime_wrappers\.py"),
)

_IN_MODULE = _mark(Phase.FORWARD, r"torch/nn/modules/module\.py", r"_call_impl")
_LOADER = Pattern(r"torch/utils/data/(dataloader|_utils/\w+)\.py$")
# where a thread that waits for another one stands in Python's own library
_BLOCKED = Pattern(r"/lib/python3[^/]*/(threading|queue|selectors|subprocess|socket|ssl|multiprocessing/\w+)\.py$")
_FRAMEWORK = Pattern(r"-packages/(torch|lightning|pytorch_lightning|transformers|accelerate|timm|peft|trl)/")
_MANY = {"_try_get_data", "_get_data", "_try_put_index", "_process_data", "_shutdown_workers", "_reset"}
_IMPORTS = Pattern(r"^<frozen importlib|/importlib/")
_STARTS = Pattern(r"multiprocessing/process\.py$")

# What a line calls, where the call itself is written in C and leaves no frame; `.to(torch.bfloat16)` is no copy.
_NOT_A_DTYPE = r"(?!torch\.(?:float|bfloat|half|int|long|double|bool|uint))"
_TENSOR_CALLS = r"matmul|softmax|bmm|mm|einsum|sigmoid|tanh|relu|gelu|mean|sum|pow|exp|log_softmax"
_LINES = tuple(
    (phase, Pattern(pattern))
    for phase, pattern in (
        (Phase.SLEEP, r"\bsleep\(|\.acquire\(|\.wait\(|\.join\(\)"),
        (Phase.CHECKPOINT, r"torch\.save\(|pickle\.dump\(|save_file\(|save_pretrained\("),
        (Phase.BACKWARD, r"\.backward\("),
        (Phase.LOGGING, r"\bprint\(|\.write\(|\.writerow\(|\.flush\(\)|add_scalar\(|json\.dump\(|\.log\("),
        (Phase.SYNC, r"\.item\(\)|\.cpu\(\)|\.numpy\(\)|\.tolist\(\)|synchronize\(|\.nonzero\(|torch\.nonzero\("),
        (Phase.TRANSFER, rf"\.to\({_NOT_A_DTYPE}|\.cuda\(|\.pin_memory\("),
        (Phase.OPTIMIZER, r"\.step\(\)|zero_grad\(|clip_grad"),
        (Phase.FORWARD, r"\btorch\.(?!no_grad|device|manual_seed)\w|\bF\.\w+\(|\bnn\.\w"),
        (Phase.FORWARD, rf"criterion\(|\bmodel\(|loss_fn\(|\w @ \w|\.({_TENSOR_CALLS})\("),
    )
)
_PLAIN_PYTHON = Pattern(
    r"^(for|while|if|elif|try|with|def|return \{|return \[)\b|\bfor \w+ in\b|^(pass|continue|break|else:)$"
    r"|\b(range|len|sorted|zip|enumerate|str|int|dict|list|set|ord|chr)\("
    r"|\b(math|np|numpy|random|re|json|hashlib|statistics)\."
    r"|\.(append|split|join|strip|replace|get|items)\("
)


def classify(stack: Sequence[Frame], lines: Mapping[tuple[str, int], str]) -> Sighting:
    """The phase of one stack of a training process's main thread, outermost frame first."""
    site = next((frame for frame in reversed(stack) if not is_library(frame.file)), None)
    if any(_IMPORTS.search(frame.file) for frame in stack):
        return Sighting(Phase.STARTUP, site)
    phase = _data_phase(stack, lines) or _outer_phase(stack) or _inner_phase(stack, lines)
    return Sighting(phase, site)


def _outer_phase(stack: Sequence[Frame]) -> Phase | None:
    return next((mark.phase for frame in stack for mark in _OUTER if mark.fits(frame)), None)


def _inner_phase(stack: Sequence[Frame], lines: Mapping[tuple[str, int], str]) -> Phase:
    in_framework = False
    blocked = bool(stack) and bool(_BLOCKED.search(stack[-1].file))
    for frame in reversed(stack):
        for mark in _INNER:
            if mark.fits(frame):
                return mark.phase
        in_framework = in_framework or bool(_FRAMEWORK.search(frame.file))
        if not is_library(frame.file):
            if in_framework:
                return Phase.OTHER
            if blocked:
                return Phase.SLEEP
            inside_model = any(_IN_MODULE.fits(outer) for outer in stack)
            return phase_of_line(lines.get((frame.file, frame.line), ""), frame is stack[-1], inside_model)
    return Phase.OTHER


def phase_of_line(text: str, is_leaf: bool, inside_model: bool) -> Phase:
    """What a line of the user's code does, when the stack below it names no phase."""
    if is_leaf:
        found = next((phase for phase, pattern in _LINES if pattern.search(text)), None)
        if found is not None:
            return Phase.FORWARD if inside_model and found is Phase.TRANSFER else found
    if not is_leaf or _PLAIN_PYTHON.search(text):
        return Phase.PYTHON
    return Phase.UNCLEAR


def _data_phase(stack: Sequence[Frame], lines: Mapping[tuple[str, int], str]) -> Phase | None:
    inner = [frame for frame in stack if _LOADER.search(frame.file)]
    if not inner:
        return None
    names = {frame.function.rpartition(".")[2] for frame in inner}
    if is_collating(stack, lines):
        return Phase.COLLATE
    if "fetch" in names:
        return Phase.DATA_LOAD
    # Python 3.10 gives functions without their class; these exist only with worker processes
    many = bool(names & _MANY) or any("_MultiProcessingDataLoaderIter" in frame.function for frame in inner)
    if "_shutdown_workers" in names or "__del__" in names or _starts_workers(stack):
        return Phase.WORKER_START
    if names & {"_try_get_data", "_get_data"}:
        return _waiting_or_receiving(stack)
    if many and names & {"__init__", "_reset"}:
        return Phase.WORKER_START
    return Phase.DATA_WAIT if many else Phase.DATA_LOAD


def _starts_workers(stack: Sequence[Frame]) -> bool:
    return any(_STARTS.search(frame.file) and frame.function.rpartition(".")[2] in ("start", "join") for frame in stack)


def _waiting_or_receiving(stack: Sequence[Frame]) -> Phase:
    # rebuilding a batch from the worker's shared memory happens in `loads` and in the exchange of file descriptors
    after = [
        f for f in stack if f.function.endswith(("rebuild_storage_fd", "rebuild_tensor", "rebuild_storage_filename"))
    ]
    line_loads = any(f.function.endswith("Queue.get") and f.line > 0 and f is stack[-1] for f in stack)
    return Phase.DATA_RECEIVE if after or line_loads else Phase.DATA_WAIT


def is_collating(stack: Sequence[Frame], lines: Mapping[tuple[str, int], str]) -> bool:
    """Whether a stack below the loader's fetch is in the collate function, torch's or the user's, or pins a batch."""
    for place, frame in enumerate(stack):
        if frame.file.endswith(("torch/utils/data/_utils/collate.py", "torch/utils/data/_utils/pin_memory.py")):
            return frame.function.rpartition(".")[2] not in ("_pin_memory_loop", "do_one_step")
        if frame.file.endswith("torch/utils/data/_utils/fetch.py") and frame.function.endswith("fetch"):
            text = lines.get((frame.file, frame.line), "")
            if "collate_fn" in text and place < len(stack):
                return True
    return False
