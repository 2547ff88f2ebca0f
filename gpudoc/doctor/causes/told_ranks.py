"""What people tell of several processes or machines: who was busy for how long, who has data left, where they meet."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.lexicon import ALONE_WORKS, SEVERAL, STUCK
from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import about_training, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Mention, Text

_FIRST_ALONE = words(
    r"\bmain_process_first\(|\blocal_main_process_first\(|zero_first\(",
    r"torch_distributed_zero_first",
)
_BARRIER = words(r"\bbarrier\b|wait_for_everyone|ncclUniqueId|store->get")
# a progress bar: the time that it ran, and what it counted
_BAR = Pattern(r"(?m)^[^\n]{0,80}?\d+%\|[^\n]{0,200}?\[(?:(\d+):)?(\d\d?):(\d\d)<")
# the collectives' own limits: ten minutes since torch 2.1, thirty before and for the store
_LIMITS_SECONDS = (600, 1800)
_EARLY_SECONDS, _LATE_SECONDS = 15, 240


def _find_clock(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Work before training that ran for exactly as long as the other ranks may wait."""
    del evidence
    first, barrier = text.find(_FIRST_ALONE), text.find(_BARRIER)
    gate = first or barrier
    if gate is None or text.find(RAN_OUT):
        return
    for bar in list(text.find_all(_BAR, most=60))[::-1]:
        seconds = int(bar[1] or 0) * 3600 + int(bar[2]) * 60 + int(bar[3])
        if any(limit - _EARLY_SECONDS <= seconds <= limit + _LATE_SECONDS for limit in _LIMITS_SECONDS):
            value = f"{seconds // 60} min {seconds % 60} s of work when it ended"
            seen = (observe("elapsed", value, bar.line.origin), quote(gate, "others wait"))
            yield Finding(id="nccl_timeout_one_rank_busy", confidence=0.86, evidence=seen)
            return
    if first and text.find(words(r"\bTraceback \(|timeout|timed out")):
        yield Finding(id="nccl_timeout_one_rank_busy", confidence=0.6, evidence=(quote(first, "others wait"),))


_LONG_WORK = words(
    r"\b(?:tokeni[sz]\w*|pre-?process\w*|cach(?:e|ing)|index(?:ing|es)|download\w*|prepar\w*|pack\w*|saving|evaluat\w*)"
    r"\b[^.\n]{0,60}\b(?:longer than|more than|over|takes|took|exceeds?|after) (?:\w+ ){0,2}?(?:\d+|half an|an?|thirty|"
    r"ten) ?(?:min\w*|hours?|s\b|sec\w*)",
    r"\b(?:fails?|dies|crash\w*|timeout|timed out|stops?)\b[^.\n]{0,30}\bafter (?:exactly )?(?:30|10|thirty|ten) "
    r"?min\w*",
    r"(?:30|10) ?分钟[^。\n]{0,12}(?:超时|报错|退出|断)",
)


