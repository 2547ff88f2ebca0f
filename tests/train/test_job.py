"""A job knows its end."""

from __future__ import annotations

from types import SimpleNamespace

from gpudoc.train.job import Job
from gpudoc.train.settings import Settings


def test_the_end_follows_the_settings_which_an_early_stop_changes():
    parts = dict.fromkeys([name for name in Job.__dataclass_fields__ if name != "settings"], SimpleNamespace())
    job = Job(settings=Settings(steps=9), **parts)
    assert job.end_step == 9
    job.settings = Settings(steps=4)
    assert job.end_step == 4
