"""A document in few words: the parts that an agent acts on, in at most 2 KB, and the names of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpudoc.control_characters import to_json

MOST_BYTES = 2000
# the most important parts of doctor's and tune's documents; figures of trials and facts of the machine need `full`
_KEPT = (
    "schema", "verdict", "findings", "unexplained", "deciding_facts", "answers", "causes", "targets", "command", "gain",
    "answer", "look", "loaders", "settings", "change", "line", "profile", "accepted", "diff", "unequal",
)  # fmt: skip
_OF_FINDING = ("id", "severity", "confidence", "title", "evidence", "fix", "is_guess")
_LONGEST, _FEW = 240, 3


def shorten(document: Mapping[str, object], most: int = MOST_BYTES) -> dict[str, object]:
    """The document within `most` bytes as JSON; `left_out` names what `full` would add."""
    kept: dict[str, object] = {}
    left_out = [name for name in document if name not in _KEPT]
    for name in _KEPT:
        if document.get(name) in (None, [], {}, ""):
            continue
        value = next((one for one in _shorter(name, document[name]) if _size({**kept, name: one}) <= most - 200), None)
        if value is None:
            left_out.append(name)
        else:
            kept[name] = value
    return {**kept, "left_out": left_out[:20]} if left_out else kept


def _shorter(name: str, value: object) -> Iterator[object]:
    """The value in ever fewer words; a diff is never shortened."""
    if name == "diff":
        yield value
        return
    plain = [_finding(one) for one in value] if name == "findings" and isinstance(value, list) else value
    for few in (_FEW, 2, 1):
        yield _cut(plain, _LONGEST if few > 1 else _LONGEST // 2, few)


def _finding(value: object) -> object:
    return {name: value[name] for name in _OF_FINDING if name in value} if isinstance(value, Mapping) else value


def _cut(value: object, longest: int, few: int) -> object:
    match value:
        case str():
            return value if len(value) <= longest else value[: longest - 1] + "…"
        case Mapping():
            # a step's command is never cut
            return {
                key: item if key == "run" else _cut(item, longest, few)
                for key, item in value.items()
                if item not in (None, [], {}, "", False)
            }
        case list():
            return [_cut(item, longest, few) for item in value[:few]]
    return value


def _size(value: Mapping[str, object]) -> int:
    return len(to_json(value, indent=None).encode("utf-8"))
