"""The exact lines to write into the script, in the words of the framework that builds the loader; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoc.profile.model import Loader
from gpudoc.script.look import ScriptLook
from gpudoc.script.messages import LoaderSeen
from gpudoc.units import format_count


@dataclass(frozen=True, slots=True)
class CodeLine:
    """One line to write, and where; `at` is 'train.py:42'."""

    at: str
    write: str

    def __str__(self) -> str:
        return f"{self.at}: {self.write}"


def lines(look: ScriptLook, feed: Loader | None, batch: int | None) -> tuple[CodeLine, ...]:
    """The lines that bring the found settings into the script; without a batch if `batch` is None."""
    loader = look.training
    if loader is None or (feed is None and batch is None):
        return ()
    if loader.through == "transformers":
        return (CodeLine(loader.place, _trainer(feed, batch)),)
    if loader.through == "lightning":
        words = _arguments(feed, batch)
        return (CodeLine(loader.place, f"train_dataloader() returns DataLoader(..., {words})"),)
    return (CodeLine(loader.place, f"DataLoader(..., {_arguments(feed, batch)})"),)


def by_option(look: ScriptLook, feed: Loader | None) -> str:
    """The settings as options, if the script reads TrainingArguments from its command line; '' for other scripts."""
    loader = look.training
    if loader is None or feed is None or loader.through != "transformers":
        return ""
    options = [f"--dataloader_num_workers {feed.num_workers}", f"--dataloader_pin_memory {feed.pin_memory}"]
    if feed.num_workers:
        options.append(f"--dataloader_prefetch_factor {feed.prefetch_factor}")
        options.append(f"--dataloader_persistent_workers {feed.persistent_workers}")
    return " ".join(options)


def about_order(look: ScriptLook, feed: Loader | None) -> str:
    """The side effect of writing `persistent_workers=True` into a script that shuffles; '' if there is none."""
    loader = look.training
    if loader is None or feed is None or not feed.num_workers or not feed.persistent_workers:
        return ""
    if loader.persistent_workers or not loader.sampler.endswith("RandomSampler"):
        return ""
    return (
        "if you write persistent_workers=True there, the second and later epochs are shuffled differently, because "
        "PyTorch then draws one random number less for each epoch; gpudoc train draws that number and keeps the order"
    )


def _arguments(feed: Loader | None, batch: int | None) -> str:
    words = [] if batch is None else [f"batch_size={batch}"]
    if feed is not None:
        words.append(f"num_workers={feed.num_workers}")
        if feed.num_workers:
            words.append(f"prefetch_factor={feed.prefetch_factor}")
        words.append(f"pin_memory={feed.pin_memory}")
        if feed.num_workers:
            words.append(f"persistent_workers={feed.persistent_workers}")
    return ", ".join(words)


def _trainer(feed: Loader | None, batch: int | None) -> str:
    words = [] if batch is None else [f"per_device_train_batch_size={batch}"]
    if feed is not None:
        words += [f"dataloader_{word}" for word in _arguments(feed, None).split(", ")]
    return f"TrainingArguments(..., {', '.join(words)})"


def about_a_larger_batch(look: ScriptLook, batch: int, lever: str, known: int | None) -> tuple[str, ...]:
    """The effects of a batch other than the command's own, with the rules of scaling; empty if it is the same."""
    if known is None or batch == known:
        return ()
    times = batch / known
    ranks = f" on each of {look.ranks} ranks" if look.ranks > 1 else ""
    where = "" if lever == "flag" else "; gpudoc train takes it only with --allow batch"
    changed = (
        f"batch {batch}{ranks} instead of {known} is another training: {1 / times:.2g} times as many optimizer steps "
        f"an epoch, and the learning rate was chosen for {known}{where}"
    )
    if batch < known:
        num = -(-known // batch)
        return (changed, f"to keep the training unchanged, accumulate {num} batches of {batch} for each optimizer step")
    rules = (
        f"rules of scaling: learning rate x {times:.3g} with SGD (linear, Goyal et al. 2017), x {times**0.5:.3g} with "
        "Adam (square root, Malladi et al. 2022), each with a longer warm-up; neither rule holds for every batch"
    )
    return (changed, rules)


def said_not_set(look: ScriptLook) -> tuple[str, ...]:
    """Levers that were seen but are not searched here: precision and TF32 on a GPU."""
    found: list[str] = []
    if look.on_gpu and look.precision == "fp32":
        found.append("the steps compute in fp32; on a GPU, try torch.autocast with bfloat16 first")
        if look.tf32 is False:
            found.append("TF32 is off: torch.set_float32_matmul_precision('high') lets fp32 products use it")
    return tuple(found)


def describe_loader(loader: LoaderSeen, look: ScriptLook) -> str:
    """One loader in one line: where, from what, and whether it feeds the steps."""
    trains = look.training is not None and loader.key == look.training.key
    parts = [
        "trains" if trains else "does not train",
        f"batch {loader.batch_size}" if loader.batch_size else "no batch size",
        format_count(loader.num_workers, "worker"),
    ]
    if loader.samples is not None:
        parts.append(f"{loader.samples:,} samples")
    parts += [f"{loader.dataset}, {loader.sampler}" if loader.sampler else loader.dataset]
    parts += [word for word, on in _marks(loader) if on]
    through = "" if loader.through == "torch" else f" (built by {loader.through})"
    return f"{loader.place}{through}: {', '.join(part for part in parts if part)}"


def _marks(loader: LoaderSeen) -> Sequence[tuple[str, bool]]:
    return (
        ("pinned", loader.pin_memory),
        ("persistent", loader.persistent_workers),
        ("own batch_sampler", loader.own_batch_sampler),
        ("iterable", loader.iterable),
        ("sharded by get_worker_info", loader.sharded),
    )
