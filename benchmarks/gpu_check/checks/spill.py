"""Under WSL the driver goes on in the host's memory where the card is full: our limit must end that with an error."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.gpu_check.model import Result, error_line
from gpudoc.process.shortage import Shortage, shortage_in

# as a training begins, then a block larger than the card
CODE = """
import torch
from gpudoc.train import limits
here = torch.device("cuda:0")
share = limits.card_share(here)
limits.enforce(share.limit_bytes, here)
torch.empty(torch.cuda.get_device_properties(0).total_memory * 5 // 4, dtype=torch.uint8, device=here)
"""


def main() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    result = Result()
    if done.returncode == 0:
        result.failures.append("a training takes more memory than the card has, and the driver lets it")
    elif shortage_in(done.stderr) is not Shortage.DEVICE:
        result.failures.append(f"a training under its limit ends with something else: {error_line(done.stderr)}")
    print(result.to_line())


if __name__ == "__main__":
    main()
