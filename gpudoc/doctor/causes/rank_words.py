"""What is said of ranks in one line: by NCCL, by torch, or by somebody who has already found what helps."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_VISIBLE = Pattern(r"CUDA_VISIBLE_DEVICES\s*=\s*['\"]?(\d(?:\s*,\s*\d)*)")
_STARTED = Pattern(r"(?:nproc[_-]per[_-]node|num_processes|--num_gpus|--np|-np)[\s=:]+(\d+)\b")
_NCCL_FAILS = words(r"invalid usage|ncclInvalidUsage|Duplicate GPU|same (?:gpu|device)|\bout of memory\b")


def _find_too_many_ranks(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """More processes were started than devices were made visible."""
    del evidence
    visible, started, fails = text.find(_VISIBLE), text.find(_STARTED), text.find(_NCCL_FAILS)
    if visible is None or started is None or fails is None:
        return
    devices, ranks = visible[1].count(",") + 1, int(started[1])
    if ranks > devices:
        value = f"{ranks} processes, {devices} visible"
        seen = (observe("devices", value, visible.line.origin), quote(fails, "error"))
        yield Finding(id="duplicate_gpu_ranks", confidence=0.82, evidence=seen)


_ON_FIRST = words(
    r"\b(?:puts?|places?|assigns?|runs?|starts?|moves?|sends?) (?:every|all|each|both) (?:the |of the |my )?"
    r"(?:process\w*|ranks?|workers?|models?)\b[^.\n]{0,12}\b(?:on|to|onto) "
    r"(?:gpu ?[:#]?0|cuda:0|the first gpu|the same gpu)",
)
_OTHERS_IDLE = words(
    r"\b(?:second|other|others|remaining|rest|gpu ?[1-9])\b[^.\n]{0,30}\b(?:empty|idle|unused|not used|free|nothing)",
    r"\b(?:empty|idle|unused)\b[^.\n]{0,20}\b(?:other|others|remaining|rest)\b",
)


def _find_placed(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A launcher or a line of code that gives each rank the first device, while the others idle."""
    del evidence
    placed, idle = text.find(_ON_FIRST), text.find(_OTHERS_IDLE)
    if placed and idle:
        both = (quote(placed, "ranks"), quote(idle, "other devices"))
        yield Finding(id="duplicate_gpu_ranks", confidence=0.8, evidence=tuple(dict.fromkeys(both)))


