"""What `gpudoc fix` says of scripts whose flaw is known, and whether its proof holds when it is repeated.

    python campaigns/fix.py [--only NAME,...] [--rerun] [--threads 1] [--record FILE]
                            [--results FILE [--resume] [--budget SECONDS]]

The scripts are campaigns/fix_scripts/*.py, with labels.yaml: some have one flaw, some have none, and in some the
tempting change is wrong. Each is put into a folder that holds nothing else, and `gpudoc fix --json` runs there with
its usual budget. Counted is: the cause is named at its line, the change is offered, what is offered is not another
training, scripts without a flaw and traps are left alone, and the folder is what it was, byte for byte. --rerun repeats
the proof without gpudoc: the script as it is and the patched one run in turns, to their end, then for the steps of the
proof; their printed numbers must be equal, and the gain has to lie in the printed interval. A script takes up to five
minutes, as much again with --rerun.

`cause` is right where the labelled rewrite was tried within three lines of a labelled line, or where fix names what no
rewrite mends: a loop (`loop: true`) by its many short passes, padding (`padding: true`) at the line that gives it to
the model; `seen` where the rewrite was refused there, with a reason.
Exit code 1 when a wrong change was offered or a folder was touched. The pure part is tested in tests/fix/test_table.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import re
import resource
import runpy
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "benchmarks"))
from in_parts import add_options, open_parts

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "campaigns" / "fix_scripts"
NEAR, WARM = 3, 3
DURATION = re.compile(r"\d+(?:\.\d+)?\s*(?:s|sec|seconds|ms|min)\b|\d+(?:\.\d+)?\s*(?:it|samples|tok|steps)/s")
MOST_S = 900.0


def labels():
    import yaml

    return {row["script"]: row for row in yaml.safe_load((SCRIPTS / "labels.yaml").read_text())}


def digest(folder):
    """All names and bytes below a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(f"{path.relative_to(folder)}\0{path.is_dir()}\0".encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


def ask_fix(name, label, folder):
    """The document of fix, its exit code, seconds, and whether the folder is as it was."""
    shutil.copy(SCRIPTS / name, folder / name)
    command = [sys.executable, "-m", "gpudoc", "fix", "--json", *label.get("options", [])]
    command += ["--", pathlib.Path(sys.executable).name, name, *label.get("arguments", [])]
    before, began = digest(folder), time.monotonic()
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    seconds = round(time.monotonic() - began, 1)
    empty = {"accepted": [], "lost": [], "refused": [], "diff": "", "notes": []}
    try:
        document = {**empty, **json.loads(done.stdout)}
    except ValueError:
        document = {**empty, "notes": [done.stderr.strip()[-300:]]}
    if "message" in document:
        document["notes"] = [str(document["message"])]
    return {"code": done.returncode, "seconds": seconds, "untouched": digest(folder) == before, "document": document}


def run_timed(name, folder, arguments, *, limit, steps, environment=None):
    """One launch without gpudoc: the time of each optimizer step, the peak at each, what was printed, the exit code."""
    with tempfile.NamedTemporaryFile("r") as told:
        command = [sys.executable, __file__, "--timed", told.name, str(limit), str(steps), name, *arguments]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=MOST_S,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        events = [json.loads(line) for line in told.read().splitlines()]
    return {"events": events, "printed": done.stdout, "code": done.returncode, "error": done.stderr.strip()[-200:]}


def timed(out, limit, steps, words):
    """What runs in such a launch: the script as __main__, with a hook of torch behind each optimizer step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    events, file = [], pathlib.Path(out).open("w")  # noqa: SIM115

    def note(*_):
        events.append(1)
        file.write(f"[{time.perf_counter()}, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}]\n")
        if steps and len(events) >= steps:
            file.flush()
            sys.stdout.flush()
            os._exit(0)

    register_optimizer_step_post_hook(note)
    sys.argv, sys.path[0] = words, str(pathlib.Path.cwd())
    try:
        runpy.run_path(words[0], run_name="__main__")
    finally:
        file.flush()


def plain(printed):
    """The printed lines without durations."""
    return [DURATION.sub("#", line).rstrip() for line in printed.splitlines()]


def span_of(events, steps, first):
    """Seconds a step over the steps that the proof timed, those after the `first`, and the peak until then in bytes."""
    part = events[max(WARM, first) - 1 : WARM + steps]
    return (part[-1][0] - part[0][0]) / max(1, len(part) - 1), part[-1][1] * 1024


def repeat(name, label, document):
    """The proof again, without gpudoc, in two folders of its own."""
    arguments, limit = label.get("arguments", []), label.get("limit_bytes", 0)
    with tempfile.TemporaryDirectory() as place:
        folders = [pathlib.Path(place) / side for side in ("before", "after")]
        for folder in folders:
            folder.mkdir()
            shutil.copy(SCRIPTS / name, folder / name)
        patch = ["patch", "-p1", "--binary", "-s"]
        subprocess.run(patch, cwd=folders[1], input=document["diff"], text=True, check=True)
        # fix says with which variables the changed script has to be started
        needed = ({}, document.get("environment", {}))
        whole = [
            run_timed(name, folder, arguments, limit=limit, steps=0, environment=one)
            for folder, one in zip(folders, needed, strict=True)
        ]
        same = plain(whole[0]["printed"]) == plain(whole[1]["printed"])
        row = {"codes": [one["code"] for one in whole], "same_output": same, "error": whole[1]["error"]}
        if limit:
            return {**row, "steps_before": len(whole[0]["events"]), "steps_after": len(whole[1]["events"])}
        steps = min(max(one["steps"] for one in document["accepted"]), *(len(one["events"]) - WARM for one in whole))
        turned = [
            run_timed(name, folder, arguments, limit=0, steps=steps + WARM, environment=one)
            for folder, one in reversed(list(zip(folders, needed, strict=True)))
        ]
        shorter = turned[::-1]
    # a row of an earlier commit does not say it
    first = next((one.get("digested") or 0 for one in document["accepted"]), 0)
    spans = [[span_of(one["events"], steps, first) for one in sides] for sides in zip(whole, shorter, strict=True)]
    (old, new), (old_peaks, new_peaks) = ([[span[which] for span in side] for side in spans] for which in (0, 1))
    return {
        **row, "steps": steps, "gain": round(sum(old) / sum(new), 4), "low": round(min(old) / max(new), 4),
        "high": round(max(old) / min(new), 4), "peak_before": min(old_peaks), "peak_after": max(new_peaks),
    }  # fmt: skip


def is_at(change, label):
    """Whether a change or refusal is of a labelled rewrite, at a labelled line or near it."""
    lines = label.get("lines", [])
    return change["rewrite"] in label.get("rewrites", []) and any(abs(change["line"] - line) <= NEAR for line in lines)


def names_waste(document, label):
    """Whether the flaw is a loop or padding, and fix names one at a labelled line."""
    spans = [range(one["line"], one["last_line"] + 1) for one in document.get("loops", []) if label.get("loop")]
    spans += [range(one["line"], one["line"] + 1) for one in document.get("padding", []) if label.get("padding")]
    return any(line in span for span in spans for line in label["lines"])


def judge(row, label):
    """What is right of one answer."""
    document = row["document"]
    accepted, again = document["accepted"], row.get("rerun")
    right = [one for one in accepted if is_at(one, label)]
    forbidden = [one for one in label.get("must_not", []) if re.search(one, added(document["diff"]))]
    # what only rounds otherwise prints other last digits
    same = again is None or again["same_output"] or label.get("claim") == "rounding"
    differs = again is not None and (not same or any(again["codes"])) and not label.get("limit_bytes")
    dies = again is not None and bool(label.get("limit_bytes")) and again["codes"][1] != 0
    is_flaw = label["kind"] == "flaw"
    named = [one for one in document["refused"] if "gpudoc fix --allow" in one["reason"]]
    return {
        # without --allow the cause is named, with the command that tries it
        "cause": is_flaw
        and (any(is_at(one, label) for one in (*accepted, *document["lost"], *named)) or names_waste(document, label)),
        "seen": is_flaw and any(is_at(one, label) for one in document["refused"]),
        "patch": is_flaw and bool(right) and not forbidden and not differs and not dies,
        "alone": not accepted,
        "others": [one["rewrite"] for one in accepted if one not in right],
        "wrong": bool(accepted) and (bool(forbidden) or differs or dies),
        "why": why_missed(document, label) if is_flaw and not right else "",
    }


def added(diff):
    return "\n".join(line[1:] for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++"))


def why_missed(document, label):
    """In fix's own words why the labelled change is not offered."""
    for one in document["lost"]:
        if is_at(one, label):
            gain = one["gain"]
            return f"tried: {one['why'] or ('no gain' if gain is None else f'{gain[0]:.2f} times as fast')}"
    for one in document["refused"]:
        if is_at(one, label):
            return f"refused: {one['reason']}"
    notes = [*document.get("notes", []), *([document["unequal"]] if document.get("unequal") else [])]
    return "not proposed" + (f" ({'; '.join(notes)})" if notes else "")


def lies(row):
    """Whether the repeated gain lies in the printed interval; None where no gain was printed."""
    again = row.get("rerun")
    if again is None or "gain" not in again or len(row["document"]["accepted"]) != 1:
        return None
    (change,) = row["document"]["accepted"]
    if "times as fast" not in change["proof"]:
        return None
    _, low, high = change["gain"]
    return low <= again["gain"] <= high


def saved(row):
    """Whether a memory that fix says is saved was saved again; None where it says nothing of memory."""
    again = row.get("rerun")
    if again is None or "peak_after" not in again or "peak memory" not in row["document"]["accepted"][0]["proof"]:
        return None
    return again["peak_after"] < 0.95 * again["peak_before"]


def figures(rows, known):
    """The counts of a table."""
    pairs = [(row, known[row["script"]], judge(row, known[row["script"]])) for row in rows]
    flaws = [(row, verdict) for row, label, verdict in pairs if label["kind"] == "flaw"]
    inside = [found for row, *_ in pairs if (found := lies(row)) is not None]
    kept = [found for row, *_ in pairs if (found := saved(row)) is not None]

    def of_kind(kind):
        return [verdict["alone"] for _, label, verdict in pairs if label["kind"] == kind]

    def share(values):
        return f"{sum(values)} of {len(values)}"

    seconds = sorted(row["seconds"] for row in rows)
    return {
        "cause right": share([verdict["cause"] for _, verdict in flaws]),
        "cause seen, refused with a reason": share([verdict["seen"] and not verdict["cause"] for _, verdict in flaws]),
        "patch right": share([verdict["patch"] for _, verdict in flaws]),
        "a wrong patch offered": share([verdict["wrong"] for *_, verdict in pairs]),
        "other changes offered": ", ".join(f"{row['script']}: {name}" for row, _, v in pairs for name in v["others"])
        or "none",
        "scripts without a flaw left alone": share(of_kind("healthy")),
        "traps left alone": share(of_kind("trap")),
        "folder byte for byte as it was": share([row["untouched"] for row in rows]),
        "repeated gain in the printed interval": share(inside),
        "saved memory saved again": share(kept),
        "seconds a script": f"{seconds[len(seconds) // 2]:.0f} in the middle, {seconds[-1]:.0f} at most"
        if seconds
        else "",
    }


def shown(row, label):
    """One row of the record's table."""
    verdict, document = judge(row, label), row["document"]
    proofs = "; ".join(f"{one['rewrite']}:{one['line']} {one['claim']}" for one in document["accepted"]) or "nothing"
    gain = " ".join(part.split("; losses")[0] for one in document["accepted"] for part in [one["proof"]] if part)
    again, inside = row.get("rerun"), lies(row)
    text = "" if again is None else f"{again['gain']:.2f} times" if "gain" in again else f"exit codes {again['codes']}"
    text += "" if inside is None else ", inside" if inside else ", outside"
    if again is not None and "peak_after" in again:
        text += f", {again['peak_after'] >> 20} of {again['peak_before'] >> 20} MiB"
    right = {
        "flaw": f"{'yes' if verdict['cause'] else 'seen' if verdict['seen'] else 'no'} | "
        f"{'yes' if verdict['patch'] else 'no'}"
    }.get(label["kind"], f"- | {'alone' if verdict['alone'] else 'no'}")
    flaw = ", ".join(label.get("rewrites", [])) or label.get("flaw", "none")
    return (
        f"| {row['script']} | {label['by']} | {label['kind']}: {flaw} | {proofs} | {gain} | {right} | {text} "
        f"| {row['seconds']:.0f} | {row['load']} |"
    )


def latest(parts):
    """The last row of each script."""
    return list({row["script"]: row for row in parts.rows}.values())


def write_record(place, parts, known):
    """Counts, a row for each script, and why what was missed was missed."""
    rows = latest(parts)
    lines = [
        "# gpudoc fix: scripts whose flaw is known",
        "",
        f"{parts.about()}.",
        "Command: `python campaigns/fix.py --rerun`.",
        "",
    ]
    groups = {
        "all": rows,
        **{by: [row for row in rows if known[row["script"]]["by"] == by] for by in ("blind", "knowing")},
    }
    counted = {name: figures(group, known) for name, group in groups.items()}
    lines += ["| | " + " | ".join(f"{name} ({len(groups[name])})" for name in counted) + " |", "|" + "---|" * 4]
    lines += [f"| {what} | " + " | ".join(one[what] for one in counted.values()) + " |" for what in counted["all"]]
    head = "script | written | label | offered | proof | cause | patch | again, without gpudoc | seconds | load"
    lines += ["", f"| {head} |", "|" + "---|" * 10, *(shown(row, known[row["script"]]) for row in rows)]
    missed = [(row["script"], judge(row, known[row["script"]])["why"]) for row in rows]
    lines += ["", "Missed, in fix's own words:", "", *(f"- {name}: {why}" for name, why in missed if why)]
    place.write_text("\n".join(lines) + "\n")


def main():
    if sys.argv[1:2] == ["--timed"]:
        out, limit, steps, *words = sys.argv[2:]
        timed(out, int(limit), int(steps), words)
        return 0
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="")
    options.add_argument("--threads", default="1", help="of torch, in each launch")
    options.add_argument("--rerun", action="store_true", help="repeat each proof without gpudoc")
    add_options(options)
    asked = options.parse_args()
    # threads that spin would measure the neighbours
    os.environ["OMP_NUM_THREADS"] = asked.threads
    parts, known = open_parts(asked), labels()
    chosen = [f"{name.removesuffix('.py')}.py" for name in asked.only.split(",") if name] or list(known)
    if missing := set(chosen) - set(known):
        options.error(f"--only: no such script: {', '.join(sorted(missing))}")
    for name in chosen:
        rows = {row["script"]: row for row in latest(parts)}
        row = rows.get(name)
        needs_rerun = asked.rerun and (row is None or ("rerun" not in row and row["document"]["diff"]))
        if row is not None and not needs_rerun:
            continue
        if parts.time_is_up():
            print("time is up; the rest is left for --resume", flush=True)
            break
        if row is None:
            with tempfile.TemporaryDirectory() as place:
                row = {"script": name, **ask_fix(name, known[name], pathlib.Path(place))}
            parts.add(**row)
        if asked.rerun and row["document"]["diff"]:
            kept = {key: value for key, value in row.items() if key not in ("at", "commit", "load")}
            parts.add(**{**kept, "rerun": repeat(name, known[name], row["document"])})
        print(shown(parts.rows[-1], known[name]), flush=True)
        if asked.record:
            write_record(asked.record, parts, known)
    if asked.record and parts.rows:
        write_record(asked.record, parts, known)
    verdicts = [(row, judge(row, known[row["script"]])) for row in latest(parts) if row["script"] in known]
    for what, value in figures([row for row, _ in verdicts], known).items():
        print(f"{what}: {value}")
    return int(any(verdict["wrong"] or not row["untouched"] for row, verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
