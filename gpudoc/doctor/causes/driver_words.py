"""What other programs than torch print when the driver, its firmware or its services fail."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import quote, text_finder
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


FINDERS = (text_finder("driver_too_old", _find_missing_function),)
