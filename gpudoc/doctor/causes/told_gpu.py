"""A GPU that goes away, is refused or is held back, as people tell it without any message: who, what, and when."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import UNAVAILABLE, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.doctor.vocabulary import DOCKER
from gpudoc.facts.model import Absent
from gpudoc.facts.readers.model import Text

_GPU = words(r"\bgpus?\b", r"graphics? cards?|video cards?", r"\bcards?\b", r"\b[RG]TX\b|geforce|tesla", "显卡")
_VANISHES = words(
    r"\b(?:go|goes|went|going|gone|is|are|was|were|gets?|got|getting|becomes?|turns?) (?:\w+ ){0,2}"
    r"(?:missing|lost|undetected|unrecogni[sz]ed|invisible|gone)\b",
    r"\b(?:disappear|vanish)\w*|\bdrop(?:s|ped)? (?:out|off)\b|\bfalls? off\b",
    r"\b(?:not|n't|no longer|never) (?:be |being )?(?:detected|recogni[sz]ed|listed|found|seen|visible)",
    r"\blos(?:es|t|ing|e) (?:\w+ ){0,2}(?:gpus?|cards?)\b",
    "掉卡|丢失|消失|找不到",
)
_HELPED_BY_RESTART = words(
    r"\b(?:until|unless|need\w*|have to|had to|must|only|resolve\w*|solv\w*|fix\w*|help\w*|recover\w*|back|comes? "
    r"back|works? again|whenever|"
    r"goes away|disappears?)\b[^.\n]{0,60}(?:re-?boot\w*|restart\w*|re-?start|power[- ]?cycl\w*|cold boot|switch\w* "
    r"off)",
    r"(?:re-?boot\w*|restart\w*|power[- ]?cycl\w*|cold boot)\b[^.\n]{0,60}\b(?:helps?|fix\w*|solv\w*|resolv\w*|back|"
    r"recover\w*|again|"
    r"to (?:get|use|maintain|bring|recover|see))",
    "重启",
)
_NOW_AND_THEN = words(
    r"from time to time|now and then|\bsometimes\b|\boccasional\w*|\brandom\w*|\bonce (?:a|in a|every)\b|suddenly|"
    r"intermittent\w*",
    r"\bevery (?:few|couple|day|week|now|once|\d+)|\b(?:couple|few) of (?:days|weeks|hours)",
    r"\b(?:during|while|in the middle of|halfway through|amid) (?:the |my |a |some )?(?:\w+ )?"
    r"(?:train\w*|run\w*|experiments?|fine-?tun\w*|job\w*)",
    r"after (?:about |around |some |a few |several |many )*(?:\d+ )?(?:hours?|days?|minutes?|epochs?|steps?|"
    r"iterations?)",
    r"in some (?:experiments|runs|jobs)|一段时间|有时|偶尔|突然",
)
_NOT_THE_BUS = words(
    r"\bsuspend\w*|\bhibernat\w*|\bsleep\b|wak(?:e|ing|es)[ -]?up",
    r"\b(?:docker|container|pod|kubernetes|k8s)\b",
    r"\bWSL\b|\bMIG\b",
    r"(?:after|since) (?:\w+ ){0,4}(?:kernel|driver|apt|system) (?:\w+ )?(?:updat|upgrad)\w*",
    r"is_available\(\)\W{0,8}True",
    r"CUDA_VISIBLE_DEVICES",
)


def _find_vanishing(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A card that was there, is gone now and then, and comes back only with a restart of the machine."""
    del evidence
    if text.find(_NOT_THE_BUS) or text.find(_NOW_AND_THEN) is None:
        return
    gone = together(text, _VANISHES, _GPU)
    restart = text.find(_HELPED_BY_RESTART)
    if gone and restart:
        yield Finding(
            id="gpu_fallen_off_bus",
            confidence=0.74,
            evidence=(quote(gone, "what happens"), quote(restart, "what helps")),
        )


