"""A run with everything built: what the loop works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpudoc.profile.model import Profile
from gpudoc.train.data.draws import Generators
from gpudoc.train.data.feed import Feeds
from gpudoc.train.data.order import Order
from gpudoc.train.ranks.protocol import Ranks
from gpudoc.train.report.sinks import Sinks
from gpudoc.train.settings import Settings
from gpudoc.train.state.capture import Progress
from gpudoc.train.state.run_dir import Run
from gpudoc.train.state.staging import Staging
from gpudoc.train.state.writer import Writer
from gpudoc.train.step.schedule import Rates
from gpudoc.train.step.step import Stepper
from gpudoc.train.stop import Stop
from gpudoc.workload.build import Workload


@dataclass(kw_only=True)
class Job:
    """The live parts of one run on one rank. `teaches`: a rescue also goes into the user's store of profiles."""

    workload: Workload
    settings: Settings
    run: Run
    ranks: Ranks
    stop: Stop
    stepper: Stepper
    generators: Generators
    order: Order
    feeds: Feeds
    eval_feeds: Feeds | None
    progress: Progress
    writer: Writer
    staging: Staging
    sinks: Sinks
    constants: Mapping[str, object]
    rates: Rates
    profile: Profile | None = None
    profile_kind: str = "off"
    teaches: bool = False
    resumed_from: str | None = None
    stages: list[dict[str, object]] = field(default_factory=list)
    trace_steps: int = 0

    @property
    def end_step(self) -> int:
        """The total number of optimizer steps."""
        return self.settings.steps
