"""`pytest --gpudoc`: a test that dies of CUDA, memory or a rank gets its cause in the report.

Off unless asked for; then it looks only at the failures, and imports doctor at the first one.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

_SECTION = "gpudoc"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option, in its own group of `pytest --help`."""
    help_text = "say why a test failed if the cause is CUDA, memory, data or the machine"
    parser.getgroup("gpudoc").addoption("--gpudoc", action="store_true", help=help_text)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, object, None]:
    """Add a section to the report of a failure whose cause is known."""
    outcome = yield
    if not item.config.getoption("--gpudoc") or call.excinfo is None:
        return
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed and (said := _answer(call.excinfo.value, report.capstderr)):
        report.sections.append((_SECTION, said))


def _answer(error: BaseException, stderr: str) -> str:
    """Doctor's screen for the exception and the captured output; '' if the fault is in the test's code."""
    import traceback

    from gpudoc.doctor.examine import examine_text
    from gpudoc.doctor.registry import CATALOGUE
    from gpudoc.render.doctor import render

    text = stderr + "".join(traceback.format_exception(error))
    report = examine_text([("test", text.encode("utf-8", "surrogateescape"))])
    causes = [CATALOGUE[found.id] for found in report.findings[:1] if found.id in CATALOGUE and not found.is_guess]
    return render(report) if any(cause.family != "code" for cause in causes) else ""
