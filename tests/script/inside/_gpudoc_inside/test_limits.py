import json
import os
import resource
import subprocess

from gpudoc.script.hook import environment
from gpudoc.script.messages import HookOrder
from tests.script.scripts import written

LIMIT = 6 << 30
SCRIPT = f"""
    import json, os, resource, torch
    from torch.utils.data import DataLoader, Dataset

    resource.setrlimit(resource.RLIMIT_DATA, ({LIMIT}, resource.getrlimit(resource.RLIMIT_DATA)[1]))

    def soft(*args):
        return resource.getrlimit(resource.RLIMIT_DATA)[0]

    class Limits(Dataset):
        def __len__(self):
            return 2
        def __getitem__(self, index):
            return torch.tensor(soft())

    worker = [int(batch) for batch in DataLoader(Limits(), batch_size=None, num_workers=1)]
    told, tells = os.pipe()
    if os.fork() == 0:
        os.write(tells, str(soft()).encode())
        os._exit(0)
    print(json.dumps({{"worker": worker, "own": soft(), "fork": int(os.read(told, 100))}}))
    """


def test_a_loader_worker_is_free_of_the_limit_and_nothing_else_is(tmp_path):
    folder = tmp_path / "events"
    folder.mkdir()
    variables = environment(folder, HookOrder(purpose="trial"), os.environ)
    done = subprocess.run(
        written(tmp_path, SCRIPT), cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    assert told == {"worker": [hard, hard], "own": LIMIT, "fork": LIMIT}
