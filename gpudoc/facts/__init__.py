"""What the machine is. The only code that touches NVML, /proc, /sys, nvidia-smi and other processes.

One door each: `collect` for this machine, `readers.read` for somebody's text, `process.watch` for a running job.
"""

from __future__ import annotations

from gpudoc.facts.collect import Deadlines, collect

__all__ = ["Deadlines", "collect"]
