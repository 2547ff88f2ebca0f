"""`nvidia-container-cli info`: the driver and the GPUs that a container would be given."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.facts.readers.gather import Gather, stated, version_pair
from gpudoc.facts.readers.model import Line
from gpudoc.patterns import Pattern

_FIELD = Pattern(
    r"^\W{0,4}(NVRM version|CUDA version|Device Index|Model|GPU UUID|Bus Location|Architecture):"
    r"\s{2,}(\S(?:.*?\S)?)\s*$"
)
_VERSION = Pattern(r"^\d{3}\.[\d.]+$")


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put what nvidia-container-cli lists into `gather`."""
    index = -1
    for line in lines:
        found = _FIELD.match(line.text) if ":  " in line.text else None
        value = stated(found[2]) if found else None
        if found is None or value is None or value == "(null)":
            continue
        gather.recognise("nvidia_container_cli")
        match found[1]:
            case "NVRM version" if _VERSION.match(value):
                gather.put("driver.module_version", value, line)
            case "CUDA version" if pair := version_pair(value):
                gather.put("driver.cuda_version", pair, line)
            case "Device Index" if value.isdecimal():
                index = int(value)
            case "Model" if index >= 0:
                gather.put_gpu(index, line, name=value)
            case "GPU UUID" if index >= 0:
                gather.put_gpu(index, line, uuid=value)
            case "Bus Location" if index >= 0:
                gather.put_gpu(index, line, pci_address=value)
            case "Architecture" if index >= 0 and (pair := version_pair(value)):
                gather.put_gpu(index, line, capability=pair)
            case _:
                pass
