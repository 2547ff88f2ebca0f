"""How a driver, a session or a container was set up, as people tell it: what they did, and what is missing since."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import UNAVAILABLE, Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.doctor.vocabulary import WITHOUT_GPU_OPTION
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_WORKS = words(r"is_available\(\)\W{0,8}True", r"Is CUDA available: (?:True|Yes)")
_NO_GPU = words(
    r"Found no NVIDIA driver",
    r"No CUDA (?:GPUs|runtime)",
    r"no CUDA-capable",
    r"\bno gpus?\b",
    r"\b(?:asks?|asking|asked|needs?|wants?|requires?) (?:\w+ ){0,4}nvidia drivers?\b",
    r"CUDA (?:is )?not available",
    UNAVAILABLE,
)

_HOST_MODULE = words(r"modprobe: (?:FATAL|ERROR):? Module nvidia(?:-current)? not found")


def _find_no_module(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The host's own kernel has no nvidia module: containers on it can have no GPU either."""
    del evidence
    said = text.find(_HOST_MODULE)
    if said:
        yield Finding(
            id="driver_missing_or_not_loaded",
            confidence=0.88,
            evidence=(quote(said, "kernel module"),),
            explains=("container_without_gpu_access", "container_toolkit_missing", "nvidia_uvm_missing"),
        )


_MODULE = words(
    r"\bdkms\b[^.\n]{0,30}\bmodules?\b|\bmodules?\b[^.\n]{0,30}\bdkms\b|dkms (?:build|install)\b",
    r"\bakmods?\b|kmod-nvidia",
    r"\bnvidia (?:kernel )?modules?\b",
)
_GONE = words(
    r"\b(?:disappear\w*|vanish\w*|gone|delet\w*|remov\w*|missing|lost)\b",
    r"(?:not|n't|never) (?:being |be |get |getting )?(?:re-?)?(?:built|build|compiled|installed)\b",
    r"\b(?:by hand|manually|every time|each time|again)\b",
)
_UPDATED = words(r"\bupdat\w*|\bupgrad\w*", r"\bkernels?\b")
_NVIDIA = words(r"\bnvidia\b")


