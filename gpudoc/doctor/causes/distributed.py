"""Several processes: rendezvous, NCCL, gloo, DDP and DataParallel."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import Sign, about_training, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.readers.model import Text

_NCCL_SYSTEM = ("ncclSystemError", r"NCCL[^\n]{0,40}unhandled system error")
_TIMEOUT = words(
    r"Watchdog caught collective operation timeout",
    r"collective operation timeout: WorkNCCL",
    r"ran for \d+ milliseconds before timing out",
    r"(?:NCCL|gloo).{0,60}(?:timed? ?out|timeout)",
    r"Timed out (?:waiting|initializing)",
    r"(?:Socket|store).{0,20}Timeout",
    r"Wait timeout after \d+ms",
    r"monitoredBarrier.{0,60}(?:timeout|failed)",
)
_BUSY = words(
    r"tokeniz\w*",
    r"pre-?process\w*",
    r"\bdatasets?\.map\b|Map(?:ping)?\W{0,3}(?:\(num_proc|\d+%)|Running tokenizer",
    r"\bsav(?:e|es|ing)\b",
    r"checkpoint\w*",
    r"\bevaluat\w*",
    r"\bvalidat\w*",
    r"only (?:on )?(?:the )?(?:main|rank ?0|first)",
    r"(?:rank|process) ?(?:==? ?)?0 (?:is )?\b",
    r"download\w*",
    r"main_process_first",
    r"wait_for_everyone",
    r"\bbarrier\b",
    r"upload\w*",
    r"generat\w*",
    r"index(?:ing|es)",
    r"loading",
)
_UNEVEN = words(
    r"uneven (?:inputs?|number|batches|data|shards?)",
    r"(?:different|unequal|differing|fewer|uneven|same) (?:\w+ )?(?:number|count|"
    r"amount)s? of (?:\w+ )?(?:batch|step|sample|"
    r"iteration|input|example|utterance|item|image|sequence|token|shard)\w*",
    r"number of (?:batches|samples|steps|examples|utterances)[^.\n]{0,40}(?:differ\w*|not (?:the )?same|var(?:y|ies))",
    r"rank-?dependent",
    r"(?:one|some|a|each|other) (?:rank|process|worker|gpu)s? .{0,60}(?:fewer|less|more|runs? out|finish\w*|"
    r"exhaust\w*|ends?) .{0,30}(?:batch|step|data|sample|epoch|earlier|first|before)\w*",
    r"\bJoin\b.{0,20}context|with Join\(|model\.join\(\)",
    r"drop_last",
    r"DistributedSampler",
    r"last (?:batch|step|iteration)",
    r"end of (?:the |each |an )?epoch",
    r"len\(\w*(?:loader|dataset|sampler)\).{0,60}(?:differ|rank)",
    r"IterableDataset",
)
_STUCK = words(
    r"\bhang\w*\b",
    r"\bhung\b",
    r"\bstuck\b",
    r"\bfreez\w*|\bfrozen\b",
    r"dead ?lock\w*",
    r"never (?:returns|finish\w*|ends)",
    r"\bstall\w*",
    r"waits? forever",
)
_BARRIER = words(r"\bbarrier\b", "wait_for_everyone", "monitored_barrier", r"other (?:ranks|processes) (?:to )?wait")
# work that one process does while the others wait for it
_ALONE = words(
    r"only (?:on |in |by )?(?:one|a single|the main|main|the master|master|rank ?0|the first|first)\b",
    r"(?:just|on) (?:one|a single|1) (?:gpu|rank|process)",
    r"is_(?:local_|world_)?main_process|is_(?:local_|world_)?process_zero|rank ?== ?0|rank in \[-1, 0\]",
)
_COLLECTIVE_MISMATCH = words(
    r"Detected mismatch between collectives on ranks",
    r"is running collective: .{0,200}but Rank",
    r"Mismatched? (?:collective|number of)",
    r"ranks? (?:did not|failed to) (?:call|join|reach)",
)
_P2P = words(
    r"NCCL_P2P_DISABLE",
    r"\bACS\b",
    r"\bIOMMU\b",
    r"p2pBandwidthLatencyTest",
    r"peer[- ]to[- ]peer",
    r"\bP2P\b",
    r"simpleP2P",
    r"amd_iommu|intel_iommu|iommu=",
    r"NCCL_P2P_LEVEL",
)
_REFUSES_RTX = words(
    r"RTX (?:\d{4} (?:or|and) )?\d{4} series does ?n.t support faster communication",
    r"doesn't support faster communication broadband",
)


def _find_busy(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    said = text.find(_TIMEOUT)
    alone = text.find(_ALONE)
    if said is None and alone is not None and text.find(_BARRIER):
        said = text.find(_STUCK)
        if said is not None:
            both = (quote(said, "effect"), quote(alone, "meanwhile"))
            yield Finding(id="nccl_timeout_one_rank_busy", confidence=0.72, evidence=both)
        return
    if said is None:
        return
    busy = text.find(_BUSY)
    uneven = text.find(_COLLECTIVE_MISMATCH) or text.find(_UNEVEN)
    seen = (quote(said, "timeout"),) + ((quote(busy, "meanwhile"),) if busy else ())
    sure = 0.8 if busy and not uneven else 0.55
    yield Finding(id="nccl_timeout_one_rank_busy", confidence=sure, evidence=seen)


def _find_uneven(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    mismatch = text.find(_COLLECTIVE_MISMATCH)
    if mismatch:
        yield Finding(id="ddp_uneven_inputs", confidence=0.75, evidence=(quote(mismatch, "collective"),))
        return
    if not about_training(text):
        return
    uneven = text.find(_UNEVEN)
    stuck = text.find(_STUCK) or text.find(_TIMEOUT)
    many = text.find(
        words(
            r"\bDDP\b",
            "DistributedDataParallel",
            r"\branks?\b",
            "nccl",
            "allreduce",
            r"torchrun",
            r"world_size",
            "multi-?gpu",
            r"\d gpus",
        )
    )
    if uneven and stuck and many:
        explicit = text.find(words(r"\buneven", r"(?:fewer|different number|unequal|runs? out|exhaust\w*)"))
        yield Finding(
            id="ddp_uneven_inputs",
            confidence=0.85 if explicit else 0.58,
            evidence=(quote(uneven, "inputs"), quote(stuck, "effect")),
        )


def _find_p2p(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    if text.find(_REFUSES_RTX) or not about_training(text):
        return
    path = text.find(_P2P)
    stuck = text.find(_STUCK) or text.find(_TIMEOUT)
    if path and stuck:
        yield Finding(id="nccl_p2p_hang", confidence=0.85, evidence=(quote(path, "P2P"), quote(stuck, "effect")))
    elif stuck and text.find(
        words("NCCL INFO", r"nccl", r"DataParallel", r"multi-?gpu", r"\b(?:two|2|4|8|multiple) gpus")
    ):
        yield Finding(id="nccl_p2p_hang", confidence=0.42, evidence=(quote(stuck, "effect"),))
    elif path and text.find(
        words(r"(?:wrong|corrupt\w*|garbage|zeros?|nan|incorrect) (?:results?|values?|data|tensor)")
    ):
        yield Finding(id="nccl_p2p_hang", confidence=0.6, evidence=(quote(path, "P2P"),))


FINDERS = (
    text_finder("nccl_timeout_one_rank_busy", _find_busy),
    text_finder("ddp_uneven_inputs", _find_uneven),
    text_finder("nccl_p2p_hang", _find_p2p),
    *finders(
        Sign(
            id="nccl_network_unreachable",
            said=words(
                r"gai error: -\d+",
                r"Name or service not known",
                r"Temporary failure in name resolution",
            ),
            also=words(
                r"\bc10d\b",
                "nccl",
                "torchrun",
                r"\brdzv\b",
                "rendezvous",
                "MASTER_ADDR",
                "TCPStore",
                "socket",
            ),
            sure=0.7,
        ),
        Sign(
            id="nccl_p2p_hang",
            said=words(
                r"peer access is not supported between these two devices",
                r"peer mapping resources exhausted",
            ),
            sure=0.75,
        ),
        Sign(id="nccl_network_unreachable", said=words(*_NCCL_SYSTEM, "ncclRemoteError"), sure=0.42),
        Sign(
            id="nccl_shm_too_small",
            said=words(*_NCCL_SYSTEM),
            also=words("docker", "container", "/dev/shm"),
            sure=0.5,
        ),
        Sign(id="nccl_wrong_interface", said=words(*_NCCL_SYSTEM), sure=0.38),
        # one machine has no network to fail: what its processes share is its shared memory
        Sign(
            id="nccl_shm_too_small",
            said=words(_NCCL_SYSTEM[1]),
            unless=words(
                r"\b(?:nodes|machines|servers|hosts|sockets?|ethernet|infiniband|interfaces?|slurm|srun|mpirun)\b",
                r"\b(?:eth\d|ib\d|mlx\d\w*|NET/\w+|NCCL_SOCKET\w*|NCCL_IB\w*|nnodes|connect\w*|network\w*)",
            ),
            sure=0.45,
        ),
        Sign(
            id="ddp_unused_parameters",
            said=words(
                r"Expected to have finished reduction in the prior iteration",
                r"parameters that were not used in producing (?:the )?loss",
                r"Parameter indices which did not receive grad",
                r"Parameters which did not receive grad",
            ),
            sure=0.96,
        ),
        Sign(
            id="communication_bound",
            in_training=True,
            said=words(
                r"(?:multi-?gpu|\bddp\b|torchrun|[2-8] ?(?:x )?gpus)[^.\n]{0,80}slower than[^.\n]{0,40}"
                r"(?:single|one|1)[ _-]?gpu",
                r"\b(?:[2-9]|two|four|several|multiple|more) (?:nodes|machines|servers)[^.\n]{0,80}slower than"
                r"[^.\n]{0,40}(?:single|one|1)\b",
                r"all_?reduce\w*[^.,;\n]{0,40}\b[3-9]\d ?%",
                r"\b[3-9]\d ?%[^.,;\n]{0,40}all_?reduce",
            ),
            unless=words(r"\bnn\.DataParallel", "out of memory", r"num_workers|data ?loader"),
            sure=0.5,
            severity="warning",
        ),
        Sign(id="p2p_unsupported_rtx40", said=_REFUSES_RTX, sure=0.97),
        Sign(
            id="duplicate_gpu_ranks",
            said=words(
                r"Duplicate GPU detected",
                r"(?:two|both|multiple|all) ranks? .{0,40}(?:same|one) (?:gpu|card|device|cuda)",
            ),
            sure=0.95,
        ),
        Sign(
            id="duplicate_gpu_ranks",
            said=words(r"ncclInvalidUsage"),
            sure=0.45,
        ),
        Sign(
            id="port_in_use",
            said=words(
                r"Address already in use",
                r"EADDRINUSE",
                r"errno:? 98\b",
                r"Only one usage of each socket address",
                r"WinError 10048",
                r"port \d+ .{0,20}(?:already )?in use",
            ),
            sure=0.95,
        ),
        Sign(
            id="nccl_wrong_interface",
            said=words(
                r"Using the loopback address as fallback",
                r"NET(?:/Socket|/IB)? : Using .{0,30}(?:\blo:|docker\d|virbr|br-|veth|tun\d|tailscale|cni)",
                r"Bootstrap : Using .{0,8}(?:lo|docker\d?|virbr\w*|br-\w+|veth\w*|tun\d|tailscale\d?|cni\d?)[:<]",
                r"no socket interface found",
                r"Unable to find address for:? \S+",
                r"(?:wrong|incorrect|other|docker|loopback|virtual) (?:network )?interface",
            ),
            sure=0.93,
        ),
        Sign(
            id="nccl_wrong_interface",
            said=words(r"(?:NCCL|GLOO|TP)_SOCKET_IFNAME"),
            also=words(
                r"127\.0\.0\.1|127\.0\.1\.1",
                r"\blo\b",
                r"docker0",
                r"\bhang\w*",
                "stuck",
                r"timed? ?out",
                "connect",
                "gloo",
                "failed",
            ),
            # the address was tried and did not answer: the interface was the right one, or nobody knows
            unless=words("No route to host", r"Connect\w* .{0,60}(?:Connection )?timed out"),
            sure=0.72,
        ),
        Sign(
            id="nccl_wrong_interface",
            said=words(r"connectFullMesh failed", r"gloo.{0,80}(?:connect|127\.0\.\d\.1)"),
            sure=0.62,
        ),
        Sign(
            id="nccl_network_unreachable",
            in_training=True,
            said=words(
                r"No route to host",
                r"socketPollConnect",
                r"socketStartConnect: Connect to \S+ failed",
                r"Connect to .{0,40}failed ?: (?:Connection|Software|No)",
                r"client socket has (?:timed out|failed to connect)",
                r"(?:NCCL|c10d|TCPStore|rendezvous|torchrun|rdzv).{0,200}Connection (?:refused|timed out|reset)",
                r"Network is unreachable",
                r"Call to connect (?:returned|failed|timeout)",
                r"failed to connect to .{0,40}:\d{4,5}",
                r"ECONNREFUSED",
                r"firewall",
                r"RendezvousConnectionError",
                r"ncclSystemError.{0,200}(?:connect|socket|network)",
            ),
            unless=words(
                "Using the loopback address",
                "Address already in use",
                r"huggingface\.co|HTTPSConnectionPool|download",
            ),
            sure=0.85,
        ),
        Sign(
            id="nccl_shm_too_small",
            said=words(
                r"Error while creating shared memory segment .{0,20}nccl",
                r"posix_fallocate failed",
                r"Call to ftruncate failed",
                r"(?:nccl|NCCL).{0,160}(?:shared memory|/dev/shm).{0,160}(?:No space|fail\w*|too small|insufficient|"
                r"unable)",
                r"/dev/shm/nccl-\S+.{0,80}(?:No space|fail|size)",
                r"unable to allocate shared memory .{0,40}nccl",
            ),
            sure=0.95,
        ),
    ),
)