_SCREEN = words(
    r"\b(?:screens?|display|monitors?|desktop|gui)\b[^.\n]{0,40}\b(?:black|blank|freez\w*|froze\w*|flicker\w*|"
    r"blink\w*|hangs?|turns? off)",
    r"\b(?:black|flicker\w*|frozen|freez\w*|blink\w*) (?:\w+ ){0,3}(?:screens?|display|monitors?)\b",
)
_CUDA_FAILS = words(
    r"\bcuda(?: runtime)?\b[^.\n]{0,30}\b(?:error|fail\w*)",
    r"launch failure|unknown error|launch timed out",
    r"\bcrash\w*|\bdies\b",
)
_BIGGER = words(
    r"\b(?:larger|bigger|higher|large|big|high|more|longer|heavy|heavier|long)\b[^.\n]{0,40}\b(?:image\w*|resolution|"
    r"batch\w*|size|samples?|grids?|"
    r"kernels?|models?|inputs?|data\w*|iterations)",
    r"\b(?:smaller|lower|shorter|fewer)\b[^.\n]{0,60}\b(?:works?|fine|ok|runs?|no (?:error|problem))",
    r"\b(?:n[xys]|width|height|resolution|batch_?size)\W{1,3}\d{2,}",
)
_WHOLE_MACHINE = words(
    r"re-?boot\w*|shut(?:s|ting)? ?down|power(?:s|ed)? off|restarts? (?:itself|the (?:pc|computer|machine))|turns? off",
    r"\bXid\b",
)


