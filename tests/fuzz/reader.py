"""A process that reads one fuzzed file after another: `python -m tests.fuzz.reader FD FIRST STEP`.

Its standard output is a terminal that the parent reads. For each case it writes to FD a line of JSON: number, exit
code, CPU seconds, and by how much memory grew at its highest moment; or why its entrance is shut here.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.mutation import case, entrance_of

# in both streams behind what a case wrote, with its number
ENDS = "the end of case "


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    told, first, step = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    number = first
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        while True:
            if shut := entrance_of(number).is_shut:
                os.write(told, json.dumps({"number": number, "shut": shut}).encode() + b"\n")
                number += step
                continue
            entrance, content, name, mode = case(number)
            path = Path(name)
            path.write_bytes(content)
            # the highest resident set from here on
            Path("/proc/self/clear_refs").write_text("5")
            before, began = _peak_mib(), time.process_time()
            os.write(told, json.dumps({"begins": number}).encode() + b"\n")
            try:
                code = entrance.call(path, mode)
                fault = ""
            except Exception:
                code, fault = 70, traceback.format_exc()
            # a terminal passes on late: where a case ends stands in what it wrote
            for stream in (sys.stdout, sys.stderr):
                print(f"\n{ENDS}{number}", file=stream, flush=True)
            row = {"number": number, "code": code, "seconds": time.process_time() - began, "grew": _peak_mib() - before}
            os.write(told, json.dumps({**row, "fault": fault[-2000:]}).encode() + b"\n")
            for left in Path().iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            number += step


if __name__ == "__main__":
    main()
