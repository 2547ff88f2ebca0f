"""`dcgmi diag` (table and JSON) and `dcgmi health`: the results of DCGM's tests for each GPU.

The shapes are those of DCGM 2 to 4 (https://github.com/NVIDIA/DCGM, dcgmi/Diag.cpp and dcgmi/Health.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpudoc.facts.model import Absent, DeviceTest, Fact
from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import Line
from gpudoc.patterns import Pattern

DIAG, HEALTH = "dcgmi diag", "dcgmi health"
NO_GPU_NAMED = Absent("the tool does not name the GPU")
_RESULTS = {
    "pass": "pass", "fail": "fail", "warn": "warn", "skip": "skip", "not run": "skip",
    "healthy": "pass", "warning": "warn", "failure": "fail", "internal error": "fail",
}  # fmt: skip
_HEAD = Pattern(r"\|\s*Diagnostic\s+\|\s*Result\b|-----\s+(?:Metadata|Deployment|Hardware|Integration|Stress)\s+-----")
# the names of tests: they identify a row if the head of its table was cut off
_TEST = Pattern(
    r"(?i)^(?:denylist|blacklist|nvml library|cuda (?:main|toolkit|runtime) library|permissions and os blocks|"
    r"persistence mode|environment variables|page retirement(?:/row remap)?|graphics processes|inforom|"
    r"fabric manager|software|pcie|gpu memory|memory|memtest|diagnostic|targeted[ _]stress|targeted[ _]power|"
    r"memory[ _]bandwidth|sm[ _]stress|pulse[ _]test|(?:cpu[ _])?eud(?: test)?|nvbandwidth|nccl[ _]tests|"
    r"context[ _]create)$"
)
_RESULT = Pattern(r"(?is)^(pass|fail|warn|skip|not run)(?:\s*-\s*(?:all|gpus?:?\s*(\d[\d, ]*))\b.*)?$")
_OF_GPU = Pattern(r"(?i)^GPU(\d{1,3}):\s*(pass|fail|warn|skip|not run)\b")
_WARNING = Pattern(r"(?i)^Warning(?::\s*GPU(\d{1,3}))?$")
_GPU_TOLD = Pattern(r"\bGPU\s?(\d{1,3})\b")
_FAILED_TO_RUN = Pattern(r"^Error: (?:Unable to complete diagnostic|Diagnostic could not be run).*")
_HEALTH_GPU = Pattern(r"^-> (\d{1,3})$")
_HEALTH_SYSTEM = Pattern(r"^-> ([A-Z][\w ]*?(?: system)?)$")
_QUOTED = Pattern(r'"(?:[^"\\]|\\.)*"?')
_FULL_CELL, _NEAR = 45, 8
_JSON = Pattern(
    r'"(?P<key>category|name|entity_group|entity_id|gpu_ids?|status|warnings?|runtime_error|test_summary|'
    r'Driver Version Detected)"\s*:\s*(?:"(?P<text>(?:[^"\\]|\\.)*)"|(?P<number>\d+))?'
)
_JSON_HEALTH = Pattern(r'"(?P<name>[\w ]+)"\s*:\s*(?:\{|"(?P<text>[^"]*)")|"(?P<row>[^"]{3,})",?\s*$')


@dataclass(slots=True)
class _State:
    """The reader's position: the report, and the test and GPU that the next rows belong to."""

    report: str = ""
    name: str = ""
    group: str = ""
    gpu: Fact[int] = NO_GPU_NAMED
    last: Line | None = None
    chunk: int = 0
    tests: list[DeviceTest] = field(default_factory=list)

    def add(self, tool: str, result: str, gpu: Fact[int], line: Line) -> None:
        one = DeviceTest(tool=tool, name=self.name, result=_RESULTS[result.lower()], gpu=gpu, origin=line.origin)
        self.tests.append(one)
        self.chunk = 0

    def say(self, text: str, gpu: Fact[int] = NO_GPU_NAMED) -> None:
        """Extend the message of the last result, or of the last result for `gpu` if a GPU is named."""
        place = next(
            (i for i in reversed(range(len(self.tests))) if isinstance(gpu, Absent) or self.tests[i].gpu == gpu), None
        )
        if place is None or not text:
            return
        # diag cuts a message after a fixed number of characters, in the middle of a word; health wraps it
        cut = self.chunk >= _FULL_CELL and self.tests[place].tool == DIAG
        joint = "" if cut or not self.tests[place].message else " "
        if joint:
            text = text.lstrip()
        self.tests[place] = replace(self.tests[place], message=(self.tests[place].message + joint + text)[:400])
        self.chunk = len(text)


def read(lines: Sequence[Line], gather: Gather) -> None:
    """Put each result of DCGM's tests into `gather`, and the driver that the report names."""
    state = _State()
    in_json = any("test_categories" in line.text or '"DCGM ' in line.text for line in lines)
    health_json = any('"Health Monitor Report"' in line.text for line in lines)
    gaps = 0
    for line in lines:
        if not line.follows(state.last, within=_NEAR):
            # lines in between are missing, so the test and GPU of the next lines are unknown
            state.gpu, state.name, state.report = NO_GPU_NAMED, "", ""
            gaps += 1
        state.last = line
        cells = _cells(line.text)
        if cells is not None:
            _read_row(cells, line, gather, state)
        elif in_json and '"' in line.text:
            _read_json(line, gather, state)
        elif health_json and '"' in line.text:
            _read_health_json(line, state)
        elif failed := _FAILED_TO_RUN.match(line.text):
            state.name = "the run itself"
            state.add(DIAG, "fail", NO_GPU_NAMED, line)
            state.say(failed[0])
    if in_json and not gaps and _open_braces(lines) > 0:
        state.name = "the report itself"
        state.add(DIAG, "fail", NO_GPU_NAMED, lines[-1])
        state.say("it is cut off before its end")
    _put(state, gather)


