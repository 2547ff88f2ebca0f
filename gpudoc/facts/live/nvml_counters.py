"""How much of a GPU is busy, not only whether it is: NVML's performance counters (GPM) of Hopper and newer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gpudoc.facts.nvml import REASONS

# by the fields of GpuMoment: nvml.h, nvmlGpmMetricId_t, each in percent
METRICS = {
    "sm_active_percent": "NVML_GPM_METRIC_SM_UTIL",
    "tensor_active_percent": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "dram_active_percent": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "fp32_active_percent": "NVML_GPM_METRIC_FP32_UTIL",
}
# the counters are read one after another, so a value may be a little above 100
_MOST_PERCENT = 105.0
_NO_INSTANCE = 0xFFFFFFFF


class Counters:
    """The counters of one GPU between two looks; `absent` says why there are none, '' if they can be read.

    On a GPU in MIG mode, they belong to the one instance that processes use.
    """

    def __init__(self, nv: Any, handle: Any) -> None:
        self._nv, self._handle = nv, handle
        self._samples: list[Any] = []
        self.absent = _refusal(nv, self._begin)

    def read(self) -> Mapping[str, float]:
        """Each metric since the last call in percent; a metric that is refused or impossible is left out."""
        if self.absent:
            return {}
        before, now = self._samples
        found: dict[str, float] = {}

        def take() -> None:
            self._take(now)
            found.update(self._between(before, now))

        self.absent = _refusal(self._nv, take)
        self._samples = [now, before]
        return found

    def _begin(self) -> None:
        if not self._nv.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
            raise _NotThereError("this GPU has no such counters; Hopper and newer have them")
        self._instance = self._used_instance()
        self._samples = [self._nv.nvmlGpmSampleAlloc(), self._nv.nvmlGpmSampleAlloc()]
        self._take(self._samples[0])

    def _used_instance(self) -> int | None:
        try:
            is_mig = self._nv.nvmlDeviceGetMigMode(self._handle)[0]
        except self._nv.NVMLError:
            return None
        if not is_mig:
            return None
        processes = self._nv.nvmlDeviceGetComputeRunningProcesses(self._handle)
        used = {process.gpuInstanceId for process in processes} - {None, _NO_INSTANCE}
        if len(used) != 1:
            raise _NotThereError(
                f"{len(used)} MIG instances of this GPU are in use, but counters can be read for only one"
            )
        return int(used.pop())

    def _take(self, sample: Any) -> None:
        if self._instance is None:
            self._nv.nvmlGpmSampleGet(self._handle, sample)
        else:
            self._nv.nvmlGpmMigSampleGet(self._handle, self._instance, sample)

    def _between(self, before: Any, now: Any) -> Mapping[str, float]:
        asked = self._nv.c_nvmlGpmMetricsGet_t()
        asked.version = self._nv.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics, asked.sample1, asked.sample2 = len(METRICS), before, now
        for place, metric in enumerate(METRICS.values()):
            asked.metrics[place].metricId = getattr(self._nv, metric)
        answered = self._nv.nvmlGpmMetricsGet(asked).metrics
        pairs = ((name, answered[place]) for place, name in enumerate(METRICS))
        return {
            name: min(one.value, 100.0)
            for name, one in pairs
            if one.nvmlReturn == 0 and math.isfinite(one.value) and 0 <= one.value <= _MOST_PERCENT
        }


class _NotThereError(Exception):
    """This GPU has no counters to read; the message is the reason."""


def _refusal(nv: Any, call: Callable[[], None]) -> str:
    """The reason why the call was refused; '' if it was not."""
    try:
        call()
    except nv.NVMLError as error:
        return REASONS.get(int(error.value), f"NVML error {error}")
    except _NotThereError as error:
        return str(error)
    except (AttributeError, TypeError, ValueError) as error:
        return f"the installed nvidia-ml-py cannot read them: {error}"
    return ""
