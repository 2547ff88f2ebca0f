"""Links between GPUs: `nvidia-smi nvlink -s` and `-e`, `dcgmi nvlink -s` and `-e`, `nvidia-smi topo -m`."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.facts.model import DeviceTest
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import Line
from gpudoc.patterns import Pattern

COUNTERS = "NVLink counters"
_GPU = Pattern(r"^\W{0,4}GPU (\d{1,3}): .{2,}")
_LINK = Pattern(r"^\W{0,4}Link (\d{1,2}): (?:([\d.]+) GB/s|<?(inactive)>?)\s*$")
_ALL_DOWN = Pattern(r"(?i)Unable to retrieve NVLink information as all links are inactive")
_COUNT = Pattern(r"^\W{0,4}Link (\d{1,2}): ([A-Z][\w ]*?) Errors?: (\d+)\s*$")
_DCGM_HEAD = Pattern(r"\|\s*NVLINK Error Counts")
_DCGM_GPU = Pattern(r"^\W{0,3}\|\s*GPU (\d{1,3})\s*\|\s*$")
_DCGM_LINK = Pattern(r"^\W{0,3}\|\s*(?:Link (\d{1,2})|Error Detail)\s*\|")
_DCGM_COUNT = Pattern(r"^\W{0,3}\|\s*->\s*([A-Z][\w ]*?) Error\s*\|\s*(\d+)\s*\|")
_DCGM_ID = Pattern(r"^\s*gpuId (\d{1,3}):\s*$")
_DCGM_STATES = Pattern(r"^\s*[UDX_](?: [UDX_]){3,}\s*$")
_MATRIX_ROW = Pattern(r"^\W{0,4}GPU(\d{1,3})\s+((?:(?:X|NV\d+|SYS|NODE|PHB|PXB|PIX|PSB)\b\s*){2,})")
# counted since the driver was loaded: DCGM's limits for a fault are one replay or recovery, and a hundred checksums
# (https://github.com/NVIDIA/DCGM, common/DcgmGPUHardwareLimits.h)
_ONE_IS_MUCH, _MANY_CHECKSUMS = ("replay", "recovery"), 100
# a GPU behind switches reaches each other GPU by all its links: six on a V100, twelve or eighteen on its successors
_LEAST_OF_A_SWITCH = 6
_NEAR = 8


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put into `gather` the number of active and of all links of each GPU, and counters that show a bad link."""
    state = _State()
    for line in lines:
        text = line.text
        if not line.follows(state.last, within=_NEAR):
            state.gpu = None
        state.last = line
        if "ink" in text or "GPU" in text:
            _read_nvidia_smi(line, gather, state)
        if "|" in text or "gpuId" in text or _DCGM_STATES.match(text):
            _read_dcgm(line, gather, state)
        row = _MATRIX_ROW.match(text) if "GPU" in text else None
        if row:
            state.matrix[int(row[1])] = (row[2].split(), line)
    for gpu, (active, total, line) in state.links.items():
        gather.recognise("nvlink")
        gather.put_gpu(gpu, line, nvlink_active=active, nvlink_total=total)
    _put_matrix(state, gather)


class _State:
    """The GPU and the link that the next lines belong to; active and known links of each GPU; matrix rows."""

    def __init__(self) -> None:
        self.gpu: int | None = None
        self.link = ""
        self.dcgm = False
        self.last: Line | None = None
        self.links: dict[int, tuple[int, int, Line]] = {}
        self.matrix: dict[int, tuple[list[str], Line]] = {}

    def count(self, active: int, total: int, line: Line) -> None:
        if self.gpu is not None:
            before = self.links.get(self.gpu, (0, 0, line))
            self.links[self.gpu] = (before[0] + active, before[1] + total, before[2])


def _read_nvidia_smi(line: Line, gather: Gather, state: _State) -> None:
    gpu = _GPU.match(line.text)
    if gpu:
        state.gpu = int(gpu[1])
        return
    link = _LINK.match(line.text)
    if link:
        state.count(int(link[3] is None), 1, line)
    elif _ALL_DOWN.search(line.text) and state.gpu is not None:
        state.links.setdefault(state.gpu, (0, 0, line))
    elif count := _COUNT.match(line.text):
        _put_count(count[2], int(count[3]), f"link {count[1]}", line, gather, state)


def _read_dcgm(line: Line, gather: Gather, state: _State) -> None:
    text = line.text
    if _DCGM_HEAD.search(text):
        state.dcgm, state.gpu = True, None
    elif gpu := _DCGM_ID.match(text):
        state.gpu = int(gpu[1])
    elif _DCGM_STATES.match(text):
        state.count(text.count("U"), text.count("U") + text.count("D"), line)
        state.gpu = None
    elif state.dcgm and (gpu := _DCGM_GPU.match(text)):
        state.gpu = int(gpu[1])
    elif state.dcgm and (link := _DCGM_LINK.match(text)):
        state.link = f"link {link[1]}" if link[1] else "all links"
    elif state.dcgm and (count := _DCGM_COUNT.match(text)):
        _put_count(count[1], int(count[2]), state.link or "a link", line, gather, state)


def _put_count(kind: str, number: int, link: str, line: Line, gather: Gather, state: _State) -> None:
    gather.recognise("nvlink")
    if state.gpu is None:
        return
    much = number > 0 and (kind.lower() in _ONE_IS_MUCH or number >= _MANY_CHECKSUMS)
    gather.put_test(
        DeviceTest(
            tool=COUNTERS,
            name=f"{link} {kind.lower()}",
            result="warn" if much else "pass",
            gpu=state.gpu,
            message=f"{number} errors since the driver was loaded",
            origin=line.origin,
        )
    )


def _put_matrix(state: _State, gather: Gather) -> None:
    """Put the matrix's links: with switches, a cell shows all links of a GPU; without, its links to that other GPU."""
    rows = {gpu: cells for gpu, (cells, _) in state.matrix.items() if len(cells) >= len(state.matrix) > 1}
    if not rows:
        return
    gather.recognise("gpu_topology")
    for gpu, cells in rows.items():
        links = [int(cell[2:]) for cell in cells[: len(rows)] if Pattern(r"NV\d").match(cell)]
        if not links and not any(Pattern(r"\bNV\d").search(" ".join(other)) for other in rows.values()):
            continue
        switched = len(set(links)) == 1 and links[0] >= _LEAST_OF_A_SWITCH
        active = links[0] if switched else sum(links)
        gather.put_gpu(gpu, state.matrix[gpu][1], nvlink_active=active)
