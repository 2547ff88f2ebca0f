"""A plugin for pytest: a file of tests ends by itself before the step's limit, and says which tests it left out.

python -m pytest -p benchmarks.gpu_check.deadline ...     with GPU_CHECK_SECONDS in the environment
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator

import pytest

# what is left after the last test: teardowns, and the report
REPORT_S = 10.0
# with less than this no test begins, and one that had less when it was cut has not been shown to hang
SHORT_S, LONG_S = 15.0, 120.0
LEFT_OUT = "left out: no time left in this step"


class Deadline:
    """When the tests of this process end."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds - REPORT_S
        self._had: dict[str, float] = {}

    def left_s(self) -> float:
        """Seconds until then."""
        return self._until - time.monotonic()

    # before pytest-timeout reads the mark
    @pytest.hookimpl(tryfirst=True, wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        left = self._had[item.nodeid] = self.left_s()
        item.add_marker(pytest.mark.timeout(max(1.0, left)) if left > SHORT_S else pytest.mark.skip(reason=LEFT_OUT))
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        was_cut = call.excinfo is not None and "Timeout" in str(call.excinfo.value)
        if report.failed and was_cut and self._had[item.nodeid] < LONG_S:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, LEFT_OUT)
        return report


def pytest_configure(config: pytest.Config) -> None:
    """Where the environment names seconds, they are the most that this process takes."""
    seconds = os.environ.get("GPU_CHECK_SECONDS")
    if seconds:
        config.pluginmanager.register(Deadline(float(seconds)))