def _open_braces(lines: Sequence[Line]) -> int:
    """The number of unclosed braces in the JSON; braces inside its strings do not count."""
    bare = (_QUOTED.sub("", line.text) for line in lines)
    return sum(text.count("{") - text.count("}") for text in bare)


def _put(state: _State, gather: Gather) -> None:
    named = {(t.tool, t.name, t.result) for t in state.tests if not isinstance(t.gpu, Absent)}
    for test in state.tests:
        # the result of a whole test adds nothing to the result of the GPU that decided it
        if isinstance(test.gpu, Absent) and (test.tool, test.name, test.result) in named:
            continue
        gather.recognise(test.tool.replace(" ", "_"))
        gather.put_test(test)


def _cells(text: str) -> tuple[str, str] | None:
    bare = text.strip()
    if not bare.startswith("|") or bare.count("|") != 3 or not bare.endswith("|"):
        # the title of the health report spans both columns
        return ("Health Monitor Report", "") if "| Health Monitor Report" in bare else None
    _, left, right, _ = bare.split("|")
    # the rest of a message begins with the blank at which the message was cut
    return left.strip(), right.removeprefix(" ").rstrip()


def _read_row(cells: tuple[str, str], line: Line, gather: Gather, state: _State) -> None:
    name, said = cells
    if _HEAD.search(line.text):
        state.report, state.name = DIAG, ""
    elif name == "Health Monitor Report" or name == "Overall Health":
        state.report = HEALTH
        state.name = "overall health"
        if said.lower() in _RESULTS:
            state.add(HEALTH, said, NO_GPU_NAMED, line)
    elif name == "Driver Version Detected" and Pattern(r"\d{3}\.[\d.]+$").match(said):
        state.report = DIAG
        gather.put("driver.module_version", said, line)
    elif state.report == HEALTH:
        _read_health_row(name, said, line, state)
    else:
        _read_diag_row(name, said, line, state)


def _read_diag_row(name: str, said: str, line: Line, state: _State) -> None:
    result, of_gpu, warning = _RESULT.match(said), _OF_GPU.match(said), _WARNING.match(name)
    if warning:
        told = warning[1] or (number[1] if (number := _GPU_TOLD.search(said)) else None)
        state.say(said, int(told) if told else NO_GPU_NAMED)
    elif result and (name or state.name) and (state.report == DIAG or _TEST.match(name)):
        state.name = name.replace("_", " ").lower() or state.name
        numbers: list[Fact[int]] = [int(n) for n in Pattern(r"\d+").findall(result[2] or "")]
        for gpu in numbers or [NO_GPU_NAMED]:
            state.add(DIAG, result[1], gpu, line)
    elif of_gpu and state.name:
        state.add(DIAG, of_gpu[2], int(of_gpu[1]), line)
    elif not name and state.chunk:
        state.say(said)


def _read_health_row(name: str, said: str, line: Line, state: _State) -> None:
    gpu = _HEALTH_GPU.match(name)
    system = _HEALTH_SYSTEM.match(name)
    if gpu:
        number = int(gpu[1])
        state.gpu = number if state.group.lower() == "gpu" else Absent(f"it is {state.group} {number}")
    elif system and said.lower() in _RESULTS:
        state.name = system[1].lower()
        state.add(HEALTH, said, state.gpu, line)
    elif not name and said:
        state.say(said)
    elif name and not name.startswith("->"):
        state.group = name


def _read_json(line: Line, gather: Gather, state: _State) -> None:
    for found in _JSON.finditer(line.text):
        key, text = found["key"], (found["text"] or "").replace('\\"', '"')
        if key == "name":
            state.name, state.gpu = text.replace("_", " ").lower(), NO_GPU_NAMED
        elif key in ("entity_group", "test_summary", "category"):
            state.group, state.gpu = text, NO_GPU_NAMED
        elif key in ("entity_id", "gpu_id", "gpu_ids"):
            told = found["number"] or text
            is_gpu = key != "entity_id" or state.group in ("GPU", "")
            state.gpu = int(told) if told.isdecimal() and is_gpu else NO_GPU_NAMED
        elif key == "status" and state.name and text.lower() in _RESULTS:
            state.add(DIAG, text, state.gpu, line)
        elif key in ("warning", "warnings") and state.tests:
            state.say(text)
        elif key == "runtime_error":
            state.name = "the run itself"
            state.add(DIAG, "fail", NO_GPU_NAMED, line)
            state.say(text)
        elif key == "Driver Version Detected" and text:
            gather.put("driver.module_version", text, line)


def _read_health_json(line: Line, state: _State) -> None:
    for found in _JSON_HEALTH.finditer(line.text):
        name, text = found["name"], found["text"]
        if name == "value" and text is not None and state.name and text.lower() in _RESULTS:
            state.add(HEALTH, text, state.gpu, line)
            state.name = ""
        elif name == "Overall Health":
            state.name, state.gpu = "overall health", NO_GPU_NAMED
        elif name is not None and name.isdecimal():
            state.gpu = int(name)
        elif name is not None and name.endswith((" system", "Driver")):
            state.name = name.lower()
        elif found["row"] and state.tests and found["row"] != "Health Monitor Report":
            state.say(found["row"])
