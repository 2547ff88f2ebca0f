"""The report of a trial's process on the exception that ended it."""

from __future__ import annotations

from gpudoc.errors import GpudocError
from gpudoc.train.blame import users_traceback
from gpudoc.tune.trial.messages import End
from gpudoc.tune.trial.outcome import classify_exception
from gpudoc.tune.trial.wire import RankEnd


def describe_failure(problem: Exception) -> RankEnd:
    """The end that an exception means, with the user's own traceback if it is the user's error."""
    if isinstance(problem, GpudocError):
        code = int(problem.exit_code)
        return RankEnd(end=End.USER_ERROR, detail=problem.message, hint=problem.hint, code=code)
    end = classify_exception(problem)
    message = f"{type(problem).__name__}: {problem}"
    text = users_traceback(problem) if end is End.USER_ERROR else ""
    return RankEnd(end=end, detail=_first_sentence(message)[:500], traceback=text[-8000:])


def _first_sentence(text: str) -> str:
    """The first informative line, with the lines before it: "backend='inductor' raised:" alone is not enough."""
    said: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        said.append(line)
        if not line.endswith(":"):
            break
    return " ".join(said)
