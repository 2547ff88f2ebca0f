"""Facts that logs, sessions and prose mention in passing: versions, capabilities, is_available, variables."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoc.facts.readers.gather import Gather
from gpudoc.facts.readers.model import CleanText, Line
from gpudoc.patterns import Pattern

_TORCH = Pattern(
    r"(?i)(?<![\w./-])(?:py)?torch(?:\s*version|"
    r"\.__version__)?[\s:=\"'(-]{1,4}v?(\d\.\d{1,2}(?:\.\d+)?[\w.]*(?:\+[\w.]+)?)(?![\w])"
)
_TORCH_REQUIRED = Pattern(
    r"(?i)requires?\b|require[sd]? torch|>=|<=|~=|depends|no matching|could not find|collecting|cached"
)
_WITH_CUDA = Pattern(
    r"(?i)\btorch\D{0,12}\d\.\d[\w.+]{0,40}\s*(?:[,;/(]\s*)?(?:with\s+|for\s+)?(?:cuda|cu)\s*-?(\d{2})\.?(\d)\b"
)
_DRIVER = Pattern(
    r"(?i)\b(?:nvidia[ -]?)?driver(?:\s+version)?\s*(?:(?:is|:|=)\s*)?v?(\d{3}(?:\.\d{2,3}){0,2})\b"
    r"(?!\s*(?:or|and)\s+(?:newer|later))"
)
_NEEDS = Pattern(r"(?i)\bneed|requir|at least|minimum|>=|or (?:newer|later|higher)")
_TOOLKIT = Pattern(r"(?i)\b(?:cudatoolkit|pytorch-cuda|cuda-runtime)[\s=:(]{1,3}(?:version\s+)?v?(\d{1,2})\.(\d)")
_VERSION_CALL = Pattern(r"(?i)torch\.__version__|torch version")
_BARE_VERSION = Pattern(r"^\W{0,4}['\"]?(\d\.\d{1,2}\.\d[\w.]*(?:\+[\w.]+)?)['\"]?\s*$")
# what a call of both prints: ('2.3.1+cpu', False)
_PAIR = Pattern(r"^\W{0,6}(\d\.\d{1,2}\.\d[\w.]*(?:\+[\w.]+)?)['\"]?[,\s]\s?(True|False)\W*$")
_CUDA_CALL = Pattern(r"torch\.version\.cuda")
_LOCAL = Pattern(r"(?<![\w./-])([12]\.\d{1,2}\.\d+\+(?:cpu|cu\d{2,3}|rocm[\d.]+))(?![\w])")
_OTHER_PACKAGE = Pattern(r"(?i)torch(?:vision|audio|text)")
_BARE_CUDA = Pattern(r"^\W{0,4}['\"]?(\d{1,2})\.(\d)['\"]?\s*$")
_AVAILABLE = Pattern(
    r"(?i)(?:torch\.cuda\.is_available\(\)|is_available\(\)|\bcuda[ _](?:is[ _])?available)[\s)]*"
    r"(?:(?:[:=#>-]|is|always|returns?|returned|gives|→|为|是|返回)+\s*)?(?:always\s*)?['\"`(]*(true|false|yes|no)\b"
)
_AVAILABLE_CALL = Pattern(r"torch\.cuda\.is_available\(\)")
_BARE_BOOL = Pattern(r"^\W{0,4}(?:Out\[\d+\]:\s*)?(True|False)\W*$")
_NOT_COMPATIBLE = Pattern(
    r"(?i)(?P<name>[A-Z][\w .+/-]{2,50}?)\s+with\s+CUDA\s+capability\s+sm_(?P<cc>\d{2,3})a?\s+is\s+not\s+compatible"
)
_SUPPORTS = Pattern(r"(?i)supports\s+(?:CUDA\s+)?capabilities\s+((?:(?:sm|compute)_\d+a?[\s,]*)+)")
_TOO_OLD = Pattern(
    r"(?i)Found\s+GPU\s?(\d+)\s+(\S.{1,59}?)\s+which\s+is\s+of\s+(?:cuda|"
    r"compute)\s+capability\s+(?:\(CC\)\s+)?(\d{1,2})\.(\d)"
)
_ARCH_LIST = Pattern(r"get_arch_list\(\)[\s:>=]*\[([^\]]{2,300})\]|\[((?:\s*['\"](?:sm|compute|gfx)\w+['\"],?)+)\s*\]")
_CAPABILITY = Pattern(
    r"(?i)(?:get_device_capability\([^)]{0,80}\)|compute capability|capability)[\s:=>]*\(?(\d{1,2})\s*[.,]\s*(\d)\)?"
)
_EXPORT = Pattern(
    r"(?:^|[\s;$\"'`(])(?:export\s+|set\s+|ENV\s+|-e\s+|\$env:)?"
    r"((?:CUDA|HIP|NVIDIA|ROCR|NCCL|GLOO|LD|PYTORCH|OMP|MKL)_[A-Z][A-Z_0-9]*)\s?=\s?(\"[^\"]*\"|'[^']*'|[^\s;&|]*)"
)
# a mask in a compose file, a pod or JSON: a list of numbers, a UUID or a word that stands for all or none
_MASK = Pattern(
    r"(?:^|[\s\"'{,-])((?:CUDA|HIP|ROCR)_VISIBLE_DEVICES)[\"']?\s*:\s+[\"']?"
    r"((?:-?\d+(?:\s*,\s*-?\d+)*|all|none|void|(?:GPU|MIG)-[\w/-]+)(?=[\"'\s,}]|$)|(?<=[\"'])(?=[\"']))"
)
_OS_ENVIRON = Pattern(r"os\.environ\[\s*['\"]([A-Z][A-Z_0-9]+)['\"]\s*\]\s*=\s*['\"]([^'\"]*)['\"]")
_CARD = Pattern(
    r"(?<![\w])((?:NVIDIA )?(?:GeForce )?(?:RTX|GTX)\s?(?:PRO |A)?\d{3,4}(?:\s?(?:Ti|SUPER|Laptop GPU|Ada|Max-Q|D))*"
    r"|(?:NVIDIA )?(?:Tesla )?(?:K20[cmsX]?|K40[cmst]?|K80|M40|M60|P4|P40|P100|V100|T4|A10G?|A16|A30|A40|A100|"
    r"A800|L4|L20"
    r"|L40S?|H20|H100|H200|H800|B100|B200|B300)(?:[ -](?:SXM\d|PCIE|PCIe|\d{2}GB))*|Quadro \w+|TITAN \w+|GB200|"
    r"GH200)(?!\w|\.\w)"
)
_WSL = Pattern(r"(?i)microsoft-standard|\bWSL\s?2?\b|/usr/lib/wsl")
_JETSON = Pattern(r"(?i)\bjetson\b|\btegra\b|\bjetpack\b|\bL4T\b")
_PYTHON = Pattern(r"(?i)\bpython[ -=]{0,3}(?:version)?[ :=]{0,3}(3\.\d{1,2}(?:\.\d+)?)\b")


def read(text: CleanText, gather: Gather) -> None:
    """Put the mentioned facts into `gather`; the facts of whole reports were read before and take precedence."""
    _read_capabilities(text, gather)
    for place, line in enumerate(text.lines):
        _read_line(line, gather)
        _read_answer(text.lines, place, gather)
    python = text.find(_PYTHON)
    if python:
        gather.put("python.version", python[1], python.line)
    for pattern, fact in ((_WSL, "host.wsl"), (_JETSON, "host.jetson")):
        found = None if fact == "host.wsl" and "non-WSL environment" in text.flat else text.find(pattern)
        if found:
            gather.put(fact, True, found.line)
    if not gather.gpu_indices():
        _read_card(text, gather)


def _read_capabilities(text: CleanText, gather: Gather) -> None:
    for index, found in enumerate(text.find_all(_NOT_COMPATIBLE, most=16)):
        digits = found["cc"]
        name = " ".join(found["name"].split())
        gather.put_gpu(index, found.line, name=name, capability=(int(digits[:-1]), int(digits[-1])))
    for found in text.find_all(_TOO_OLD, most=16):
        capability = (int(found[3]), int(found[4]))
        gather.put_gpu(int(found[1]), found.line, name=" ".join(found[2].split()), capability=capability)
    supports = text.find(_SUPPORTS)
    if supports:
        archs = tuple(Pattern(r"(?:sm|compute)_\d+a?").findall(supports[1]))
        gather.put("torch.arch_list", archs, supports.line)
    listed = text.find(_ARCH_LIST)
    if listed:
        archs = tuple(Pattern(r"(?:sm|compute|gfx)\w+").findall(listed[1] or listed[2]))
        if archs:
            gather.put("torch.arch_list", archs, listed.line)


def _read_line(line: Line, gather: Gather) -> None:
    text = line.text
    lowered = text.lower()
    if "torch" in lowered and not _TORCH_REQUIRED.search(text):
        # a version with torch's own kind of suffix belongs to torch, wherever it stands in the sentence
        found = _TORCH.search(text) or (None if _OTHER_PACKAGE.search(text) else _LOCAL.search(text))
        if found:
            gather.put_torch(found[1], line)
        paired = _WITH_CUDA.search(text)
        if paired:
            gather.put("torch.cuda_version", (int(paired[1]), int(paired[2])), line)
            gather.put("torch.accelerator", "cuda", line)
    if "cuda" in lowered and (toolkit := _TOOLKIT.search(text)):
        # conda's torch is built for the toolkit package installed with it
        gather.put("torch.cuda_version", (int(toolkit[1]), int(toolkit[2])), line)
    if "driver" in lowered and not _NEEDS.search(text):
        found = _DRIVER.search(text)
        if found:
            gather.put("driver.module_version", found[1], line)
    if "available" in lowered:
        found = _AVAILABLE.search(text)
        if found:
            gather.put("torch.is_available", found[1].lower() in ("true", "yes"), line)
    for pattern, sign in ((_OS_ENVIRON, "environ"), (_EXPORT, "_")):
        for match in pattern.finditer(text) if sign in text and "=" in text else ():
            gather.put_environment(match[1], match[2].strip("\"'"), line)
    if "_visible_devices" in lowered and (mask := _MASK.search(text)):
        gather.put_environment(mask[1], mask[2], line)
    if "capability" in lowered and gather.gpu_indices():
        found = _CAPABILITY.search(text)
        if found and int(found[1]) < 15:
            gather.put_gpu(gather.gpu_indices()[0], line, capability=(int(found[1]), int(found[2])))


def _read_answer(lines: Sequence[Line], place: int, gather: Gather) -> None:
    """Read a call in an interactive session: its answer is on one of the next two lines."""
    text = lines[place].text
    if "torch" not in text:
        return
    for answer in lines[place + 1 : place + 3]:
        if _AVAILABLE_CALL.search(text) and (said := _BARE_BOOL.match(answer.text)):
            gather.put("torch.is_available", said[1] == "True", answer)
            return
        if _VERSION_CALL.search(text) and (said := _BARE_VERSION.match(answer.text)):
            gather.put_torch(said[1], answer)
            return
        if _VERSION_CALL.search(text) and (said := _PAIR.match(answer.text)):
            gather.put_torch(said[1], answer)
            if _AVAILABLE_CALL.search(text):
                gather.put("torch.is_available", said[2] == "True", answer)
            return
        if _CUDA_CALL.search(text) and (said := _BARE_CUDA.match(answer.text)):
            gather.put("torch.cuda_version", (int(said[1]), int(said[2])), answer)
            return
        if _CUDA_CALL.search(text) and answer.text.strip(" >'\"") == "None":
            gather.put("torch.accelerator", "none", answer)
            return


def _read_card(text: CleanText, gather: Gather) -> None:
    found = text.find(_CARD)
    if found:
        gather.put_gpu(0, found.line, name=" ".join(found[1].split()))
