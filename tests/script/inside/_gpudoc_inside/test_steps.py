"""Steps are counted and timed, also where several optimizers, processes or frameworks' batches are involved."""

from __future__ import annotations

import sys

import pytest

from gpudoc.script.messages import HookOrder
from tests.script.watched import save, watch, watch_text

TRAIN = """
train = DataLoader(Rows(), 8, shuffle=True)
test = DataLoader(Rows(12), 4)
for epoch in range(2):
    for x, y in train:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            step(x, y)
    with torch.no_grad():
        for x, y in test:
            model(x)
print("done")
sys.exit(3)
"""


def summed(seen, name):
    return [value for event in seen.steps for value in getattr(event, name)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    save(folder, TRAIN)
    order = HookOrder(purpose="look", warm_steps=1, steps=2, record_samples=True)
    # as people start things: through a shell
    return watch(folder, ["bash", "-c", f"cd {folder} && {sys.executable} train.py && echo never; exit $?"], order)


def test_every_step_is_told_with_the_loader_that_fed_it(trained):
    (seen,) = trained.seen
    assert (trained.code, trained.out, trained.err) == (3, "done\n", "")
    assert seen.total.steps == len(summed(seen, "seconds")) == len(summed(seen, "wait_s")) == 6
    assert summed(seen, "samples") == [8] * 6
    assert seen.total.samples == 48
    assert seen.feeding().place == "train.py:19"
    assert all(0 < wait < second for wait, second in zip(summed(seen, "wait_s"), summed(seen, "seconds"), strict=True))
    assert seen.total.seconds == pytest.approx(sum(summed(seen, "seconds")), abs=1e-4)
    assert (seen.end.steps, seen.rank, seen.start.program) == (6, None, "train.py")


def test_evaluation_is_told_apart(trained):
    (seen,) = trained.seen
    assert summed(seen, "evaluated") == [3]
    assert 0 < seen.total.evaluate_s < summed(seen, "seconds")[3]


def test_memory_and_formats_are_told(trained):
    last = trained.seen[0].steps[-1]
    assert (last.device, last.parameters, last.autocast) == ("cpu", "float32", "bfloat16")
    assert last.peak_bytes > 1 << 20


def test_the_order_is_done_after_its_steps_and_the_script_goes_on(trained):
    (seen,) = trained.seen
    assert seen.measured
    assert seen.steps[-1].first + seen.steps[-1].count == 6
    assert any(event.first + event.count == 3 for event in seen.steps)


def test_the_samples_of_each_step_can_be_recognised(trained):
    digests = summed(trained.seen[0], "digests")
    assert len(digests) == 6
    assert len(set(digests)) == 6


def test_what_the_first_batches_showed(trained):
    told = {data.loader: data for data in trained.seen[0].data}
    assert told[0].random is False
    assert told[0].batch_bytes == 8 * 4 * 5
    assert told[0].other_thread is False


OTHERS = """
other = torch.optim.SGD(torch.nn.Linear(4, 1).parameters(), lr=0.1)
class Noisy(Rows):
    def __getitem__(self, i): return super().__getitem__(i)[0] + torch.rand(4), torch.zeros(1)

for half in range(2):
    for number, (x, y) in enumerate(DataLoader(Noisy(), 2)):
        x = x[:1]
        if number % 2 == 0:
            loss = model(x).sum() + half
            loss.backward()
        else:
            step(x, y)
        other.step()
"""


def test_a_second_optimizer_makes_no_steps_of_its_own_and_accumulated_batches_are_one(tmp_path):
    (seen,) = watch_text(tmp_path, OTHERS, HookOrder(purpose="run")).seen
    # the other one steps first and in every round, so its steps are the script's
    assert seen.total.steps == 24
    assert seen.total.samples == 48
    assert seen.steps[-1].seconds == ()
    assert {data.random for data in seen.data} == {True}


EVALUATES = """
import time
train = DataLoader(Rows(), 8, shuffle=True)
test = DataLoader(Rows(12), 4)
for epoch in range(2):
    for x, y in train:
        step(x, y)
    with torch.no_grad():
        for x, y in test:
            time.sleep(0.1)
"""


def test_the_sums_of_a_run_end_with_its_last_step_and_tell_evaluation_apart(tmp_path):
    (seen,) = watch_text(tmp_path, EVALUATES, HookOrder(purpose="run")).seen
    (looked,) = watch_text(tmp_path, EVALUATES, HookOrder(purpose="look")).seen
    assert (seen.total.steps, seen.total.samples) == (looked.total.steps, looked.total.samples)
    # one evaluation lies between the steps; the second one comes after the last of them
    assert 0.3 <= seen.total.evaluate_s <= seen.total.seconds
    assert 0 < seen.total.wait_s < seen.total.seconds - seen.total.evaluate_s


RANKS = """
import os, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, how):
    if how != "torchrun":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{os.getcwd()}/{how}")
    else:
        dist.init_process_group("gloo")
    for x, y in DataLoader(Rows(8), 4, num_workers=1, multiprocessing_context="spawn" if how == "spawn" else "fork"):
        step(x, y)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    how = sys.argv[1]
    if how == "torchrun":
        work(0, how)
    else:
        mp.start_processes(work, (how,), nprocs=2, start_method=how)
"""


@pytest.mark.parametrize("how", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_processes_that_the_script_starts_tell_of_themselves_and_their_workers_nothing(tmp_path, how):
    found = watch(tmp_path, [sys.executable, save(tmp_path, RANKS), how])
    assert (found.code, found.err) == (0, "")
    training = [seen for seen in found.seen if seen.trains]
    assert [(seen.rank, seen.steps[-1].world, seen.total.steps) for seen in training] == [(0, 2, 2), (1, 2, 2)]
    assert all(seen.end is not None and len(seen.loaders) == 1 for seen in training)
    # and the process that started them
    assert len(found.seen) == 3


@pytest.mark.slow
def test_the_ranks_of_torchrun_tell_of_themselves(tmp_path):
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", save(tmp_path, RANKS), "torchrun"]
    found = watch(tmp_path, run)
    assert found.code == 0
    training = [seen for seen in found.seen if seen.trains]
    assert [(seen.start.rank, seen.rank, seen.total.steps) for seen in training] == [(0, 0, 2), (1, 1, 2)]
    assert all(seen.loaders for seen in training)
