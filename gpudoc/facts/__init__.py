"""What the machine is. The only code that touches NVML, /proc, /sys, nvidia-smi and other processes.

One door each: `collect` for this machine, `readers.read` for somebody's text, `watch` for a running job, `launch` for
one that is to be started and watched.
"""

from __future__ import annotations

from gpudoc.facts.collect import Deadlines, collect
from gpudoc.facts.live.job import Listener, Outcome, launch
from gpudoc.facts.live.session import watch

__all__ = ["Deadlines", "Listener", "Outcome", "collect", "launch", "watch"]
