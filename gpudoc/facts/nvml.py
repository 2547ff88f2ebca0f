"""The only access to NVML: each call is reported before it is made, and each error becomes an absent fact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpudoc.facts.model import NOT_SUPPORTED, Absent, Fact
from gpudoc.facts.telling import Teller

# pynvml defines names for error codes only when it is imported; these codes have a clear meaning for a fact
REASONS = {
    3: NOT_SUPPORTED,
    4: "no permission",
    10: "the driver did not answer in time",
    13: "this driver is too old for this query",
    15: "the GPU is lost",
    16: "the GPU needs a reset",
    999: "the driver answered: unknown error",
}
INVALID_ARGUMENT, NOT_SUPPORTED_CODE, NOT_FOUND_CODE, FUNCTION_NOT_FOUND = 2, 3, 6, 13
LOST, RESET_REQUIRED, UNKNOWN = 15, 16, 999
# a healthy GPU may answer any single question with one of these codes
_DECLINED = (0, 3, 4, 13)


class Nvml:
    """NVML with errors as absent facts; each call is reported to `teller` before it is made."""

    def __init__(self, teller: Teller) -> None:
        import pynvml

        self._library: Any = pynvml
        self._teller = teller

    @property
    def library(self) -> Any:
        """The pynvml module itself, for its structures."""
        return self._library

    def ask(self, name: str, *arguments: object) -> Any:
        """The answer of one NVML function, or Absent with the meaning of its error code."""
        answer, _ = self.ask_with_code(name, *arguments)
        return answer

    def ask_with_code(self, name: str, *arguments: object) -> tuple[Any, int]:
        """(answer or Absent, NVML's code, 0 when it answered)."""
        function = getattr(self._library, name, None)
        if function is None:
            return Absent("the installed nvidia-ml-py does not support this query"), FUNCTION_NOT_FOUND
        self._teller.begin(name)
        try:
            return function(*arguments), 0
        except self._library.NVMLError as error:
            code = int(error.value)
            return Absent(REASONS.get(code, f"NVML error {code}: {error}")), code
        except (UnicodeDecodeError, ValueError, TypeError) as error:
            return Absent(f"{name} answered nonsense: {error}"), UNKNOWN


class Device:
    """One GPU to ask; an error that concerns the whole GPU is reported at once and kept in `code`.

    "Lost" and "reset required" count after any question; any other error counts only after a question that every
    healthy GPU answers or declines (`must_answer`). "Lost" outranks "reset required", which outranks all other errors.
    """

    def __init__(self, nvml: Nvml, teller: Teller, index: int) -> None:
        self.index = index
        self.nvml = nvml
        self.code = 0
        self._teller = teller
        name = "nvmlDeviceGetHandleByIndex"
        self._handle, code = nvml.ask_with_code(name, index)
        self.answers = code == 0
        self._tell(name, code)

    def ask(self, name: str, *arguments: object) -> Any:
        """The answer of one question about this GPU, or Absent with the meaning of its error code."""
        answer, _ = self.ask_with_code(name, *arguments)
        return answer

    def ask_with_code(self, name: str, *arguments: object) -> tuple[Any, int]:
        """(answer or Absent, NVML's code, 0 when it answered)."""
        if not self.answers:
            return Absent("NVML gives no handle for this GPU"), UNKNOWN
        answer, code = self.nvml.ask_with_code(name, self._handle, *arguments)
        if code in (LOST, RESET_REQUIRED):
            self._tell(name, code)
        return answer, code

    def must_answer(self, name: str, code: int) -> None:
        """Count `code` as the GPU's error, for a question that a healthy GPU never fails."""
        if code not in _DECLINED:
            self._tell(name, code)

    def fields(self, wanted: Sequence[int | tuple[int, int]]) -> tuple[Fact[int], ...]:
        """The integer values of NVML fields, each an id or (id, scope), in one call."""
        values = self.ask("nvmlDeviceGetFieldValues", list(wanted))
        if isinstance(values, Absent):
            return (values,) * len(wanted)
        return tuple(self._value(value) for value in values)

    def field(self, field: int) -> Fact[int]:
        """The integer value of one NVML field."""
        return self.fields((field,))[0]

    def _value(self, value: Any) -> Fact[int]:
        code = int(value.nvmlReturn)
        if code in (LOST, RESET_REQUIRED):
            self._tell("nvmlDeviceGetFieldValues", code)
        if code != 0:
            return Absent(REASONS.get(code, f"NVML error {code}"))
        read = _FIELD_READERS.get(value.valueType)
        return Absent("the driver answered with an unknown type") if read is None else int(read(value.value))

    def _tell(self, name: str, code: int) -> None:
        if _rank(code) <= _rank(self.code):
            return
        self.code = code
        self._teller.fact(f"gpus.{self.index}.nvml_code", code)
        self._teller.fact(f"gpus.{self.index}.nvml_question", name)
        self._teller.fact(f"gpus.{self.index}.lost", code == LOST)


def _rank(code: int) -> int:
    return {0: 0, RESET_REQUIRED: 2, LOST: 3}.get(code, 1)


_FIELD_READERS: Mapping[int, Callable[[Any], int]] = {
    0: lambda union: union.dVal,
    1: lambda union: union.uiVal,
    2: lambda union: union.ulVal,
    3: lambda union: union.ullVal,
    4: lambda union: union.sllVal,
    5: lambda union: union.siVal,
    6: lambda union: union.usVal,
}


def plain_bus_id(bus_id: Any) -> str:
    """The address with the kernel's four digits of domain, not NVML's eight: 00000000:3B:00.0 is 0000:3b:00.0."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)
    domain, _, rest = text.lower().partition(":")
    # VMD and some virtual machines have domains of five digits and more
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"
