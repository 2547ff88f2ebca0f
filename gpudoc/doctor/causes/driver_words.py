"""What other programs than torch print when the driver, its firmware or its services fail."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

# a function of libcuda itself that the libcuda at hand lacks: cuMemCreate and the like, never cudaMalloc
_DRIVER_FUNCTION = Pattern(
    r"(?:undefined symbol|symbol not found|dlsym failed on|Failed to find (?:CUDA )?(?:driver )?function)\W{0,4}"
    r"(cu(?:Mem|Device|Ctx|Get|Launch|Stream|Graph|Module|Library|Kernel|Event|Func|TensorMap|Multicast|Array|Pointer|"
    r"Occupancy|Import|Link|Array|Texture|Init)[A-Za-z_0-9]*)\b"
)


def _find_missing_function(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    said = text.find(_DRIVER_FUNCTION)
    if said is not None:
        yield Finding(
            id="driver_too_old",
            confidence=0.9,
            title=f"The driver is too old: its libcuda has no {said[1]}",
            evidence=(quote(said, "missing in libcuda"),),
            explains=("library_path_shadows_bundled", "extension_torch_abi_mismatch"),
        )


_KERNEL_SIDE = words(r"nvidia\b", r"\bNVRM\b")
_WORKS = r"is_available\(\)\W{0,8}True"

FINDERS = (
    text_finder("driver_too_old", _find_missing_function),
    *finders(
        Sign(
            id="gsp_firmware_timeout",
            said=words(
                r"unexpected WPR2 already up",
                r"Cannot initialize GSP",
                r"firmware load for nvidia/\S*gsp_\w+\.bin failed",
                r"gsp_\w+\.bin\b[^\n]{0,40}(?:fail\w*|not found|missing|no such)",
                r"\bGSP\b[^.\n]{0,30}(?:lockdown|did not (?:start|boot|respond)|not respond\w*|is (?:dead|stuck))",
                r"(?:disabl\w+|turn\w* off|without) (?:the )?\bGSP\b[^.\n]{0,40}(?:stable|fine|works?|no more|gone|"
                r"helps?|fix\w*|solv\w*)",
            ),
            sure=0.9,
        ),
        Sign(
            id="vgpu_unlicensed",
            said=words(
                r"\bUnlicensed \(?(?:un)?restricted",
                r"gridd\b[^\n]{0,80}\bUnlicensed\b",
                r"No licen[sc]e (?:is )?(?:acquired|available|found)[^\n]{0,60}(?:vgpu|grid|virtual)",
            ),
            sure=0.92,
        ),
        Sign(
            id="nvidia_uvm_missing",
            said=words(
                r"(?:could not|can ?not|can't|fail\w* to|unable to) load (?:the )?(?:nvidia )?UVM(?: kernel)?(?: "
                r"module| "
                r"driver)",
                r"nvidia-container-cli: initialization error: cuda error: unknown error",
                r"nvidia-modprobe (?:is )?(?:not installed|missing|not found)",
            ),
            unless=words(r"\bsuspend\w*", r"\bhibernat\w*", r"Module nvidia(?:-current)? not found"),
            sure=0.86,
        ),
        # CUDA's unknown error in the words of programs that are not torch
        *(
            Sign(
                id=cause,
                said=words(
                    r"failed to initiali[sz]e CUDA: unknown error",
                    r"\bcuda\w*\b[^\n]{0,40}\binit(?:iali[sz]ation)? failure: 999",
                    r"cuda[^\n]{0,30}\b(?:return\w*|status|code)\W{1,3}999\b",
                ),
                unless=words("/dev/nvidia-uvm", "No such device", "fallen off"),
                sure=sure,
            )
            for cause, sure in (("uvm_broken_after_suspend", 0.6), ("nvidia_uvm_missing", 0.45))
        ),
        Sign(
            id="secure_boot_blocks_module",
            said=words(
                r"not signed by a key (?:that is |which is )?trusted",
                r"\b(?:MOK|machine owner key)\b[^.\n]{0,60}(?:enrol\w*|screen|manag\w+|password|skip\w*|import\w*)",
                r"(?:enrol\w*|import\w*) (?:the |a |an |your |my )?(?:MOK\b|(?:signing )?key)",
                r"UEFI secure ?boot (?:is |was )?(?:active|on|enabled)",
            ),
            also=words(
                r"nvidia\b[^.\n]{0,60}(?:not|n't|fail\w*|can ?not|reject\w*|refus\w*)",
                r"module (?:is )?not loaded",
                r"kernel module failed to load",
                r"(?:can ?not|couldn.t|can't) (?:communicate|talk)",
            ),
            unless=words(_WORKS, r"SecureBoot disabled|secure ?boot (?:is |was )?(?:disabled|off)\b"),
            sure=0.88,
        ),
        Sign(
            id="driver_missing_or_not_loaded",
            said=words(
                r"kernel driver does not appear to be running on this host",
                r"/proc/driver/nvidia/version (?:does not exist|not found)|/proc/driver/nvidia/version: No such file",
                r"CUDA driver library cannot be found",
                r"\bno (?:system )?CUDA driver (?:was )?(?:found|detected|available)",
                r"\bCUDA driver (?:was |is )?not (?:found|detected|installed)",
                r"could not open the device file /dev/nvidia\w* \(?No such",
                r"nvcuda\.dll\b[^\n]{0,60}(?:not (?:be )?found|missing|can ?not|could not|fail\w*)",
                r"(?:could not|can ?not|couldn't|can't|unable to|fail\w* to) (?:find|load|"
                r"locate)[^\n]{0,20}\bnvcuda\.dll",
                r"(?:could not|can ?not|couldn.t|can.t|unable to|fail\w* to) (?:find|detect|locate) (?:the |an? |any "
                r"|your )?"
                r"nvidia (?:gpu |graphics |kernel |display )?driver",
                r"Microsoft Basic (?:Display|Render) (?:Adapter|Driver)",
            ),
            unless=words(_WORKS, r"Is CUDA available: (?:True|Yes)", r"if you do not have a GPU set up"),
            sure=0.56,
        ),
        Sign(
            id="driver_library_mismatch",
            said=words(
                r"kernel version [\d.]+ does not match DSO version [\d.]+",
                r"does not match DSO version[^\n]{0,40}cannot find working devices",
            ),
            sure=0.93,
        ),
        Sign(
            id="driver_too_old",
            said=words(
                r"Unsupported \.version \d+\.\d+; current version is",
                r"cudaErrorCallRequiresNewerDriver",
                r"API call is not supported in the installed CUDA driver",
                r"unsupported CUDA version: driver [\d.]+ < image",
                r"\binit(?:iali[sz]ation)? failure(?: with error)?: 35\b",
                r"driver[^\n]{0,40}(?:older|lower) than (?:the )?(?:minimum|required)",
            ),
            sure=0.9,
        ),
        # a kernel image that is newer than the driver's loader
        Sign(id="driver_too_old", said=words(r"Triton Error \[CUDA\]: device kernel image is invalid"), sure=0.6),
        Sign(
            id="container_toolkit_missing",
            said=words(r"nvidia-container-cli: mount error: failed to add device rules"),
            sure=0.9,
        ),
        Sign(
            id="container_toolkit_missing",
            said=words(r"\b(?:nvidia|amd)\.com/gpu\W{1,12}0\b"),
            also=words(r"\bnodes?\b", r"\bcapacity\b|\ballocatable\b"),
            unless=words(r"\bMIG\b", "Insufficient (?:nvidia|amd)", "version mismatch", "Driver Not Loaded"),
            sure=0.62,
        ),
        Sign(
            id="driver_missing_or_not_loaded",
            said=words(r"nvidia-container-cli: initialization error: driver (?:rpc )?error"),
            unless=words(r"\bWSL\b", "microsoft-standard"),
            sure=0.54,
        ),
        Sign(
            id="gpu_ecc_error",
            said=words(
                r"Double Bit ECC ?: ?[1-9]",
                r"VOLATILE_DBE_DETECTED|DBE_PENDING_PAGE_RETIREMENTS|UNCONTAINED_ERROR",
                r"uncorrectable (?:hardware )?errors? detected in \w+ block",
            ),
            sure=0.9,
        ),
        Sign(
            id="kernel_launch_timeout",
            said=words(
                r"launch exceeded timeout|exceeded timeout in CUDA queue",
                r"\bcode ?= ?702\b|\berror(?: code)?\W{1,3}702\b",
                r"\bnvlddmkm\b[^\n]{0,60}(?:stopped responding|recovered|reset|event id)",
                r"\bTdr(?:Delay|Level|DdiDelay)\b",
            ),
            sure=0.82,
        ),
        Sign(
            id="mps_daemon_unreachable",
            said=words(
                r"(?:can ?not|could not|unable to|fail\w* to) (?:find|locate|reach|start|attach to|contact) (?:the "
                r")?MPS "
                r"(?:control|server|daemon)",
                r"Receive command failed, assuming client exit",
                r"Server is not ready, push client to pending list.{0,400}(?:fail\w*|error|exited with|assuming)",
                r"\bMPS (?:client|server)\b[^\n]{0,60}(?:exited with|died|timed? ?out|lost|cannot attach)",
            ),
            unless=words(r"\bmac ?os\b|\bapple\b|torch\.backends\.mps"),
            sure=0.82,
        ),
        Sign(id="compute_mode_exclusive", said=words(r"CUDA_ERROR_DEVICE_UNAVAILABLE"), sure=0.8),
        Sign(
            id="illegal_memory_access",
            said=words(
                r"Memory access fault by GPU node",
                r"Invalid __(?:global|shared|local)__ (?:read|write|atomic) of size",
                r"CUDA_EXCEPTION_\d+, (?:Warp|Lane|Device) Illegal",
            ),
            sure=0.78,
        ),
        Sign(
            id="gpu_fallen_off_bus",
            said=words(r"pciehp: Slot\(\S+\): (?:Link Down|Card not present)"),
            also=_KERNEL_SIDE,
            sure=0.85,
        ),
    ),
)
