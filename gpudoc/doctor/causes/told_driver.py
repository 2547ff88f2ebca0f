"""Driver faults as people retell them, as other programs number them, and as the tools around the driver print them."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import UNAVAILABLE, Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text
from gpudoc.knowledge.xids import find_xid

# CUDA's own result codes, which every framework prints in its own manner (cuda.h, enum cudaError_enum)
_CODES = {
    34: ("libcuda_stub_loaded", 0.85),
    35: ("driver_too_old", 0.85),
    46: ("compute_mode_exclusive", 0.7),
    214: ("gpu_ecc_error", 0.9),
    222: ("driver_too_old", 0.85),
    802: ("fabric_manager_not_running", 0.93),
    803: ("libcuda_mismatch_803", 0.93),
    804: ("forward_compat_on_consumer_gpu", 0.93),
    805: ("mps_daemon_unreachable", 0.93),
    806: ("mps_daemon_unreachable", 0.93),
    807: ("mps_daemon_unreachable", 0.93),
    808: ("mps_daemon_unreachable", 0.85),
    809: ("mps_daemon_unreachable", 0.85),
    810: ("mps_daemon_unreachable", 0.85),
    999: ("uvm_broken_after_suspend", 0.6),
}
_CODE = Pattern(
    r"(?i)(?:\bcu(?:da)?(?:Init|Get|Device|Ctx|Driver|Runtime)\w*\b[^\n]{0,40}?"
    r"(?:return\w*|fail\w*|error|result|status|code|[:=>])[^\n\d]{0,12}"
    r"|\b(?:cuda|nvidia)\s(?:\w+\s){0,2}(?:error|failure|err|status|code)(?:\scode)?\W{0,4})(\d{2,3})(?![\d.%])"
    r"|\bcode ?= ?(\d{2,3})\(cuda"
    r"|[(\[](8\d\d|999|214|222)[)\]]\W{0,4}(?:call to cu|[^\n]{0,40}\bcuda)"
    r"|[(\[](8\d\d|999|214|222) vs\.? 0[)\]]"
)


def _find_codes(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    for said in text.find_all(_CODE, most=20):
        row = _CODES.get(int(next(group for group in said.match.groups() if group)))
        if row is not None:
            yield Finding(id=row[0], confidence=row[1], evidence=(quote(said, "CUDA error code"),))
            return


# "we get XID 79", "Xids 63 and 64 in the log", where no line of the log itself was pasted
_TOLD_XID = Pattern(r"(?i)\bxid(?:s|\s?errors?|\s?events?|\s?codes?|\s?messages?)?(?:\sof)?\W{1,3}(\d{1,3})\b")
_XID_SURE = {"memory": 0.8, "bus": 0.85, "hardware": 0.7, "link": 0.7, "firmware": 0.85, "application": 0.55}


def _find_told_xids(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    if evidence.source == "machine":
        return
    for said in text.find_all(_TOLD_XID, most=10):
        row = find_xid(int(said[1]))
        if row is not None and row.cause and row.kind in _XID_SURE:
            yield Finding(id=row.cause, confidence=_XID_SURE[row.kind], evidence=(quote(said, f"Xid {said[1]}"),))
            return


_DRIVER_DEAD = (
    # the nouns of the driver and what people say of a thing that does not run, either way round
    (
        r"nvidia(?:[ -](?:gpu|graphics|kernel|proprietary|linux|display))*[ -](?:drivers?|modules?|smi)\b[^.\n]{0,40}"
        r"(?:not (?:work\w*|load\w*|running|found|in use|being|start\w*|built|build)|n[o']t (?:work|load|run|start|"
        r"find)\w*|"
        r"no longer|can ?not|can't|couldn't|stop(?:s|ped)? work\w*|fail\w*|broke\w*|breaks?|missing|gone|lost|"
        r"disappear\w*|crash\w*|error)"
    ),
    (
        r"(?:no longer|can ?not|can't|could not|unable to|fails? to|failed to|not) (?:\w+ ){0,3}"
        r"(?:get|load|find|start|use|build|insert|communicate with) (?:\w+ ){0,2}nvidia\b"
    ),
    r"(?:lost|lose|losing|breaks?|broke|broken|kills?|killed) (?:\w+ ){0,2}nvidia\b",
    r"couldn.t communicate with the NVIDIA driver",
)
_KERNEL_CHANGED = words(
    r"(?:after|since|following|when|with|every|each|upon|new|latest|by)[^.\n]{0,30}\bkernel (?:\w+ )?"
    r"(?:updat|upgrad)\w*",
    r"(?:after|since|following|when)[^.\n]{0,24}(?:updat|upgrad|chang|install|boot)\w* (?:\w+ ){0,3}"
    r"(?:the |my |a |new |linux |latest )*kernel\b",
    # a kernel of Linux, not one that runs on the GPU
    r"(?:new|updated|upgraded|latest|different|newer) (?:linux kernel|kernel (?:version|\d))",
    r"kernel (?:\w+ )?(?:was |got |has been |been )?(?:updated|upgraded)",
    r"(?:after|since|following)[^.\n]{0,30}(?:system|ubuntu|fedora|debian|arch|os|distro|apt|dnf|pacman|yum|software)"
    r"[- ](?:\w+ )?(?:updat|upgrad)\w*",
)
_SUSPENDED = words(
    r"(?:after|from|following|when|upon|since|to|into) (?:\w+ ){0,4}(?:suspen\w+|hibernat\w+|standby)",
    r"(?:from|into|to|after|in) (?:system )?sleep(?: mode| state)?\b(?!\()(?! for| \d)",
    r"\bslept\b|\basleep\b",
    r"\bwak(?:e|es|ing|en)s?[ -](?:\w+ ){0,3}up\b|\bwoke[n]? up\b|\bwake-?up\b",
    r"(?:clos|open)(?:e|ed|ing) (?:the |my )?(?:laptop )?lid\b",
)
_CUDA_DEAD = words(
    r"\bcuda\b[^.\n]{0,50}(?:not|n't|fail\w*|stop\w*|unavailable|lost|unknown|break\w*|broke\w*|no longer|unusable|"
    r"error|disappear\w*)",
    r"(?:fail\w*|stop\w*|unable|not|n't|no longer|lose\w*|lost|break\w*)[^.\n]{0,50}\b(?:cuda|gpu)\b",
    r"\bgpu\b[^.\n]{0,40}(?:unavailable|not (?:found|available|detected|usable|work\w*)|lost|disappear\w*|gone)",
    r"failed call to cuInit",
    UNAVAILABLE,
    r"rmmod nvidia_uvm",
)
_FAILS = words(
    r"\bfail\w*",
    r"\berrors?\b",
    r"\bcrash\w*",
    r"\bhang\w*|\bstuck\b",
    r"(?:can ?not|can't|not|n't|unable) (?:\w+ )?(?:be )?(?:create|connect|init|work|start|use|run|attach|launch)\w*",
    r"\bunavailable\b",
)
_DRIVER_NOUN = words(r"\bnvidia\b", r"\bgpus?\b", r"\bcuda\b", r"\bnvml\b")

_CONSUMER_CARD = r"\b(?:geforce|[RG]TX ?\d{3,4}|titan)\b"
_COMPAT_FAILS = words(
    r"\bfail\w*", r"\berrors?\b", UNAVAILABLE, r"(?:not|n't|un)[ -]?(?:support\w*|work\w*|available)", r"\brefus\w*"
)

FINDERS = (
    text_finder("fabric_manager_not_running", _find_codes),
    text_finder("gpu_fallen_off_bus", _find_told_xids),
    *finders(
        Sign(
            id="driver_missing_or_not_loaded",
            said=words(*_DRIVER_DEAD),
            also=_KERNEL_CHANGED,
            unless=words(r"version mismatch", r"is_available\(\)\W{0,8}True", r"secure ?boot", "Key was rejected"),
            sure=0.78,
        ),
        Sign(
            id="driver_missing_or_not_loaded",
            said=words(
                r"NVIDIA (?:\w+ )?(?:drivers?|(?:kernel )?modules?) (?:is |are |was |were )?(?:\w+ )?"
                r"(?:missing|not (?:loaded|running|present|active))",
                r"module not found: '?nvidia'?(?!_)",
                r"modinfo: ERROR: Module nvidia not found",
                r"(?:never|not|n't|without) (?:\w+ ){0,2}install\w* (?:\w+ ){0,3}(?:nvidia|gpu|graphics) drivers?\b",
                r"(?:is|are|has|have|with) no (?:nvidia|gpu|graphics) drivers?\b(?: installed)?(?! on your)",
                # dkms says how far it came: a module that is added or built is not installed
                r"^\W{0,6}nvidia(?:-\w+)*[/,] ?[\d.]+,? ?[^\n:]{0,60}: (?:added|built)\b(?![^\n]{0,40}installed)",
                r"kernel headers? (?:\w+ ){0,6}(?:not (?:seem to be )?(?:installed|found)|missing|cannot be found)",
                r"Unable to find the kernel source tree for the currently running kernel",
                r"could not insert 'off'|modprobe: FATAL: Module off not found",
                r"ROCk module is NOT loaded",
                r"amdgpu.{0,40}(?:not loaded|module not found|failed to load)",
                r"nvidia-persistenced? failed to initialize",
                r"(?:lsmod|modprobe -l) ?\| ?grep (?:-\w )?nvidia\W{0,4}(?:gives|returns?|shows?|prints?|"
                r"outputs?|is|->|→|=>)"
                r" ?(?:nothing|empty|no output|none)",
            ),
            also=_DRIVER_NOUN,
            unless=words(
                r"is_available\(\)\W{0,8}True",
                r"version mismatch",
                r"\b(?:login|head|front-?end) node|\bcolab\b|kaggle",
            ),
            sure=0.75,
        ),
        Sign(
            id="kernel_module_kind_wrong",
            said=words(
                r"requires use of the NVIDIA open kernel modules",
                r"NVRM: .{0,160}is not supported by open\b",
                r"not supported by (?:the )?(?:NVIDIA )?open (?:gpu )?(?:kernel )?(?:modules?|nvidia\.ko)",
            ),
            sure=0.93,
        ),
        Sign(
            id="driver_does_not_support_gpu",
            said=words(
                r"NVRM: .{0,160}is not supported by the (?:NVIDIA )?[\d.]+",
                r"installed in this system is not supported by .{0,80}driver release",
                r"NVRM: The NVIDIA .{0,120}supported through the NVIDIA [\d.]+xx Legacy",
                r"do not appear to have an NVIDIA GPU supported by the",
            ),
            sure=0.9,
        ),
        Sign(
            id="secure_boot_blocks_module",
            said=words(
                r"\bmodules? (?:\w+ ){0,3}?(?:keys? |signatures? )?(?:are |is |was |were |being |gets? )*"
                r"(?:rejected|refused|not signed|unsigned)",
                r"unsigned (?:\w+ ){0,2}(?:modules?|drivers?)",
                r"module signature (?:verification )?(?:enforc\w+|fail\w*|error)",
                r"could not insert '?nvidia\w*'?: Operation not permitted",
            ),
            also=words(r"nvidia\b"),
            unless=words(
                r"SecureBoot disabled|secure ?boot (?:is |was )?(?:disabled|off)\b", r"is_available\(\)\W{0,8}True"
            ),
            sure=0.85,
        ),
        Sign(
            id="secure_boot_blocks_module",
            said=words(
                r"sig_enforce", r"SecureBoot enabled", r"secure ?boot (?:is |was )?(?:still )?(?:enabled|on|active)\b"
            ),
            also=words(*_DRIVER_DEAD, r"modules?[^.\n]{0,40}(?:reject\w*|refus\w*)"),
            unless=words(r"is_available\(\)\W{0,8}True"),
            sure=0.82,
        ),
        Sign(
            id="nouveau_loaded",
            said=words(
                r"\bdriver ?[:=] ?nouveau\b",
                r"\bnouveau\b[^.\n]{0,40}(?:instead of|rather than)",
                r"(?:still|keeps?) (?:\w+ ){0,3}nouveau",
                r"fall(?:s|ing|en)? ?back to (?:the )?nouveau",
                r"\b(?:runs?|running|us(?:es?|ing|ed)|bound|loads?|claim(?:s|ed)|driven|held)\b[^.\n]{0,40}\bnouveau\b",
                r"\bnouveau\b[^.\n]{0,20}\b(?:is|was|gets) (?:loaded|active|used|running|still)",
            ),
            unless=words(r"is_available\(\)\W{0,8}True", r"kernel modules? missing"),
            sure=0.85,
        ),
        Sign(
            id="fabric_manager_not_running",
            said=words(
                r"fabric ?manager[^.\n]{0,60}(?:not|n't|missing|stopped|absent|without|fail\w*|crash\w*|wrong version)",
                r"(?:no|missing|without|lack\w*) (?:the )?(?:nvidia[- ]?)?fabric ?manager",
                r"driver interface version [\d.]+ don.t match with driver version",
                r"NVSwitch (?:device|driver)[^.\n]{0,60}(?:fail\w*|error)",
                r"Fabric(?: State| Status)? ?: ?(?:In Progress|Not Started|Initiali[sz]\w+)",
            ),
            also=_FAILS,
            sure=0.85,
        ),
        Sign(
            id="mps_daemon_unreachable",
            # the service and the failure in one breath: an environment that is listed names it too
            said=words(
                r"(?:Multi[- ]Process Service|CUDA_MPS_\w+|nvidia-cuda-mps-(?:control|server)|"
                r"\bMPS (?:server|daemon|client|control)\b).{0,250}\b(?:fail\w*|crash\w*|can ?not|can't|unable|hangs?|"
                r"refus\w*|not (?:work|connect|start|ready)\w*)",
                r"User did not send valid credentials",
            ),
            also=words(r"\bmps\b", "CUDA_MPS"),
            unless=words(r"\bmac ?os\b|\bapple\b|\bM[1-4]\b(?: pro| max| ultra)?|torch\.backends\.mps", "Xid"),
            sure=0.6,
        ),
        Sign(
            id="uvm_broken_after_suspend",
            said=_CUDA_DEAD,
            also=_SUSPENDED,
            unless=words(r"\btime\.sleep\b|\bsleep\(", "fallen off", "NCCL WARN"),
            sure=0.8,
        ),
        Sign(
            id="driver_library_mismatch",
            # the packages were replaced under a driver that runs
            said=words(
                r"unattended[- ]upgrades?",
                r"(?:apt|yum|dnf|pacman|zypper)(?:-get)? (?:-y )?(?:full-|dist-|system-)?(?:update|upgrade|-Syu)\b",
                r"(?:automatic|auto|background|security) (?:driver )?updat\w+",
            ),
            also=words(
                r"Upgrade: [^\n]*(?:nvidia|cuda-drivers)",
                r"(?:driver|library|nvml|kernel module)[^.\n]{0,40}\bmismatch",
                r"Failed to initialize NVML",
            ),
            unless=words(r"NVML: (?:Unknown Error|Insufficient|Driver Not Loaded)"),
            sure=0.7,
        ),
        # the compatibility package stands before the driver's own libcuda
        Sign(
            id="libcuda_mismatch_803",
            said=words(r"/cuda[\w.-]*/compat\b", r"\bcuda-compat\b"),
            also=_COMPAT_FAILS,
            unless=words(r"is_available\(\)\W{0,8}True", _CONSUMER_CARD),
            sure=0.66,
        ),
        Sign(
            id="forward_compat_on_consumer_gpu",
            said=words(r"/cuda[\w.-]*/compat\b", r"\bcuda-compat\b", r"forward[- ]compat\w*"),
            also=words(_CONSUMER_CARD),
            unless=words(r"is_available\(\)\W{0,8}True", r"Error 803"),
            sure=0.66,
        ),
        Sign(
            id="nvidia_uvm_missing",
            said=words(r"(?:\bno|without|lacks?|missing|but not) (?:/dev/)?nvidia-uvm\b"),
            unless=words(r"\bsuspend\w*", r"\bhibernat\w*"),
            sure=0.86,
        ),
        Sign(
            id="mig_enabled_no_instance",
            said=words(r"\bMIG(?: mode)?(?: M\.)?\W{1,4}(?:is )?(?:on|enabled)\b"),
            also=words(r"No CUDA GPUs", r"no CUDA-capable", r"(?:zero|0|no) (?:cuda )?(?:devices|gpus)\b", UNAVAILABLE),
            unless=words(r"MIG-[0-9a-f]{8}|MIG-GPU", r"MIG \dg\.\d+gb", r"MIG \dc"),
            sure=0.7,
        ),
        Sign(
            id="libcuda_stub_loaded",
            said=words(r"CUDA driver is a stub library", r"CUDA_ERROR_STUB_LIBRARY|cudaErrorStubLibrary"),
            sure=0.95,
        ),
    ),
)
