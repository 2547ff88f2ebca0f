"""Reports each call of backward through one wrapper for all listeners; there is none without a listener."""

from __future__ import annotations

from typing import Any, Callable

from .report import HookReport


class BackwardCalls:
    """The listeners to `torch.autograd.backward`: each gets the tensors of a call before it runs."""

    def __init__(self, report: HookReport) -> None:
        self._report = report
        self._heard: list[Callable[[Any], None]] = []

    def listen(self, heard: Callable[[Any], None]) -> None:
        """Call `heard` before each backward."""
        self._heard.append(heard)

    def torch_is_here(self, torch: Any) -> None:
        """Wrap the function once if there is a listener."""
        if not self._heard:
            return
        backward, heard = torch.autograd.backward, tuple(self._heard)

        def told(tensors: Any, *args: Any, **named: Any) -> Any:
            for listener in heard:
                listener(tensors)
            return backward(tensors, *args, **named)

        torch.autograd.backward = told
        self._report.undo.append(lambda: setattr(torch.autograd, "backward", backward))