def _find_module_gone(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The module that was built for one kernel or driver is not there for the next."""
    del evidence
    if text.find(_NVIDIA) is None or text.find(_WORKS):
        return
    said = together(text, _MODULE, _GONE, _UPDATED, around=1)
    if said and not text.find(words("version mismatch", r"secure ?boot")):
        yield Finding(id="driver_missing_or_not_loaded", confidence=0.74, evidence=(quote(said, "kernel module"),))


_SESSION = words(
    r"\bcoll?abs?\b|colaboratory",
    r"\bVPS\b|\bdroplet\b|\bcodespaces?\b|\bgitpod\b|\breplit\b|\bbinder\b",
    r"\bcpu[- ](?:node|partition|queue|runtime|instance)\b",
    r"(?:without|no) (?:a |any )?(?:graphics?|video) cards?\b",
    r"\bmacbook\b",
)


def _find_session(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Where somebody works there is none: a session of a notebook service, a rented server, a node without."""
    del evidence
    place = text.find(_SESSION)
    missing = None if place is None or text.find(_WORKS) else text.find(_NO_GPU)
    if place and missing and not text.find(words(r"NVIDIA-SMI \d{3}", r"\bGPU \d: ")):
        yield Finding(
            id="no_gpu_on_machine",
            confidence=0.72,
            evidence=(quote(place, "where it runs"), quote(missing, "effect")),
            explains=("driver_missing_or_not_loaded", "container_without_gpu_access"),
        )


_IMAGE_ALONE = words(
    r"\./[\w.-]+\.(?:simg|sif)\b",
    r"(?:singularity|apptainer) (?:exec|run|shell) (?![^\n]{0,200}--(?:nv|nvccli|rocm)\b)[^\n]{3,200}",
)
_DEV_BOX = words(r"\bdev ?-?containers?\b|devcontainer\.json|\bcode-server\b|jupyterhub|\bdockerspawner\b")
_NONE_INSIDE = words(
    r"(?:has|have|having|sees?|finds?|with|about) no gpus?\b",
    r"\bcontainers?\b[^.\n]{0,60}\bno gpus?\b|\bno gpus?\b[^.\n]{0,60}\bcontainers?\b",
    UNAVAILABLE,
    r"No CUDA GPUs|no CUDA-capable|Found no NVIDIA driver",
)


def _find_image_alone(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """An image that was started as it is, by itself or by an editor, and has no GPU inside."""
    del evidence
    box = text.find(_IMAGE_ALONE) or text.find(_DEV_BOX)
    none = None if box is None or text.find(_WORKS) else text.find(_NONE_INSIDE)
    if box and none and not text.find(words("--gpus", "Unknown Error", r"\s--nv\b")):
        seen = (quote(box, "container"), quote(none, "effect"))
        yield Finding(
            id="container_without_gpu_access", confidence=0.76, evidence=seen, explains=("no_gpu_on_machine",)
        )


_BOARD = words(
    r"\bjetsons?\b",
    r"\bjetpack\b",
    r"\btegra\b|-tegra\b",
    r"\bL4T\b",
    r"\b(?:AGX|NX) (?:orin|xavier)\b|\b(?:orin|xavier) (?:nano|NX|AGX)\b",
)
_TORCH = words(r"\b(?:py)?torch\b")
_NOT_TO_BE_HAD = words(
    r"(?:can ?not|can't|could not|unable to|fail\w* to|does ?n[o']t|not) (?:\w+ ){0,4}"
    r"(?:find|install\w*|satisf\w*|support\w*|work\w*|available)",
    r"\bno (?:\w+ ){0,4}(?:packages?|wheels?|versions?|builds?|distribution)\b",
    r"\bhow (?:can|do|to|should) (?:\w+ )?install",
    r"No matching distribution",
)


def _find_board_wheel(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """torch that is not to be had on a board whose wheels NVIDIA alone builds."""
    del evidence
    if text.find(_BOARD) is None or text.find(_WORKS):
        return
    said = together(text, _TORCH, _NOT_TO_BE_HAD, around=1)
    if said:
        yield Finding(
            id="jetson_generic_wheel",
            confidence=0.72,
            evidence=(quote(said, "torch"),),
            explains=("python_unsupported_by_wheel",),
        )


_FABRIC = words(r"\bnvlinks?\b|\bnvswitch\w*", r"\b(?:HGX|DGX)\b", r"\bSXM\d?\b")
_NO_CUDA = words(
    r"\bCUDA\b[^.\n]{0,30}\b(?:not|n't|never|fail\w* to|can ?not) (?:\w+ ){0,2}(?:initiali[sz]\w*|init|ready|start)",
    r"non-?functioning CUDA|CUDA\b[^.\n]{0,20}non-?functioning",
    r"initiali[sz]ation of CUDA fails|CUDA initiali[sz]ation (?:fails|failed|error)",
)
_SMI_WELL = words(
    r"nvidia-smi\b[^.\n]{0,40}\b(?:fine|well|works?|ok|okay|healthy|normal\w*|good|shows? all|lists? all)",
    r"(?:everything|all|it)\b[^.\n]{0,30}\b(?:looks?|seems?) (?:\w+ ){0,3}(?:fine|well|works?|ok|good|healthy|"
    r"it works)",
)


def _find_fabric(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A machine of linked GPUs that the driver lists as well, and in which CUDA does not begin."""
    del evidence
    fabric, none, smi = text.find(_FABRIC), text.find(_NO_CUDA), text.find(_SMI_WELL)
    if fabric and none and smi and not text.find(words(r"\bError (?!802)\d{2,3}\b", "out of memory", "too old")):
        seen = (quote(fabric, "links"), quote(none, "CUDA"), quote(smi, "driver"))
        yield Finding(id="fabric_manager_not_running", confidence=0.66, evidence=seen)


_ONE_OF_MANY = words(
    r"\bonly (?:\w+ ){0,3}(?:on |with )?(?:gpu|card|device|cuda:?) ?#?\d\b",
    r"\b(?:gpu|card|device|cuda:?) ?#?\d (?:only|alone)\b",
)
_OTHERS_WELL = words(
    r"\bothers?\b[^.\n]{0,60}\b(?:fine|works?|well|never|ok|okay|good|normal\w*|no (?:error|problem)s?)\b",
    r"\b(?:100 ?%|99 ?%)[^.\n]{0,30}\bgpu[- ]?util\w*[^.\n]{0,60}\bno process\w*",
    r"\b(?:swap\w*|exchang\w*|mov\w*) (?:the )?(?:cards?|gpus?)",
)
_CRASH = words(
    r"CUDNN_STATUS_(?!NOT_SUPPORTED)\w+",
    r"CUBLAS_STATUS_\w+",
    r"illegal (?:memory|instruction)",
    r"launch failure",
    r"\bcrash\w*|\bdies\b|\bnans?\b|\bfreez\w*",
)


def _find_one_of_many(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """One of several equal cards fails where its brothers do not: no program tells cards apart."""
    del evidence
    one, crash = text.find(_ONE_OF_MANY), text.find(_CRASH)
    if one and crash and text.find(_OTHERS_WELL) and not text.find(words("out of memory", r"\bP2P\b|\bp2p\b")):
        yield Finding(
            id="gpu_hardware_fault",
            confidence=0.84,
            evidence=(quote(one, "which card"), quote(crash, "what happens")),
            explains=("oom_masked_as_library_error", "illegal_memory_access", "library_path_shadows_bundled"),
        )


_SMI_CUDA = Pattern(r"(?i)nvidia-smi\b[^\n]{0,80}?\bcuda(?: version)?\W{1,4}(\d{1,2})\.(\d)\b")
_BUILD_CUDA = Pattern(
    r"(?i)(?:\+|\btorch\b[^\n]{0,30}|whl/|pytorch-cuda[=\s]+|cudatoolkit[=\s]+)(?:cu(\d{2})(\d)|(1\d)\.(\d))\b"
)


def _find_told_cuda(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The CUDA that the driver offers, as somebody quotes nvidia-smi, is of an older generation than the build's."""
    del evidence
    offered = text.find(_SMI_CUDA)
    if offered is None or text.find(_WORKS) or text.find(_NO_GPU) is None:
        return
    for built in text.find_all(_BUILD_CUDA, most=10):
        wanted = int(built[1] or built[3])
        if int(offered[1]) < wanted:
            seen = (quote(offered, "driver"), quote(built, "torch"))
            yield Finding(id="driver_too_old", confidence=0.82, evidence=seen)
            return


_FEWER = Pattern(
    r"(?i)\bonly (\d{1,2}) (?:of (?:our |the |my )?(\d{1,2}) )?gpus?\b|\b(\d{1,2}) (?:out )?of (?:our |the |my |"
    r"all )?(\d{1,2}) gpus?\b"
)
_COUNTED = words(r"nvidia-smi\b", r"\blspci\b", r"\bslurmd?\b", r"\bnode\b")
_LOST = words(
    r"\blos(?:t|s|ing)\b|\bmissing\b|\bdisappear\w*|\bgone\b|since (?:this|yesterday|the)|after (?:the |a )?re-?boot"
)
_CHOSEN = words(
    r"CUDA_VISIBLE_DEVICES", r"--gpus\b", r"nproc_per_node", r"\bMIG\b", r"\bgres\b", r"n_gpu", r"out of memory"
)


def _find_fewer(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Fewer cards are counted than stand in the machine."""
    del evidence
    for said in text.find_all(_FEWER, most=6):
        few, all_of = said[1] or said[3], said[2] or said[4]
        if (
            (not all_of or int(few) < int(all_of))
            and text.find(_COUNTED)
            and text.find(_LOST)
            and not text.find(_CHOSEN)
        ):
            yield Finding(id="gpu_fallen_off_bus", confidence=0.7, evidence=(quote(said, "GPUs counted"),))
            return


_IN_WSL = words(r"\bWSL ?2?\b", "microsoft-standard", r"/mnt/[a-z]/Users/")
_NO_DEVICE = words(r"CUDA_ERROR_NO_DEVICE", r"cuInit\b[^\n]{0,40}\b100\b")
_DXCORE = words(r"dxcore initialization failed")


def _find_in_wsl(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A libcuda in WSL that looks for Linux' device files, or a WSL in which the way to Windows' driver is missing."""
    del evidence
    dxcore, says = text.find(_DXCORE), text.find(words(r"\bWSL ?2\b"))
    if dxcore and says:
        yield Finding(id="wsl_windows_or_kernel_too_old", confidence=0.82, evidence=(quote(dxcore, "WSL"),))
        return
    wsl, none = text.find(_IN_WSL), text.find(_NO_DEVICE)
    if wsl and none and not dxcore:
        seen = (quote(wsl, "WSL"), quote(none, "libcuda"))
        yield Finding(
            id="wsl_wrong_driver_inside",
            confidence=0.64,
            evidence=seen,
            explains=("no_gpu_on_machine", "cpu_only_torch"),
        )


FINDERS = (
    text_finder("driver_missing_or_not_loaded", _find_no_module),
    text_finder("driver_missing_or_not_loaded", _find_module_gone),
    text_finder("no_gpu_on_machine", _find_session),
    text_finder("container_without_gpu_access", _find_image_alone),
    text_finder("jetson_generic_wheel", _find_board_wheel),
    text_finder("fabric_manager_not_running", _find_fabric),
    text_finder("gpu_hardware_fault", _find_one_of_many),
    text_finder("driver_too_old", _find_told_cuda),
    text_finder("gpu_fallen_off_bus", _find_fewer),
    text_finder("wsl_wrong_driver_inside", _find_in_wsl),
    *finders(
        Sign(
            id="container_without_gpu_access",
            said=WITHOUT_GPU_OPTION,
            also=words(
                r"\bno gpus? (?:were |was |is |are )?(?:detected|found|available|visible)",
                r"\bno (?:cuda|nvidia)[- ](?:capable )?(?:devices?|gpus?)",
                r"CUDA (?:test|initiali[sz]ation|init) failed",
            ),
            unless=_WORKS,
            sure=0.82,
        ),
        # none is seen, and nothing says why: what it mostly is, none of it surer than a guess
        *(
            Sign(
                id=cause,
                said=words(r"No CUDA GPUs are available", r"no CUDA-capable device is detected"),
                unless=_WORKS,
                severity="info",
                sure=sure,
            )
            for cause, sure in (("driver_missing_or_not_loaded", 0.08), ("visible_devices_hides_gpu", 0.07))
        ),
        # the successor of nouveau takes the card just as nouveau does
        Sign(
            id="nouveau_loaded",
            said=words(
                r"already bound to Nova",
                r"\bnova_(?:core|drm)\b[^\n]{0,60}(?:bound|loaded|hold\w*|in use|claim\w*)",
                r"(?:held|bound|claimed|taken|used) by (?:the )?nova_?core\b",
            ),
            sure=0.92,
        ),
        Sign(
            id="mps_daemon_unreachable",
            said=words(
                r"Server encountered a fatal exception",
                r"\bServer \d+ exited with status [1-9]",
                r"mps-server\b[^\n]{0,60}(?:hang\w*|stuck|crash\w*|exited)",
            ),
            also=words(r"\bmps\b", r"\bControl +\d+\]"),
            sure=0.84,
        ),
        Sign(
            id="fabric_manager_not_running",
            said=words(
                r"\bcuda\b[^.\n]{0,60}\b(?:with|error|code|status)\W{0,3}802\b",
                r"\b802\b[^.\n]{0,12}\b(?:system )?(?:error|not (?:yet )?(?:initiali[sz]ed|ready))",
            ),
            also=words(r"\bcuda\b|\bgpus?\b|\b[AHBV]\d{2,3}\b"),
            sure=0.86,
        ),
        Sign(
            id="container_toolkit_missing",
            said=words(
                r"docker info\b[^.\n]{0,60}\bonly (?:\w+ ){0,3}runc\b",
                r"\bRuntimes: (?:io\.containerd\.\S+ )*runc\s*\n",
            ),
            also=words(r"--gpus|--runtime|nvidia"),
            sure=0.72,
        ),
        # what the firmware does not list no driver can bring back
        Sign(
            id="gpu_fallen_off_bus",
            said=words(
                r"\b(?:not|nor|neither|n't|missing)\b[^.\n]{0,40}\bdevice manager\b[^.\n]{0,40}\bbios\b",
                r"\b(?:not|nor|neither|n't|missing)\b[^.\n]{0,20}\b(?:in|from) (?:the )?bios\b",
                r"\bbios\b[^.\n]{0,30}(?:does ?n[o']t|not|no longer) (?:\w+ )?(?:see|list|show|detect|recogni[sz]e)\w*",
            ),
            also=words(r"\bgpus?\b|\bcards?\b|\b[RG]TX\b"),
            unless=words(r"secure ?boot", r"above 4g", r"resizable"),
            sure=0.74,
        ),
        Sign(
            id="gpu_hardware_fault",
            said=words(
                r"\bone of (?:the|our|my) (?:\w+ )?(?:gpus?|cards?)\b[^.\n]{0,40}\b(?:not|n't) (?:work\w*|"
                r"behav\w*|respond\w*) "
                r"(?:as|like|properly|correctly|well|right|any)",
                r"\bone of (?:the|our|my) (?:\w+ )?(?:gpus?|cards?)\b[^.\n]{0,40}\b(?:faulty|broken|defective|"
                r"dying|dead|bad)\b",
            ),
            unless=_WORKS,
            sure=0.62,
        ),
        Sign(
            id="gpu_fallen_off_bus",
            said=words(r"Unable to determine the device handle"),
            unless=words(r"device handle for GPU"),
            sure=0.9,
        ),
    ),
)