FINDERS = (
    text_finder("duplicate_gpu_ranks", _find_too_many_ranks),
    text_finder("duplicate_gpu_ranks", _find_placed),
    *finders(
        Sign(
            id="ddp_unused_parameters",
            said=words(
                r"\bfind_unused_parameters\b[^.\n]{0,30}\b(?:makes?|helps?|helped|fix\w*|solv\w*|works?|worked|"
                r"required|needed)\b",
                r"\b(?:need|must|have|had) to (?:set|use|pass|add) `?find_unused_parameters",
                r"parameters? (?:indices|names?)[^\n]{0,24}did not receive grad",
            ),
            sure=0.76,
        ),
        Sign(
            id="ddp_uneven_inputs",
            said=words(
                r"\b(?:gpu|rank|process|worker|node) ?[#:]?\d\b[^.\n]{0,30}\b(?:runs? out|ran out|finish\w*|exhaust\w*)"
                r"\b[^.\n]{0,30}\b(?:before|earlier|first|data|batch\w*|epoch)",
                r"\b(?:an?|two|three|\d+) batch\w* (?:to|for|on|in) [^.\n]{0,24}\b(?:gpus?|ranks?|process\w*|"
                r"workers?)\b[^.\n]{0,24}\b(?:one|\d+|a single|no|fewer|only|two) (?:single |more |less )?batch",
                r"\b(?:another|different|differing|uneven|unequal|varying) (?:number|count|amount)s? of (?:\w+ )?"
                r"(?:batch|step|sample|iteration)\w*[^\n]{0,300}\b(?:hang\w*|hung|dead ?lock\w*|st[uo]ck|freez\w*)",
                r"(?:不够分|分配不均|数量不一致|(?:不能|无法)整除)[^。\n]{0,30}(?:卡住|卡死|超时|挂起)",
            ),
            sure=0.86,
            in_training=True,
        ),
        Sign(
            id="nccl_timeout_one_rank_busy",
            said=words(r"\btime[d ]?-?out\b[^.\n]{0,30}\bnccl\b"),
            also=words(r"\bonly (?:on |in |the )*(?:main|master|rank ?0|first|one)\b|\bon rank ?0\b"),
            sure=0.7,
        ),
        Sign(
            id="nccl_wrong_interface",
            said=words(
                r"\b(?:nccl|gloo|c10d|torch\w*)\b[^.\n]{0,40}\b(?:picks?|picked|chooses?|chose|uses?|using|selects?|"
                r"binds?|bound|takes?|listens?)\b[^.\n]{0,24}(?:\bdocker\d|\blo\b|\bloopback\b|\bvirbr\d|\bveth\w*|"
                r"\b127\.0\.|\bwrong (?:ip|interface|nic|address|network)|\bwlan\d?|\bwi-?fi\b|\bvpn\b|\btailscale)",
            ),
            sure=0.88,
        ),
        Sign(
            id="port_in_use",
            said=words(r"launch distributed communication on port `?\d+`?, but another process is utilizing it"),
            sure=0.96,
        ),
        Sign(
            id="nccl_network_unreachable",
            said=words(r"connect\(\) timed out\. Original timeout", r"gloo[^\n]{0,80}Connect timeout"),
            sure=0.85,
        ),
        Sign(
            id="nccl_network_unreachable",
            said=words(r"The client socket has (?:timed out|failed to connect)", r"\bRendezvousTimeoutError\b"),
            unless=words("Address already in use"),
            sure=0.8,
        ),
        # a connection that was there breaks when the other side dies, too
        Sign(
            id="nccl_network_unreachable",
            said=words(r"socketProgress\w*: Call to recv from[^\n]{0,60}failed", r"Connection closed by remote peer"),
            unless=words(r"out of memory|Watchdog caught|\bXid\b|Killed"),
            sure=0.5,
        ),
        Sign(
            id="nccl_shm_too_small",
            said=words(
                r"failed to extend /dev/shm/nccl",
                r"\b(?:nccl|unhandled system error|multi-?gpu)\b[^.\n]{0,80}--shm-size",
                r"--shm-size[^.\n]{0,80}\b(?:nccl|unhandled system error)\b",
            ),
            sure=0.94,
        ),
        Sign(
            id="duplicate_gpu_ranks",
            in_training=True,
            said=words(
                r"\b(?:both|all|two|every|each) (?:the |of the |my )?(?:process\w*|ranks?|workers?)\b[^.\n]{0,16}"
                r"\b(?:runs?|train\w*|are|is|land\w*|start\w*|go(?:es)?)\b[^.\n]{0,12}\b(?:gpu ?[:#]?0|cuda:0|"
                r"the first gpu)\b",
            ),
            also=words(
                r"\b(?:second|other|others|remaining|rest|gpu ?[1-9])\b[^.\n]{0,30}\b(?:empty|idle|unused|not used|"
                r"free|nothing|0 ?%)"
            ),
            sure=0.74,
        ),
        Sign(
            id="duplicate_gpu_ranks",
            in_training=True,
            said=words(
                r"\b(?:all|both|two|multiple|several|every|each) (?:of )?(?:the |my )?(?:\w+ )?(?:process\w*|ranks?|"
                r"workers?|tasks?)\b[^.\n]{0,40}\b(?:on|to|use[sd]?|using|onto|assigned|land\w*|allocat\w*)\b"
                r"[^.\n]{0,20}\b(?:the )?same (?:\w+ )?(?:gpu|card|device)\b",
            ),
            unless=words(r"\bgpu ?0\b[^.\n]{0,40}\bmore\b", r"map_location"),
            sure=0.7,
        ),
    ),
)