def _find_limit(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """One rank's preparing is said to take longer than the others are allowed to wait."""
    del evidence
    work = together(text, _LONG_WORK, words(r"\brank ?0\b|\bmain process\b|\bone process\b|\bfirst process\b|主进程"))
    if work and text.find(words(r"\bbarrier\b|exception|timeout|timed out|error|watchdog|\bkilled\b|超时")):
        yield Finding(id="nccl_timeout_one_rank_busy", confidence=0.8, evidence=(quote(work, "meanwhile"),))


_REMAINDER = Pattern(r"\b(\d{2,9}) ?(?:%|mod|modulo) ?(\d{1,5}) ?(?:={1,2}|is|equals|为|等于) ?(\d{1,5})\b")
_EPOCH_ENDS = words(
    r"\b(?:end|last|final|finish\w*|complet\w*)\b[^.\n]{0,30}\b(?:epochs?|batch\w*|iterations?|steps?)\b",
    r"\b(?:epochs?)\b[^.\n]{0,20}\b(?:ends?|finish\w*|complet\w*)\b",
    r"(?:最后一?个?|结束)[^。\n]{0,10}(?:batch|step|epoch|迭代)|epoch ?(?:的最后|结束)",
)
_STREAM = words(r"\bIterableDataset\b|\biterable (?:style )?data ?sets?\b|\bwebdataset\b|\bstreaming\b|\binfinite\b")
_BREAKS = words(
    r"\bgo(?:es|ing)? down\b|\bwill down\b|\bdown at the end\b|\bcrash\w*|\berrors?\b|\bfail\w*|\bstop(?:s|ped)?\b",
    "卡|报错",
)


def _find_rest(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The data does not come out even, and training on several devices stops where its last part is."""
    del evidence
    rest, stream = text.find(_REMAINDER), text.find(_STREAM)
    if (rest is None and stream is None) or not about_training(text):
        return
    several, stuck = text.find(SEVERAL), text.find(STUCK) or text.find(_BREAKS)
    divides = rest is not None and int(rest[2]) > 1 and int(rest[1]) % int(rest[2]) == int(rest[3]) != 0
    if rest and divides and stuck and several:
        seen = (observe("data", f"{rest[1]} samples leave {rest[3]} over by {rest[2]}", rest.line.origin),)
        yield Finding(id="ddp_uneven_inputs", confidence=0.74, evidence=(*seen, quote(stuck, "effect")))
        return
    ends = together(text, STUCK, _EPOCH_ENDS, around=1)
    if stream and ends:
        both = (quote(ends, "stops"), quote(stream, "data"))
        sure = 0.78 if several else 0.6
        yield Finding(id="ddp_uneven_inputs", confidence=sure, evidence=tuple(dict.fromkeys(both)))


_MACHINES = words(
    r"\b(?:[2-9]|two|three|four|several|multiple|multi|both|different|each|all) ?-?(?:\w+ ){0,2}?-?(?:nodes?|machines?|"
    r"servers?|hosts?|computers)\b",
    r"--?n_?nodes?[ =:]{1,3}[2-9]\b|\bnum_(?:nodes|machines)\W{1,4}[2-9]\b|--?node[-_]rank[ =:]{1,3}[1-9]\b",
    r"\bmulti-?(?:node|machine)\b|\bmachine_rank\W{1,3}[1-9]\b",
    r"\bmore than (?:1|one) node",
    r"多机|多节点|两台|两个节点|跨(?:机|节点)",
)
_ONE_MACHINE = words(
    r"\b(?:single|one|same) (?:machine|node|server|host)\b(?![^.\n]{0,40}\b(?:works?|fine|ok|runs?|well|all right)\b)"
)
_MEETING = words(
    r"\binit\w*\b|\bstart\w*\b|\brendezvous\b|\brdzv\b|\bprocess_group\b|\bbegin\w*\b|\blaunch\w*\b|\bsetup\b|\bnccl\b|"
    r"\btorchrun\b|\bdistributed\b|\bconnect\w*\b|初始化|启动|通信|开始"
)
_SLOW = words(r"\bslow\w*|\bper epoch\b|慢")
_REFUSED = words(r"refused|No route|unreachable|timed out|timeout|in use|Traceback \(|\bout of memory\b")
_CHOSEN = words(
    r"(?:NCCL|GLOO|TP)_SOCKET_IFNAME ?=", r"NCCL INFO (?:Bootstrap|NET/\w+) ?: Using \[?\d?\]?(?:e(?:th|n|m)|ib|bond)"
)


def _find_meeting(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Machines that wait for each other from the start on: they took a wrong interface, or a port is closed."""
    del evidence
    stuck = text.find(STUCK)
    machines = text.find(_MACHINES)
    if stuck is None or machines is None or not about_training(text):
        return
    if any(text.find(w) for w in (_ONE_MACHINE, _REFUSED, _SLOW)) or together(text, STUCK, _EPOCH_ENDS):
        return
    meeting = together(text, STUCK, _MEETING, around=1)
    if meeting is None:
        return
    chosen = text.find(_CHOSEN)
    seen = tuple(dict.fromkeys((quote(meeting, "stops"), quote(machines, "machines"))))
    # each as likely as the other: none is sure enough to be the other's reason
    sure = (0.46, 0.49) if chosen else (0.49, 0.47)
    yield Finding(id="nccl_wrong_interface", confidence=sure[0], evidence=seen)
    yield Finding(id="nccl_network_unreachable", confidence=sure[1], evidence=seen)


_LISTED = Pattern(r"(?i)(?:CUDA_VISIBLE_DEVICES|gpu_?ids?|device_ids|--gpus?|--devices?)\W{1,4}\d\s*,\s*\d")
_CARDS = words(r"\b[2-9] ?x ?(?:\w+ )?(?:rtx ?|gtx ?|tesla ?)?[a-z]?\d{2,4}\b|\bboth (?:cards|gpus)\b|双卡|多卡")
_FROM_START = words(
    r"\b(?:after|at|when|while|before)\b[^.\n]{0,40}\b(?:show\w*|print\w*|start\w*|load\w*|first|begin\w*|param\w*|"
    r"init\w*|model)\b",
    r"\bfirst (?:epoch|batch|iteration|step|forward)\b|\bmore than \d+ hours\b|\bforever\b",
)
_BOTH_BUSY = words(
    r"\b100 ?%[^.\n]{0,20}\b(?:both|all|each)\b|(?:利用率|占用)[^。\n]{0,6}100",
    r"\b(?:both|all|two|each)\b[^.\n]{0,30}\b(?:at )?(?:100 ?%|full(?:y)? (?:util\w*|load\w*|busy|used))",
    r"\b(?:util\w*|gpus?|cards?)\b[^.\n]{0,30}\b(?:to|at|on|is|are) 100 ?%",
)
_OTHER_REASON = words(r"num_workers ?=? ?0 (?:works|fixes)|\bdata ?loader\b[^.\n]{0,30}\b(?:hang|stuck|deadlock)")


def _find_first_exchange(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Cards of one machine that stop where they first speak to each other, and compute alone."""
    del evidence
    stuck = text.find(STUCK)
    if stuck is None or not about_training(text) or text.find(_MACHINES):
        return
    listed = text.find(_LISTED)
    if listed is None and text.find(SEVERAL) is None and text.find(_CARDS) is None:
        return
    if text.find(_REFUSED) or text.find(_OTHER_REASON) or text.find(_STREAM):
        return
    works, busy = text.find(ALONE_WORKS), text.find(_BOTH_BUSY)
    early = together(text, STUCK, _FROM_START, around=1)
    if busy and works:
        seen = (quote(stuck, "stops"), quote(busy, "devices"), quote(works, "alone"))
        yield Finding(id="nccl_p2p_hang", confidence=0.8, evidence=tuple(dict.fromkeys(seen)))
    elif early and listed:
        yield Finding(id="nccl_p2p_hang", confidence=0.5, evidence=(quote(early, "stops"), quote(listed, "devices")))


_WRONG = words(
    r"\b(?:wrong|incorrect|garbage|corrupt\w*|inconsistent)\b[^.\n]{0,30}\b(?:results?|values?|outputs?|data|tensors?|"
    r"gradients?|loss\w*|weights?|predictions?)\b",
    r"\b(?:all |only )?zeros?\b[^.\n]{0,24}\b(?:second|gpu ?1|cuda:1|other)",
    r"\b(?:second|gpu ?1|cuda:1|other gpus?)\b[^.\n]{0,30}\b(?:zeros?|garbage|nan|wrong|corrupt\w*)\b",
)
_RIGHT_ALONE = words(
    r"\b(?:single|one|1)[- ]?(?:gpu|card)\b[^.\n]{0,30}\b(?:right|correct|fine|good|ok|works?|well)\b",
    r"\b(?:right|correct|fine|good|ok|works?|well)\b[^.\n]{0,30}\b(?:single|one|1)[- ]?(?:gpu|card)\b",
)
_COPIES = words(
    r"\bDataParallel\b|\bmulti-?_?gpus?\b|\bDDP\b|\bcuda:1\b|\btwo gpus\b|\b[2-9] gpus\b|MirroredStrategy",
)


def _find_wrong_copies(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Values that are right on one card and wrong once they were copied to another."""
    del evidence
    wrong, alone, copies = text.find(_WRONG), text.find(_RIGHT_ALONE), text.find(_COPIES)
    if wrong and alone and copies and about_training(text):
        seen = (quote(wrong, "values"), quote(alone, "alone"))
        yield Finding(id="nccl_p2p_hang", confidence=0.56, evidence=tuple(dict.fromkeys(seen)))


_PARTS = words(
    r"\bsub-?(?:networks?|modules?|nets?)\b|\bbranch(?:es)?\b|\bheads?\b|\b(?:\w+ )?layers?\b|\b(?:en|de)coders?\b|"
    r"\bparameters?\b|\btasks?\b|\bbackbones?\b|\bexperts?\b|\bloss_\w+\b|\bweights?\b"
)
_IDLE_PARTS = words(
    r"(?:\bnot|n't|\bnever) (?:be |being |been )?(?:used|executed|called|needed|involved|required|activated|updated)\b",
    r"\bonly (?:be )?(?:used|active|executed|called|needed) (?:for|in|when|by|on)\b",
    r"\bunused\b|\bskip(?:s|ped|ping)?\b|\bno grad(?:ient)?s?\b|\bgrad(?:ient)?s? (?:is|are) none\b",
    r"\bonly (?:the )?\w+(?: or only \w+)?[^.\n]{0,30}\b(?:is|are|gets?|was) (?:used|executed|run|called|activated)\b",
    r"\bno_grad\(|\brequires_grad ?= ?False|\b(?:freez\w*|frozen|detach\w*) (?:\w+ ){0,2}(?:layers?|parameters?|"
    r"weights?|backbone|\w*coder)",
    r"\bloss\w*`? (?:\w+ ){0,3}(?:is|be|are|equals?|=) (?:\w+ )?(?:zero|0|none)\b|\bno loss\b",
)
_IN_PROCESSES = words(
    r"\bDDP\b|DistributedDataParallel|Distributed Data Parallel|\bdistributed training\b|"
    r"\bmulti-?_? ?gpu training\b"
)
_SUFFERS = words(
    r"\bhang\w*|\bst[uo]ck\b|\bfreezes\b|\bdead ?lock\w*|\b(?:runtime )?errors?\b(?! rate)|\bcrash\w*|\bfail\w*"
)


def _find_idle_parts(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Parts of the model that take no part in the loss, of one rank or all, in training with a process per device."""
    del evidence
    ddp = text.find(_IN_PROCESSES)
    idle = together(text, _PARTS, _IDLE_PARTS)
    if ddp is None or idle is None or text.find(RAN_OUT) or text.find(words(r"Watchdog caught")):
        return
    suffers = together(text, _SUFFERS, words(r"\bbackward\b|\bgpus?\b|\bDDP\b|\blayer\b|\btrain\w*|\bwhen\b"))
    if suffers:
        seen = tuple(dict.fromkeys((quote(idle, "parts"), quote(suffers, "effect"))))
        sure = 0.74 if text.find(ALONE_WORKS) else 0.66
        yield Finding(id="ddp_unused_parameters", confidence=sure, evidence=seen)


def _port_of(mention: Mention) -> Finding:
    return Finding(id="port_in_use", confidence=0.85, evidence=(quote(mention, "port"),))


_PORT = words(
    r"\b(?:master_?|main_process_|rdzv_?)?port\b\W{0,3}(?:\d{2,5}\W{0,3})?(?:is |was |has been |are )?(?:already )"
    r"(?:\w+ )?(?:used|in use|taken|occupied|bound|allocated)\b",
    r"\b(?:master_?|main_process_)port\b[^.\n]{0,20}\b(?:used|in use|taken|occupied|conflict\w*)\b",
    r"\bports?\b[^.\n]{0,20}\bconflict\w*",
    r"端口\W{0,3}(?:\d+ ?)?(?:已经?)?(?:被)?(?:占用|占|冲突|使用)",
)


def _find_port(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The rendezvous port is said to be taken, in other words than the system's."""
    del evidence
    said = text.find(_PORT)
    if said and about_training(text):
        yield _port_of(said)


FINDERS = (
    text_finder("nccl_timeout_one_rank_busy", _find_clock),
    text_finder("nccl_timeout_one_rank_busy", _find_limit),
    text_finder("ddp_uneven_inputs", _find_rest),
    text_finder("nccl_wrong_interface", _find_meeting),
    text_finder("nccl_p2p_hang", _find_first_exchange),
    text_finder("nccl_p2p_hang", _find_wrong_copies),
    text_finder("ddp_unused_parameters", _find_idle_parts),
    text_finder("port_in_use", _find_port),
)
