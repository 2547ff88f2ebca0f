"""The program of action.yml: runs doctor on a log, and writes a step summary, annotations at lines of code, and SARIF.

It reads $GPUDOC_LOG, $GPUDOC_SARIF and $GPUDOC_FAIL, and writes to $GITHUB_STEP_SUMMARY and $GITHUB_OUTPUT.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_KIND = {"error": "error", "warning": "warning", "note": "notice"}
_REFUSED = 2


def main() -> int:
    """The exit code of the step: doctor's if it could not read the log or the step may fail, else 0."""
    sarif = Path(os.environ.get("GPUDOC_SARIF") or "gpudoc.sarif")
    logs = os.environ.get("GPUDOC_LOG", "").split()
    if not logs:
        print("::error title=gpudoc::the input 'log' names no file")
        return _REFUSED
    command = [sys.executable, "-m", "gpudoc", "doctor", "--markdown", "--sarif", str(sarif), *logs]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False)
    if not sarif.exists():
        print(f"::error title=gpudoc::doctor ended with exit code {done.returncode}; its message stands above")
        return done.returncode or _REFUSED
    _append("GITHUB_STEP_SUMMARY", done.stdout)
    results = json.loads(sarif.read_text("utf-8"))["runs"][0]["results"]
    for line in annotations(results):
        print(line)
    _append("GITHUB_OUTPUT", f"cause={results[0]['ruleId'] if results else ''}\nsarif={sarif}\n")
    return done.returncode if os.environ.get("GPUDOC_FAIL") == "true" else 0


def annotations(results: list[dict[str, Any]]) -> Iterator[str]:
    """A workflow command for each result, at its file and line if it has one."""
    for result in results:
        place = [("title", f"gpudoc: {result['ruleId']}")]
        for location in result.get("locations", ())[:1]:
            at = location["physicalLocation"]
            place += [("file", unquote(at["artifactLocation"]["uri"])), ("line", str(at["region"]["startLine"]))]
        named = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in place)
        yield f"::{_KIND[result['level']]} {named}::{_escaped(result['message']['text'])}"


def _escaped(text: str, also: str = "") -> str:
    """The text, escaped for the runner: a line end would end it, and so would a colon or a comma in a property."""
    for sign in "%\r\n" + also:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def _append(variable: str, text: str) -> None:
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(text)


if __name__ == "__main__":
    sys.exit(main())
