"""The first line of a search, the same for a config and for a command: its result, or why it did not search."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from gpudoc.render.page import Badge, Number
from gpudoc.tune.model.gain import Gain, times
from gpudoc.tune.model.scaling import SpeedSpan
from gpudoc.tune.model.verdict import SearchVerdict
from gpudoc.tune.trial.deadline import option_for
from gpudoc.units import format_count, format_rate, format_seconds


def first_line(
    verdict: SearchVerdict,
    gain: Gain | None,
    *,
    default: str,
    told: str,
    command: Sequence[str],
    unit: str = "samples/s",
) -> str:
    """One sentence; `default` names the speed to beat, `told` follows a speed, `command` is the typed command."""
    match verdict.kind:
        case "faster" | "slower" if gain is not None and gain.ratio is not None:
            ratio = times(gain.ratio)
            speeds = f"{_rate(gain.chosen, unit)}{told}, {_middle(gain.default, unit)} before"
            if verdict.kind == "slower":
                return f"Slower than {default}, {ratio} its speed, because of the goal: {speeds}."
            return f"{ratio[0].upper()}{ratio[1:]} as fast as {default}: {speeds}."
        case "none_faster":
            lost = (
                "" if gain is None or gain.ratio is None else f"; the settings found reached {times(gain.ratio)} that"
            )
            speed = "" if gain is None or gain.default is None else f": {_rate(gain.default, unit)}{told}"
            rest = f" But {verdict.why}.{_longer(verdict, command)}" if verdict.why else ""
            return f"Tried {counted(verdict)}; none is faster than {default}{speed}{lost}.{rest}"
        case "not_compared":
            return (
                f"Not compared with {default}: tried {counted(verdict)}, but {verdict.why}.{_longer(verdict, command)}"
            )
        case _:
            return f"Not searched: {verdict.why}.{_longer(verdict, command)}"


def gain_badge(verdict: SearchVerdict, gain: Gain | None, default: str, *, asked: bool = True) -> Badge:
    """The verdict next to a page's title; `asked` says whether the search was for speed."""
    if asked and verdict.kind == "faster" and gain is not None and gain.ratio is not None:
        return Badge("good", f"{gain.ratio.middle:.2f} times {default}")
    said = {"slower": f"slower than {default}", "none_faster": "none of the settings tried is faster"}
    said |= {"not_searched": "not searched"}
    return Badge(
        "info", said.get(verdict.kind, f"not compared with {default}") if asked else f"not compared with {default}"
    )


def gain_numbers(verdict: SearchVerdict, gain: Gain | None, *, unit: str) -> Iterator[Number]:
    """The gain as the largest figure of a page; nothing if no gain is sure."""
    if verdict.kind != "faster" or gain is None or gain.ratio is None:
        return
    ratio = gain.ratio
    bounds = "each measured once" if gain.is_once else f"{ratio.low:.2f} to {ratio.high:.2f}"
    speeds = f"{_middle(gain.chosen, unit)}, {_middle(gain.default, unit)} before"
    yield Number("gain", f"{ratio.middle:.2f}", "times the speed", f"{bounds}; {speeds}", is_main=True)


def counted(verdict: SearchVerdict) -> str:
    """'6 levers, 2 batches and 1 loader setting'."""
    parts = [_count(count, what) for count, what in verdict.tried]
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _count(count: int, what: str) -> str:
    return f"{count} batches" if what == "batch" and count != 1 else format_count(count, what)


def _longer(verdict: SearchVerdict, command: Sequence[str]) -> str:
    if verdict.needed_s is None:
        return ""
    # shlex would quote the placeholder of a batch
    typed = shlex.join(with_budget(command, verdict.needed_s)).replace("'{batch}'", "{batch}")
    return f" A search takes about {format_seconds(verdict.needed_s)}: {typed}"


def with_budget(command: Sequence[str], seconds: float) -> tuple[str, ...]:
    """The command with a budget of at least that many seconds, inserted before `--`."""
    words = list(command)
    end = words.index("--") if "--" in words else len(words)
    return (*words[:end], *option_for(seconds).split(), *words[end:])


def _middle(speed: SpeedSpan | None, unit: str) -> str:
    return "" if speed is None else format_rate(speed.middle, unit)


def _rate(speed: SpeedSpan | None, unit: str) -> str:
    """'4,210 samples/s ±3 %'."""
    if speed is None:
        return ""
    doubt = max(speed.high - speed.middle, speed.middle - speed.low) / speed.middle
    return _middle(speed, unit) + (f" ±{100 * doubt:.0f} %" if doubt else "")
