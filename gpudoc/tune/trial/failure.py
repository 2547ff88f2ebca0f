"""What a trial's process says of the exception that ended it."""

from __future__ import annotations

from gpudoc.errors import GpudocError
from gpudoc.train.blame import users_traceback
from gpudoc.tune.trial.messages import End
from gpudoc.tune.trial.outcome import classify_exception
from gpudoc.tune.trial.wire import RankEnd


def describe_failure(problem: Exception) -> RankEnd:
    """The end that an exception means, with the user's own traceback when it is the user's error."""
    if isinstance(problem, GpudocError):
        code = int(problem.exit_code)
        return RankEnd(end=End.USER_ERROR, detail=problem.message, hint=problem.hint, code=code)
    end = classify_exception(problem)
    message = f"{type(problem).__name__}: {problem}"
    text = users_traceback(problem) if end is End.USER_ERROR else ""
    return RankEnd(end=end, detail=_first_sentence(message)[:500], traceback=text[-8000:])


def _first_sentence(text: str) -> str:
    """The first line that says something, and what leads to it: "backend='inductor' raised:" alone does not."""
    said: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        said.append(line)
        if not line.endswith(":"):
            break
    return " ".join(said)
