"""The samples of a step, from a loader that is opened again when a step is repeated or an epoch begins."""

from __future__ import annotations

from collections.abc import Callable

from gpudoc.process.shortage import is_out_of_memory
from gpudoc.train.blame import in_data
from gpudoc.train.data.draws import Snapshot
from gpudoc.train.data.feed import DirectFeed, Feed, Feeds
from gpudoc.train.data.order import Chunk
from gpudoc.train.loop.crash import Restart, leave_smaller_batch
from gpudoc.train.ranks.distributed import AbandonedError
from gpudoc.train.ranks.protocol import OOM, STOP
from gpudoc.train.step.sequence import READING, Missing, share_out
from gpudoc.train.step.step import Micro, Parts
from gpudoc.workload.batch import Batch


class Fetcher:
    """Reads one step after another. `give_way` frees the memory of a checkpoint and says whether there was one."""

    def __init__(
        self, parts: Parts, feeds: Feeds, restart: Restart, give_way: Callable[[], bool], *, persistent: bool
    ) -> None:
        self._parts = parts
        self._on_host = parts.device.type == "cpu"
        self._feeds = feeds
        self._restart = restart
        self._give_way = give_way
        self._begins_anew = feeds.settings.num_workers > 0 and not persistent
        self._feed: Feed | None = None
        self.chunks: list[Chunk] = []

    def fetch(self) -> list[Micro] | Missing:
        """The next step's micro batches on the host with their shares of the loss, or why any rank is without them."""
        course = self._restart.course
        feed = self._open()
        self.chunks = course.order.chunks(course.progress.step)
        read: list[tuple[Batch, bool]] = []
        missing = None
        for chunk in self.chunks:
            taken = self._take(feed, chunk)
            if isinstance(taken, Missing):
                missing = taken
                read.clear()
                break
            read.append((taken, chunk.weightless))
        try:
            return share_out(self._parts, read, missing)
        except AbandonedError:
            leave_smaller_batch(self._restart, READING)
            raise

    def snapshot(self) -> Snapshot | None:
        """The random state that the loader just took; it knows nothing of a GPU's."""
        return self._feed.snapshot if self._on_host and isinstance(self._feed, DirectFeed) else None

    def close(self) -> None:
        """End the loader; the next step opens another."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _take(self, feed: Feed, chunk: Chunk) -> Batch | Missing:
        """The chunk's batch; read once more when a checkpoint left no memory for it."""
        try:
            batch = feed.take(chunk)
        except Exception as problem:
            told = in_data(problem, chunk.indices)
            if not is_out_of_memory(problem):
                raise told from problem
            short = Missing(OOM, f"{READING}, {len(chunk.indices)} at once", told.message)
        else:
            return Missing(STOP) if batch is None else batch
        if isinstance(feed, DirectFeed) and self._give_way():
            return self._take(feed, chunk)
        return short

    def _open(self) -> Feed:
        """The loader at the next step. One set of workers serves all epochs, unless they are asked not to persist."""
        course = self._restart.course
        step, end = course.progress.step, course.end_step
        if self._begins_anew:
            epoch, first = divmod(step, course.order.steps_per_epoch)
            end = min(end, (epoch + 1) * course.order.steps_per_epoch)
            if first == 0:
                self.close()
        if self._feed is None:
            self._feed = self._feeds.open(course.order, step, end)
        return self._feed