def _find_watchdog(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The picture stands still or goes dark while one long kernel runs, and then CUDA fails: the display's watchdog."""
    del evidence
    screen = together(text, _SCREEN, _CUDA_FAILS, around=2)
    if screen is None or text.find(_WHOLE_MACHINE):
        return
    failed = text.find(words(r"\bcuda\b[^\n]{0,40}error|launch failure|unknown error"))
    if failed and text.find(_BIGGER):
        yield Finding(
            id="kernel_launch_timeout",
            confidence=0.76,
            evidence=(quote(screen, "screen"), quote(failed, "program")),
            explains=("uvm_broken_after_suspend", "nvidia_uvm_missing", "gpu_hardware_fault"),
        )


_MIG = words(r"\bMIGs?\b")
_MIG_ON = words(
    r"\bMIG(?:[- ]mode)?[^.\n]{0,40}\b(?:enabled?|on|activ\w+)\b",
    r"\b(?:enabl|activat|switch|turn|put)\w*[^.\n]{0,40}\bMIG\b",
    r"\bin MIG(?:[- ]mode)?\b|\bMIG[- ](?:enabled|capable)",
)
_SLICES_GONE = words(
    r"\b(?:destr\w+|lost|loses?|gone|disappear\w*|vanish\w*|wiped|clear(?:ed|s)|delet\w+|reset)\b",
    r"(?:not|n't|never) (?:\w+ ){0,2}(?:persist\w*|surviv\w*|kept|restor\w*|retain\w*|preserv\w*)",
    r"\bback to (?:the |its )?(?:init\w*|default|first|old|previous)|\brevert(?:s|ed)\b",
)
_RESTARTED = words(r"re-?boot\w*|re-?start\w*|power[- ]?cycl\w*|reset", "重启")
_NO_SLICES = words(
    r"\bno (?:\w+ ){0,3}(?:resources?|instances?|geometr\w+|devices?|slices?|partitions?|profiles?|gpus?)\b",
    r"(?:not|never|n't|without|before) (?:\w+ ){0,4}(?:creat\w*|configur\w*|partition\w*|slic\w*|geometr\w*|"
    r"instances?)",
    r"does(?:n't| not) have any|\bempty\b|\b0 (?:gpus|devices|resources)",
)
_NOT_OFFERED = words(
    r"\b(?:zero|0|no) (?:\w+ ){0,2}(?:gpus?|devices?)\b|device_count\(\)\W{1,6}(?:is |returns? |= )?0\b",
    r"(?:can ?not|can't|could not|fail\w*|unable|does ?n[o']t|not|never) (?:\w+ ){0,4}(?:see|find|detect|deploy\w*|"
    r"advertis\w*|register\w*|"
    r"available|start|list|expose\w*|work\w*|use)\w*",
    r"CrashLoopBackOff|\bcrash\w*",
    UNAVAILABLE,
)
_SLICES_LISTED = words(
    r"MIG-[0-9a-f]{8}", r"MIG \dg\.\d+gb", r"mig-\dg\.\d+gb: ?[1-9]", r"MIG_MONITOR_DEVICES", "MIGraphX"
)


def _find_no_slices(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """MIG mode without instances: gone with a restart, never made, or nothing offered since the mode is on."""
    gpus = evidence.machine.gpus
    if not isinstance(gpus, Absent) and gpus and all(gpu.mig_enabled is False for gpu in gpus):
        return
    if text.find(_MIG) is None or text.find(_SLICES_LISTED):
        return
    gone = together(text, _SLICES_GONE, _MIG, _RESTARTED, around=1)
    if gone:
        yield Finding(id="mig_enabled_no_instance", confidence=0.82, evidence=(quote(gone, "MIG instances"),))
        return
    on = together(text, _MIG_ON, _NO_SLICES, _NOT_OFFERED, around=1)
    if on:
        yield Finding(id="mig_enabled_no_instance", confidence=0.8, evidence=(quote(on, "MIG mode"),))
        return
    on = together(text, _MIG_ON, _NOT_OFFERED)
    if on:
        yield Finding(id="mig_enabled_no_instance", confidence=0.66, evidence=(quote(on, "MIG mode"),))


_EXCLUSIVE = words(
    r"\bexclusive[-_ ]?(?:process|thread|compute|mode)\b",
    r"\b(?:process|thread)[-_ ]?exclusive\b",
    r"\bE\. ?(?:Process|Thread)\b",
)
_SECOND = words(
    r"\b(?:second|2nd|another|other|two|2|several|multiple|both|each|more than one)\b[^.\n]{0,30}\b(?:process\w*|"
    r"users?|jobs?|ranks?|workers?|"
    r"scripts?|programs?|one|runs?)\b",
    r"\b(?:ddp|dataparallel|multi-?process\w*|num_workers|nproc_per_node)\b",
)
_FAILS = words(
    r"\bfail\w*|\berrors?\b|\bcrash\w*|\bdies\b|\bbusy\b|unavailable",
    r"(?:can ?not|can't|will not|not|unable|no) (?:\w+ ){0,3}(?:use|find|run|start|open|get|available|share)\w*",
    r"\bproblem\b",
)


def _find_exclusive(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    mode = together(text, _EXCLUSIVE, _SECOND, _FAILS, around=1)
    if mode and not text.find(words(r"\bMPS (?:client|server|daemon)\b")):
        yield Finding(id="compute_mode_exclusive", confidence=0.76, evidence=(quote(mode, "compute mode"),))


_LATER = words(
    r"after (?:a while|some (?:time|hours?|days?|minutes?|weeks?)|(?:a )?(?:few|couple of) (?:hours?|days?|minutes?)|"
    r"several (?:hours?|days?|minutes?)|\d+ ?(?:hours?|days?|minutes?|h\b))",
    r"some time later|\brandomly\b|\bsuddenly\b|\b(?:days?|hours?) (?:after|later)\b|\bmid-?(?:training|run)\b",
    r"\b(?:at|in) (?:the )?(?:start|first|beginning)\b|\b(?:initially|at first)\b",
    r"daemon-reload|一段时间后|过一段时间",
)
_TAKEN_AWAY = words(
    r"\blos(?:t|es?|ing)\b (?:\w+ ){0,4}gpus?\b",
    r"\bgpus?\b[^.\n]{0,40}\b(?:unavailable|not available|no longer|disappear\w*|gone|lost|inaccessible|vanish\w*)",
    r"\bno (?:\w+ )?gpus? (?:any ?more|any longer)",
    r"(?:can ?not|can't|unable to|could not|no longer) (?:\w+ )?(?:access|use|see|find|reach) (?:the |its |any )?gpus?",
    r"nvidia-smi\b[^.\n]{0,40}(?:unknown error|fail\w*|not work\w*)",
)
_HOST_IS_WELL = words(
    r"restart\w* (?:the |all |my |this |of the )?(?:\w+ )?(?:containers?|pods?)",
    r"\bhost\b[^.\n]{0,40}(?:fine|works?|ok|normal\w*|correct\w*|good|still)",
    r"new containers?|recreat\w*|outside (?:of )?(?:the )?containers?",
)
_OTHER_LOSS = words(
    "fallen off", r"\bXid\b", "GPU is lost", r"\bsuspend\w*", r"out of memory", r"\bWSL\b", "device handle"
)


def _find_taken_away(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A container that had the GPU when it started and has not any more, while the host has it."""
    del evidence
    box = text.find(DOCKER)
    if box is None or text.find(_OTHER_LOSS):
        return
    lost = together(text, _TAKEN_AWAY, _LATER, around=1)
    if lost:
        yield Finding(
            id="container_lost_gpu_cgroup",
            confidence=0.88 if text.find(_HOST_IS_WELL) else 0.76,
            evidence=(quote(lost, "what happens"), quote(box, "in a container")),
            explains=("container_without_gpu_access", "no_gpu_on_machine"),
        )


_DRIVER_INTO_BOX = words(
    r"(?:install\w*|apt(?:-get)?)[^.\n]{0,40}\bnvidia[- ](?:driver|utils)\S*[^.\n]{0,60}\b(?:in(?:side|to)?|within) "
    r"(?:the |my |a |this |running )*"
    r"(?:\w+ )?(?:docker|container|image)",
    r"\b(?:in(?:side|to)?|within) (?:the |my |a |this |running )*(?:\w+ )?(?:docker|container|image)\b[^.\n]{0,60}"
    r"install\w*[^.\n]{0,30}\bnvidia[- ]drivers?",
    r"\bdrivers? in(?:to|side)? (?:the |my |a |this |running )*(?:docker|container|image)\b",
    r"(?:docker|container|image)\b[^.\n]{0,40}\b(?:has|have|with|there is|is) no nvidia driver",
)
_NO_CUDA = words(
    r"\bno (?:nvidia )?driver\b|Failed to initialize NVML|nvidia-smi\b[^.\n]{0,30}(?:fail\w*|not)",
    r"Found no NVIDIA driver|No CUDA GPUs|no CUDA-capable",
    UNAVAILABLE,
)


def _find_driver_in_box(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A driver put into a container, which has the host's: what lacks there is the GPU being passed on."""
    del evidence
    put, dead = text.find(_DRIVER_INTO_BOX), text.find(_NO_CUDA)
    if (
        put
        and dead
        and not text.find(words(r"daemon-reload", r"after (?:a while|some|hours|days)", "version mismatch"))
    ):
        yield Finding(
            id="container_without_gpu_access",
            confidence=0.86,
            evidence=(quote(put, "driver"), quote(dead, "effect")),
            explains=("container_lost_gpu_cgroup", "driver_missing_or_not_loaded", "wsl_wrong_driver_inside"),
        )


_AS_USER = words(
    r"\b(?:as|by|for|to) (?:an? |any |the |my )?(?:non-?root|regular|normal|ordinary|unprivileged|standard|other|"
    r"different|non-?privileged|"
    r"non-?admin)(?: \w+)? users?\b",
    r"\b(?:regular|normal|ordinary|unprivileged|non-?root) users?\b",
    r"\bnon-?root\b",
)
_REFUSED = words(
    r"(?:can ?not|can't|could not|unable to|not allowed to|fail\w* to|does ?n[o']t|not|no) (?:\w+ ){0,4}"
    r"(?:access|open|use|see|find|get|detect\w*|run|available|work)\w*",
    r"\b(?:get|have|has|gets|see|sees|with|no) no (?:cuda|gpus?)|\bno gpus?\b",
    r"no CUDA-capable",
    UNAVAILABLE,
)
_DEVICE = words(r"\bgpus?\b", r"\bcuda\b", r"\bnvidia\b", r"/dev/(?:nvidia|kfd|dri)")
_OTHER_RIGHTS = words(r"docker\.sock", "docker daemon", r"\bpip\b[^\n]{0,30}permission", r"sudo pip", "site-packages")


def _find_refused(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    user = together(text, _AS_USER, _REFUSED, _DEVICE)
    if user and not text.find(_OTHER_RIGHTS):
        yield Finding(
            id="device_permission_denied",
            confidence=0.84,
            evidence=(quote(user, "who is refused"),),
            explains=("container_without_gpu_access", "jetson_generic_wheel", "no_gpu_on_machine", "cpu_only_torch"),
        )


_NOUVEAU = words(r"\bnouveau\b")
_DISMISSED = words(
    r"(?:blacklist|disabl|remov|unload)\w*ed (?:the )?nouveau",
    r"nouveau\b[^.\n]{0,30}(?:(?:is|was|has been|already|not|n't) (?:\w+ )?(?:blacklisted|disabled|removed|loaded|"
    r"unloaded|running))",
    r"nouveau\.modeset=0|options nouveau modeset=0|rd\.driver\.blacklist=nouveau",
    r"Kernel modules: [^\n]*nouveau",
)
_DRIVER_TROUBLE = words(
    r"\b(?:fail\w*|crash\w*|errors?|abort\w*|hang\w*|panic|conflict\w*)\b",
    r"(?:can ?not|can't|not|unable) (?:\w+ ){0,3}(?:communicate|load|install|work|start|find|detect)\w*",
)


def _find_nouveau(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The free driver spoken of beside trouble, and nobody says that it was put out of the way."""
    del evidence
    if text.find(_NOUVEAU) is None or text.find(_DISMISSED):
        return
    said = together(text, _NOUVEAU, _DRIVER_TROUBLE, around=2)
    if said:
        yield Finding(id="nouveau_loaded", confidence=0.62, evidence=(quote(said, "kernel driver"),))


_WSL = words(r"\bWSL", "microsoft-standard")
_ONE_WORKS = words(
    r"is_available\(\)\W{0,12}(?:\n?\W{0,4})True",
    r"\b(?:py)?torch\b[^.\n]{0,40}\b(?:fine|works?|no trouble|no problem|ok)\b",
)
_OTHER_FINDS_NONE = words(r"CUDA_ERROR_NO_DEVICE", r"CUDA driver library cannot be found", r"numba[^\n]{0,80}\bFalse\b")


def _find_two_libcudas(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """In WSL one program finds the GPU and another does not: each loads a libcuda of its own."""
    del evidence
    wsl, works, none = text.find(_WSL), text.find(_ONE_WORKS), text.find(_OTHER_FINDS_NONE)
    if wsl and works and none:
        seen = (quote(works, "one program"), quote(none, "another"))
        yield Finding(id="wsl_wrong_driver_inside", confidence=0.76, evidence=seen)


_DXG = words(
    r"/dev/dxg\b[^.\n]{0,40}\b(?:not|n't|no longer|missing|gone|absent|unavailable)\b",
    r"\b(?:no|without|missing|lacks?) (?:the )?/dev/dxg",
    r"libd3d12\.so(?![^\n]*libcuda)[^\n]*libdxcore\.so",
)
_OWN_KERNEL = words(
    r"(?:built|build|compil\w+|custom|own|self-?built)[^.\n]{0,40}\bkernel\b",
    r"\bkernel\b[^.\n]{0,40}(?:from source|from this repo\w*|(?:I|we) (?:built|compiled))",
)
_NONE_SEEN = words(
    r"(?:not|n't|unable|no|can ?not) (?:\w+ ){0,4}(?:see|find|found|detect|use|available)\w*[^.\n]{0,30}\b(?:gpus?|"
    r"cuda)\b",
    r"\b(?:gpus?|cuda)\b[^.\n]{0,30}(?:not|n't|un)[ -]?(?:found|available|visible|detected|work\w*)",
    UNAVAILABLE,
)


def _find_no_door(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """WSL without the device that leads to Windows' driver, or with a kernel that somebody built without it."""
    del evidence
    if text.find(_WSL) is None and text.find(words("/dev/dxg")) is None:
        return
    door = text.find(_DXG)
    if door:
        yield Finding(id="wsl_windows_or_kernel_too_old", confidence=0.84, evidence=(quote(door, "WSL"),))
        return
    kernel, none = text.find(_OWN_KERNEL), text.find(_NONE_SEEN)
    if kernel and none:
        seen = (quote(kernel, "kernel"), quote(none, "effect"))
        yield Finding(id="wsl_windows_or_kernel_too_old", confidence=0.68, evidence=seen)


FINDERS = (
    text_finder("gpu_fallen_off_bus", _find_vanishing),
    text_finder("kernel_launch_timeout", _find_watchdog),
    text_finder("mig_enabled_no_instance", _find_no_slices),
    text_finder("compute_mode_exclusive", _find_exclusive),
    text_finder("container_lost_gpu_cgroup", _find_taken_away),
    text_finder("container_without_gpu_access", _find_driver_in_box),
    text_finder("device_permission_denied", _find_refused),
    text_finder("nouveau_loaded", _find_nouveau),
    text_finder("wsl_wrong_driver_inside", _find_two_libcudas),
    text_finder("wsl_windows_or_kernel_too_old", _find_no_door),
)
