"""Training scripts as somebody writes them; what takes time waits instead of computing: a busy machine lies less."""

from __future__ import annotations

import sys
import textwrap

# torch's compiler, which an optimizer imports and none of these scripts uses, takes as long to import as torch itself;
# one line, in place of the empty one that a script begins with
EAGER = (
    "import sys, types; sys.modules['torch._dynamo'] = types.SimpleNamespace(graph_break=lambda: None, "
    "disable=lambda call, *_, **__: call, trace_rules=types.SimpleNamespace(clear_lru_cache=lambda: None))"
)

WAITING = """
    import argparse, time, torch
    from torch.utils.data import DataLoader, Dataset

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--wait", type=float, default=0.01)
    parser.add_argument("--step", type=float, default=0.04)
    args = parser.parse_args()

    class Waiting(Dataset):
        def __len__(self):
            return 4000
        def __getitem__(self, index):
            time.sleep(args.wait)
            return torch.full((4,), float(index)), torch.zeros(1)

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    evaluation = DataLoader(Waiting(), batch_size=64)
    loader = DataLoader(Waiting(), batch_size=args.batch_size, shuffle=True)
    open("started.txt", "w").write("a trace")
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(args.step)
    """

# each sample takes 1 MiB for the step; what the imports hold counts as well
HUNGRY = """
    import sys, torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    batch = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    data = TensorDataset(torch.zeros(2048, 4))
    for epoch in range(1000):
        for (x,) in DataLoader(data, batch_size=batch, shuffle=True):
            held = torch.empty(len(x), 1 << 18)
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            del held
    """


def written(folder, text, name="train.py"):
    """The command that runs `text` as a script in `folder`."""
    # DDP reads the compiler's settings
    eager = EAGER if text.startswith("\n") and "DistributedDataParallel" not in text else ""
    (folder / name).write_text(eager + textwrap.dedent(text))
    return (sys.executable, name)


RANKS = """
    import argparse, torch
    import torch.distributed as distributed
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    data = TensorDataset(torch.zeros(512, 4))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for epoch in range(1000):
        for (x,) in DataLoader(data, batch_size=args.batch_size, sampler=DistributedSampler(data)):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    """
