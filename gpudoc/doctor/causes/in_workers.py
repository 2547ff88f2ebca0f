"""What befalls a loader's workers: where the main process waits for them, what they must not touch, what they copy."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.lexicon import SEVERAL, STUCK
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import about_training, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_LOADER_FRAME = words(
    r"data/dataloader\.py\", line \d+, in (?:__next__|_get_batch|_try_get_(?:data|batch)|_next_data|_get_data)"
)
_WAITS_FRAME = words(
    r"(?:multiprocessing/(?:queues|connection|popen_fork|synchronize)|queue|threading|selectors)\.py\", line \d+, in "
    r"(?:get|recv\w*|_recv\w*|poll|_poll|wait|select|acquire|__enter__)",
    r"\breturn (?:recv|self\._poll|self\._recv)\(",
)
_BY_HAND = words(r"KeyboardInterrupt|\^C\W|\bctrl\W{0,3}c\b")


def _find_interrupted(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Somebody ended a program that stood still, and the traceback shows it waiting for its workers."""
    del evidence
    stopped, loader, waits = text.find(_BY_HAND), text.find(_LOADER_FRAME), text.find(_WAITS_FRAME)
    stuck = text.find(STUCK)
    if stopped and loader and waits and stuck:
        both = (quote(waits, "waits for"), quote(stuck, "stops"))
        yield Finding(id="job_hung", confidence=0.76, evidence=tuple(dict.fromkeys(both)))


# libraries with threads or handles of their own that a fork copies half
_FORK_UNSAFE = words(
    r"\bopencv\b|\bcv2\b|\bh5py\b|\bhdf5\b|\blmdb\b|\bdecord\b|\btokenizers?_parallelism\b|\bsqlite\w*\b|\bpyarrow\b|"
    r"\bopenslide\b|\balbumentations\b|\bav\.open\b|\bpyav\b|\bnumexpr\b"
)
_IN_WORKER = words(
    r"\b(?:num_?)?workers?\b|\bdata ?-?_?loaders?\b|\b__?getitem__?\b",
    r"\bmulti-?process\w*|\bprocess pool\b|\bsub-?process\w*",
)


# what stalls goes on
_STANDS = words(
    r"\bhang\w*\b|\bhung\b|\bst[uo]ck\b|\bfreez\w*|\bfroze\w*|dead ?lock\w*|\bforever\b|"
    r"(?:\bnot|n't|\bnever) (?:start|begin|proceed|continue|finish)\w*|卡住|卡死"
)


_WITH_WORKERS = words(
    r"\b(?:num_?)?workers? ?(?:>=?|greater than|more than|larger than|above|is not|!=) ?\d",
    r"\b(?:with|using|has|have|use) (?:more than|several|multiple|more|many|any|[1-9]\d?) (?:\w+ )?workers?\b",
)


