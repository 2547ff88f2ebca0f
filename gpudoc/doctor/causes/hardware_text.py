"""Faults of the card, its slot, its power and its firmware, as the kernel log and error texts show them."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.cards import told_card
from gpudoc.doctor.causes.sign import Sign, about_training, finders, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.model import Absent, Gpu
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text


def _gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    gpus = evidence.machine.gpus
    return () if evidence.source == "machine" or isinstance(gpus, Absent) else gpus


def _find_memory_errors(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del text
    for gpu in _gpus(evidence):
        rows = (
            ("rows_remap_failed", gpu.rows_remap_failed, 0.95),
            ("rows_remap_pending", gpu.rows_remap_pending, 0.8),
            ("ecc_uncorrected_volatile", gpu.ecc_uncorrected_volatile, 0.9),
            ("retired_pages_pending", gpu.retired_pages_pending, 0.8),
        )
        for name, value, sure in rows:
            if not isinstance(value, Absent) and value:
                origin = evidence.reading.origins.get(f"gpus.{gpu.index}.{name}", "") if evidence.reading else ""
                seen = observe(f"GPU {gpu.index} {name}", value, origin)
                yield Finding(id="gpu_ecc_error", confidence=sure, evidence=(seen,), cards=told_card(gpu))


_THROTTLE = words(
    r"\bthrottl\w+",
    r"HW (?:Thermal )?Slowdown\s*: Active",
    r"SW Thermal Slowdown\s*: Active",
    "hw_thermal_slowdown",
    r"clock\w*.{0,60}(?:drop|fall|fell|down|cut|reduc|low)\w*",
    r"(?:drop|fall|fell|cut|reduc)\w*.{0,40}(?:clock|mhz|frequency)",
    r"clock[^\n]{0,40}\d{3,4}(?:-\d{3,4})? MHz[^\n]{0,30}(?:default|max|boost|instead|of|rather)[^\n]{0,12}\d{4}",
)
_HOT = Pattern(r"(?i)(?<![\d.])(8[3-9]|9\d|10\d)\s*(?:°\s*C?|degrees?|C\b|deg)|(?:temp\w*)\W{0,12}(8[3-9]|9\d|10\d)\b")
_TOO_HOT = words(
    r"overheat\w*",
    r"降频|过热|温度(?:过|太)高",
    "too hot",
    r"thermal (?:issue|problem|limit|"
    r"paste)\w*",
    "cooling pad",
    r"(?:gets?|got|getting) hot",
)
_SLOWER = words(
    r"\bslow(?:s|ed|er|ing|down)?\b",
    r"(?:speed|fps|throughput)[^.\n]{0,40}(?:lower|drop\w*|decreas\w*|degrad\w*|fall\w*)",
)
_HOT_WORDS = words("overheat", r"thermal\w*", "cooling", r"temperature", "too hot")


def _find_throttle(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    for gpu in _gpus(evidence):
        reasons = gpu.throttle_reasons
        if not isinstance(reasons, Absent) and any("thermal" in r for r in reasons):
            yield Finding(
                id="thermal_throttle",
                confidence=0.93,
                severity="warning",
                evidence=(observe(f"GPU {gpu.index} throttle reasons", ", ".join(reasons), "nvidia-smi"),),
                cards=told_card(gpu),
            )
            return
    if any(not isinstance(gpu.throttle_reasons, Absent) for gpu in _gpus(evidence)):
        # the driver's own list of reasons was read and names no heat: its words are no complaint
        return
    cut, hot = text.find(_THROTTLE), text.find(_HOT)
    too_hot = text.find(_TOO_HOT)
    if cut is None and too_hot and about_training(text):
        cut = text.find(_SLOWER)
    heat = hot or text.find(_HOT_WORDS)
    if cut and heat:
        yield Finding(
            id="thermal_throttle",
            confidence=0.85 if hot else 0.7,
            severity="warning",
            evidence=(
                observe("clocks", cut.line.text, cut.line.origin),
                observe("heat", heat.line.text, heat.line.origin),
            ),
        )


_DOWNGRADED = words(
    r"LnkSta:.{0,80}(?:downgraded)",
    r"limited by .{0,12}GT/s PCIe x\d+ link",
    r"(?:Gen ?[12]|2\.5 ?GT/s|5(?:\.0)? ?GT/s|x[1248])\b.{0,60}(?:instead of|rather than|should be|expected|but|"
    r"under load|of x16)",
    r"(?:instead of|rather than|not|expected) .{0,20}(?:Gen ?[345]|x16)\b",
    r"(?:pcie|link).{0,60}(?:degraded|downgraded|down-?train|only (?:at )?(?:gen ?[12]|x[1248])\b|at x[1248]\b)",
    r"PCIe (?:link )?(?:running )?at (?:gen ?[12]|x[1248])\b",
    r"\bonly (?:\w+ ){0,4}?(?:x[1248]|gen ?[12]|[1248] lanes?)\b",
    r"\bx?[1248] (?:out )?of (?:\w+ )?(?:x16|16 (?:pcie )?lanes)\b",
)
_TOLD_WIDTH = Pattern(r"(?i)Link Width[^\n]{0,24}Max\W{1,12}(\d+)x?[^\n]{0,24}Current\W{1,12}(\d+)x?")
# the speed of an idle link is low too: it counts where transfers were measured
_SLOW_LINK = words(r"LnkSta:\s*Speed (?:2\.5|5(?:\.0)?) ?GT/s", r"\bPCIe GEN ?[12] ?@ ?\d+x")
_MOVES = words(r"\d ?GB/s(?:ec)?\b|\bbandwidth\b[^.\n]{0,60}\b(?:low\w*|less|slow\w*|poor|only)\b")
_PCIE = words("pcie", "pci express", "LnkSta", r"\blink\b", "bandwidth", "riser", r"\bslot\b")


def _find_link(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    said, about = text.find(_DOWNGRADED), text.find(_PCIE)
    if said and about:
        yield Finding(
            id="pcie_link_degraded",
            confidence=0.82,
            severity="warning",
            evidence=(observe("PCIe link", said.line.text, said.line.origin),),
        )
        return
    slow_link = text.find(_SLOW_LINK)
    if slow_link and text.find(_MOVES):
        seen = observe("PCIe link", slow_link.line.text, slow_link.line.origin)
        yield Finding(id="pcie_link_degraded", confidence=0.7, severity="warning", evidence=(seen,))
        return
    told = text.find(_TOLD_WIDTH)
    if told and int(told[2]) < int(told[1]):
        seen = observe("PCIe link width", told.line.text, told.line.origin)
        yield Finding(id="pcie_link_degraded", confidence=0.78, severity="warning", evidence=(seen,))
        return
    for gpu in _gpus(evidence):
        width, most = gpu.link.width, gpu.link.width_max
        # the generation falls when the GPU idles, the width does not
        if not isinstance(width, Absent) and not isinstance(most, Absent) and width < most:
            seen = observe(f"GPU {gpu.index} link width", f"x{width} of x{most}", "nvidia-smi")
            yield Finding(
                id="pcie_link_degraded", confidence=0.75, severity="warning", evidence=(seen,), cards=told_card(gpu)
            )
            return


FINDERS = (
    text_finder("gpu_ecc_error", _find_memory_errors),
    text_finder("thermal_throttle", _find_throttle),
    text_finder("pcie_link_degraded", _find_link),
    *finders(
        Sign(
            id="gpu_ecc_error",
            said=words(
                # a report's row that counts none ("Uncorrectable : 0") says the opposite
                r"uncorrectable (?:\w+ )?(?:ECC )?(?:memory )?errors?(?! ?: ?(?:0|N/A|No)\b)",
                r"CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable",
                r"double[- ]bit (?:ECC )?error",
                r"\bDBE\b.{0,40}ECC|ECC.{0,40}\bDBE\b",
                r"Row Remapp\w+ .{0,30}(?:fail|pending)",
                r"Remapped Rows\b.{0,200}Pending\W{1,30}Yes\b",
                r"Remapping Failure Occurred\W{1,30}Yes\b",
                r"ECC (?:page retirement|row remapp)\w*",
                r"uncorrectable(?!(?: errors?)? ?: ?(?:0|N/A|No)\b).{0,30}(?:SRAM|DRAM|contained|uncontained)",
                r"(?:un)?contained (?:memory )?ECC error",
                r"ECC .{0,20}uncorrect\w+(?! ?(?:errors? ?)?: ?(?:0|N/A|No)\b)",
            ),
            sure=0.94,
        ),
        Sign(
            id="gpu_fallen_off_bus",
            said=words(
                r"(?:fall(?:s|en|ing)?|fell|dropp?(?:s|ed|ing)?|knock\w+|kick\w+) off (?:of )?(?:the )?(?:pcie? "
                r"?|system )?bus",
                r"(?:gpus?|cards?|devices?)[^.\n]{0,60}(?:disconnect\w*|disappear\w*|vanish\w*|drops?|dropped|gone|"
                r"lost)"
                r"[^.\n]{0,20} from (?:the )?(?:pcie? ?|system )?(?:bus|lspci)",
                r"GPU is lost",
                r"Unable to determine the device handle for (?:GPU|gpu)",
                r"NVML_ERROR_GPU_IS_LOST",
                r"\brev ff\b",
                r"\b(?:gpus?|cards?)\b[^.\n]{0,20}(?:vanish\w*|disappear\w*)\b.{0,160}until (?:\w+ ){0,3}"
                r"(?:power[- ]?cycl\w*|re-?boot\w*|cold)",
                r"Reboot the system to recover this GPU",
                r"GPU (?:at )?[\da-f:.]+ (?:has )?(?:disappeared|vanished|dropped)",
                r"RmInitAdapter failed.{0,80}0x2[4-6]:0xffff",
            ),
            sure=0.95,
        ),
        Sign(
            id="gpu_fallen_off_bus",
            # cards that were counted once and are counted no more
            said=words(
                r"\b(?:gpus?|cards?)\b[^.\n]{0,30}(?:disappear\w*|vanish\w*|went missing|drop(?:s|ped)? out|gone)"
                r"[^.\n]{0,20}(?:(?:in|from|on|of) (?:the )?\W{0,2}(?:nvidia-smi|lspci|system|list)|again|randomly)",
                r"nvidia-smi\W[^.\n]{0,40}(?:only|just) (?:reports?|shows?|lists?|sees?|finds?|displays?) \d+",
                r"(?:lost|lose|loses|losing|missing) (?:a|one|1|two|2|\d of \d) (?:gpus?|"
                r"cards?)\b[^.\n]{0,40}(?:until|after|"
                r"reboot\w*|node|nvidia-smi)",
            ),
            unless=words(r"CUDA_VISIBLE_DEVICES\s?=", r"\bMIG\b", "Failed to initialize NVML: Unknown"),
            sure=0.72,
        ),
        Sign(
            id="gsp_firmware_timeout",
            said=words(
                r"Timeout (?:after \d+s of )?waiting for (?:an? )?RPC (?:response )?from GSP",
                r"GSP (?:RPC )?(?:firmware )?.{0,30}time?out",
                r"Heartbeat timeout.{0,60}GSP|GSP.{0,60}heartbeat",
                r"GSP (?:task|firmware|RM).{0,60}(?:crash|hang|hung|fail|exception|halt)",
                r"_kgsp\w+: .{0,60}(?:fail|timeout|timed)",
                r"NVreg_EnableGpuFirmware",
            ),
            sure=0.94,
        ),
        Sign(id="gpu_needs_reset", said=words(r"GPU requires (?:a )?reset|NVML_ERROR_RESET_REQUIRED"), sure=0.9),
        Sign(
            id="gpu_bar_not_assigned",
            # quoted without the driver's own prefix, or as the kernel says it of the device
            said=words(
                r"BAR ?\d is 0M @ 0x0",
                r"PCI I/O region assigned to your NVIDIA device is invalid",
                r"pci(?:e| )[\da-f:. ]+BAR \d[^\n]{0,60}(?:no space for|failed to assign|can't assign)",
                r"(?:BIOS|firmware|UEFI)[^.\n]{0,60}(?:assign\w*|allocat\w*|map\w*)[^.\n]{0,30}\bBARs?\b",
            ),
            also=words(r"\bnvidia\b|\bNVRM\b|\bgpus?\b"),
            sure=0.9,
        ),
        Sign(
            id="pcie_bus_errors",
            # quoted without the address that the kernel writes
            said=words(r"PCIe Bus Error: severity=Uncorrect\w+", r"AER: .{0,60}Uncorrect\w+"),
            sure=0.75,
        ),
        Sign(
            id="pcie_bus_errors",
            said=words(
                r"PCIe Bus Error: severity=Uncorrect\w+",
                r"AER: .{0,60}(?:Uncorrected|Fatal)",
            ),
            sure=0.75,
        ),
        Sign(
            id="gpu_hardware_fault",
            said=words(
                r"hardware stack error",
                # in the header it says that libcuda could not be asked
                r"(?<!CUDA\sVersion:\s)\bERR!",
                r"infoROM is corrupted",
                r"external power .{0,40}(?:not|insufficient|missing)",
                r"Insufficient (?:External )?Power",
            ),
            sure=0.75,
        ),
        Sign(
            id="gpu_hardware_fault",
            said=words(
                r"\b(?:replac\w+|swap\w+|(?<!recovery\saction\s)chang\w+|RMA\w*|reseat\w*|re-seat\w*|moved) "
                r".{0,40}(?:card|gpu|psu|power supply|riser|slot|cable)",
                r"\b(?:faulty|defective|broken|bad|dying|damaged) (?:\w+ )?(?:gpu|card|vram|memory|psu|riser|slot|"
                r"hardware)",
                r"(?:power supply|\bpsu\b)",
                r"hardware (?:fault|failure|defect|problem|issue|error)",
                r"(?:fail|error|crash|wrong|nan|happen)\w*[^.\n]{0,40}"
                r"(?:only|always) (?:on |with )?(?:gpu|card|cuda:?) ?\d\b",
                r"(?:only|always) (?:on |with )?(?:gpu|card|cuda:?) ?\d\b[^.\n]{0,40}"
                r"(?:fail|error|crash|wrong|nan|happen)\w*",
                r"same (?:code|job|script) .{0,40}(?:other|another) (?:card|gpu|machine)",
                r"(?:errors?|crash\w*|fault|problem|it) (?:\w+ ){0,2}(?:mov\w+|follow\w*|travel\w*|went|goes) "
                r"(?:with|to) "
                r"(?:the |that )?(?:card|gpu|slot)",
            ),
            also=words(
                r"CUDA error",
                r"launch failures?",
                r"illegal (?:memory|instruction)",
                r"CUDNN_STATUS_\w+",
                r"\bXid\b",
                r"nvidia-smi",
                r"cuda runtime error",
                r"\bNaNs?\b",
                "CUBLAS_STATUS",
            ),
            sure=0.72,
        ),
        Sign(
            id="gpu_hardware_fault",
            in_training=True,
            # no program can switch a machine off: the load did
            said=words(
                r"(?:machine|computer|system|pc|server|desktop|workstation) (?:\w+ ){0,2}"
                r"(?:re-?boots?|shuts? ?down|restarts?|freezes?|crashes|turns off|powers? off)\b",
                r"(?:to|will|would|that|and|it|always) (?:immediately |randomly |suddenly )*re-?boots? (?:the |my )?"
                r"(?:machine|computer|pc|system|server)",
                r"shut(?:s|ting)? ?downs? (?:the |my )?(?:computer|pc|machine)",
                r"(?:transient|power) spikes?|over[- ]?current",
                r"(?:machine|computer|system|pc|server|desktop|workstation) (?:\w+ ){0,2}(?:cold|hard|sudden|instant) "
                r"(?:re-?boots?|shut-?downs?|power-?offs?)",
            ),
            also=words(r"\bgpus?\b", r"\b[RG]TX\b", r"\b\d0[5-9]0(?: ?ti)?\b", "nvidia"),
            # a system without memory of its own crashes too
            unless=words(
                r"\bsuspend\w*",
                r"\bhibernat\w*",
                r"secure ?boot",
                r"(?<!gpu\x20)\b(?:ram|swap)\b[^.\n]{0,80}"
                r"(?:\bfull\b|\bmax\b|limit|increas\w*|grow\w*|exhaust\w*|run\w* out)",
            ),
            sure=0.7,
        ),
        Sign(
            id="gpu_hardware_fault",
            # a driver that cannot say what happened, in a program that had run for long
            said=words(r"CUDA error: unknown error", r"error \(?30\)? ?: unknown error"),
            also=words(
                r"after (?:about |around |~|some |a few |many |several )*[\d,.]*\+? ?k? ?(?:steps|"
                r"iterations|iters|epochs|hours|"
                r"minutes)",
                r"\d{1,3} ?% .{0,30}\bstep",
                r"(?:at )?random(?:ly)?\b",
                r"(?:gpu|card) is (?:bad|broken|faulty|dying)",
            ),
            unless=words(r"\bsuspend\w*", r"\bhibernat\w*", r"wak(?:e|ing)[ -]?up"),
            sure=0.62,
        ),
        Sign(
            id="gpu_hardware_fault",
            said=words(
                r"unspecified launch failure",
                r"cudaErrorLaunchFailure",
                r"an illegal instruction was encountered",
            ),
            sure=0.5,
        ),
    ),
)
