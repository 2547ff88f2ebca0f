"""How much of what a model gets is padding that its batch does not need."""

import pytest
import torch

from gpudoc.script.inside._gpudoc_inside.padding import tail_of
from gpudoc.script.messages import HookOrder
from tests.script.watched import watch_text

ORDER = HookOrder(purpose="look", lines=True)
TRAIN = """
class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = torch.nn.Embedding(50, 4), torch.nn.Linear(4, 1)

    def forward(self, batch):
        return self.out(self.words(batch["ids"]).mean(1))

model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)
for number in range(30):
    longest = LONGEST
    ids = torch.zeros(8, 40, dtype=torch.long)
    for row in range(8):
        ids[row, : longest - row] = torch.randint(1, 50, (longest - row,), generator=generator)
    loss = model({"ids": ids, "rate": 0.1}).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def padded_in(folder, longest, extra=""):
    watched = watch_text(folder, TRAIN.replace("LONGEST", longest) + extra, ORDER)
    assert watched.code == 0, watched.err
    code = (folder / "train.py").read_text().splitlines()
    return {code[line - 1].strip(): (share, value) for _, line, share, value in watched.seen[0].lines.padded}


def test_what_the_longest_sample_of_a_batch_does_not_need_is_padding(tmp_path):
    padded = padded_in(tmp_path, "10 if number % 2 else 20")
    assert list(padded) == ['loss = model({"ids": ids, "rate": 0.1}).pow(2).mean()']
    # 30 and 20 of 40 places in turns; the first step is over before the look begins
    share, value = next(iter(padded.values()))
    assert share == pytest.approx(0.625, abs=0.01)
    assert value == 0


def test_an_end_that_each_batch_has_is_the_task_s_and_no_padding(tmp_path):
    assert padded_in(tmp_path, "20") == {}


@pytest.mark.parametrize(
    ("value", "share"),
    [
        (torch.tensor([[1, 2, 3, 4, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0, 0, 0]]), 0.5),
        (torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8], [1, 0, 0, 0, 0, 0, 0, 0]]), 0.0),
        (torch.zeros(2, 10, dtype=torch.int32), 1.0),
        (torch.cat([torch.ones(2, 6, 3), torch.zeros(2, 2, 3)], 1), 0.25),
        (torch.zeros(4, 10), None),
        (torch.zeros(1, 10, dtype=torch.long), None),
        (torch.zeros(4, 7, dtype=torch.long), None),
        (torch.zeros(4, 10, dtype=torch.bool), None),
        (torch.zeros(2, 3, 16, 16), None),
        (torch.zeros(()), None),
    ],
)
def test_the_end_of_a_sequence_is_where_all_samples_have_one_value(value, share):
    assert tail_of(value) == share