def _find_only_with_workers(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A run that stands still as soon as its loader has workers."""
    del evidence
    said = together(text, _STANDS, _WITH_WORKERS, around=1)
    if said and text.find(_IN_WORKER):
        yield Finding(id="job_hung", confidence=0.66, evidence=(quote(said, "stops"),))


def _find_fork_unsafe(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A library that does not survive a fork is used in workers, and they stand still."""
    del evidence
    if not about_training(text):
        return
    stuck = together(text, _STANDS, _FORK_UNSAFE, around=1) or together(
        text, _STANDS, _IN_WORKER, _FORK_UNSAFE, around=2
    )
    if stuck and text.find(_IN_WORKER) and text.find(_FORK_UNSAFE):
        yield Finding(id="job_hung", confidence=0.66, evidence=(quote(stuck, "stops"),))


_STACK_SEEN = words(
    r"\bpy-spy\b|\bfaulthandler\b|\bgdb\b|\bstrace\b|\bpstack\b|\bstack (?:trace|dump)\b|\bthread dump\b"
)
_WAITING = words(r"_try_get_data|\bfutex\b|\bpoll\b|\bwait(?:ing|s)?\b|\bacquire\b|\bselect\b|\brecv\b|\bqueue\b")
_NO_MOVE = words(
    r"\bnothing\b|\bfor (?:an?|\d+|some|many|several) (?:hours?|minutes?|days?)\b",
    r"\bforever\b|\bst[uo]ck\b|\bhang\w*|\bhung\b",
)
_IDLE_CJK = words(r"(?:占用|利用|使用)率?[^。\n]{0,6}(?<!\d)0(?!\.?\d)|没有?(?:任何)?(?:报错|输出|反应)|不报错")


def _find_standing(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A run that stands: somebody looked at its stack, or tells that nothing moves and nothing is reported."""
    del evidence
    stack = together(text, _STACK_SEEN, _WAITING, _NO_MOVE, around=1)
    if stack:
        yield Finding(id="job_hung", confidence=0.66, evidence=(quote(stack, "stack"),))
    elif (still := together(text, words("卡住|卡死|不动"), _IDLE_CJK, around=1)) and not text.find(SEVERAL):
        yield Finding(id="job_hung", confidence=0.6, evidence=(quote(still, "stops"),))


_DATASET_CLASS = Pattern(r"(?m)^\s*class\s+\w+\(\s*(?:[\w.]+\.)?\w*Dataset\s*\)\s*:")
_TO_DEVICE = Pattern(r"\.cuda\(|\.to\(\s*(?:self\.)?(?:device|['\"]cuda)|device\s*=\s*(?:torch\.device\()?['\"]cuda")
_SOME_WORKERS = Pattern(r"\bnum_workers\s*=\s*[1-9]")
_CLASS_ENDS = Pattern(r"(?m)^(?:class |def |if __name__|\w+ ?=|for |import |from )")
_CLASS_REACH = 4_000


def _find_device_in_dataset(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Code of a dataset that puts tensors on the device, read by forked workers."""
    del evidence
    workers = text.find(_SOME_WORKERS)
    if workers is None or text.find(words("spawn")):
        return
    for head in text.find_all(_DATASET_CLASS, most=10):
        body = text.flat[head.match.end() : head.match.end() + _CLASS_REACH]
        end = _CLASS_ENDS.search(body)
        # what was indented is not any more: the class ends where its loader is made
        loader = body.find("DataLoader(")
        stop = min(loader if loader >= 0 else len(body), end.start() if end and end.start() > 400 else len(body))
        moved = _TO_DEVICE.search(body[:stop])
        if moved is not None:
            seen = (quote(head, "dataset"), quote(workers, "workers"))
            yield Finding(id="cuda_in_forked_worker", confidence=0.66, evidence=seen)
            return


_REPLICA = words(
    r"\b(?:replica(?:te[sd]?|s|tion)?|duplicat\w*|copies|clon\w*)\b",
    r"每个 ?(?:worker|子进程)[^。\n]{0,12}(?:占|复制|拷贝|增长)",
    r"\b(?:an?|its|their|own|full|whole|separate) cop(?:y|ies)\b|\bcopied (?:\w+ ){0,2}(?:all|each|every)\b",
    r"\b(?:goes|go|grows?|increas\w*|scal\w*|ris\w*|multipl\w*) (?:\w+ ){0,2}(?:linear\w*|proportional\w*)\b",
)
_OF_WORKERS = words(r"\b(?:num_?)?workers?\b(?: process\w*)?|每个 ?(?:worker|子进程)")
_MEMORY = words(r"\bmemory\b|\bram\b|\brss\b|\bmem\b|内存")


def _find_replicas(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Memory that is there once for each worker: what they inherited becomes theirs page by page."""
    del evidence
    said = together(text, _REPLICA, _OF_WORKERS, _MEMORY, around=1)
    if said and together(text, _REPLICA, _OF_WORKERS, around=1) and about_training(text):
        yield Finding(
            id="worker_copy_on_write_growth",
            confidence=0.74,
            severity="warning",
            evidence=(quote(said, "memory"),),
        )


FINDERS = (
    text_finder("job_hung", _find_interrupted),
    text_finder("job_hung", _find_only_with_workers),
    text_finder("job_hung", _find_fork_unsafe),
    text_finder("job_hung", _find_standing),
    text_finder("cuda_in_forked_worker", _find_device_in_dataset),
    text_finder("worker_copy_on_write_growth", _find_replicas),
)
