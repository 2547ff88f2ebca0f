from __future__ import annotations

import pytest

from gpudoc.facts.readers.python_errors import owner_of


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/home/ann/project/train.py", "user"),
        ("train.py", "user"),
        ("src/models/torch/net.py", "user"),
        ("<stdin>", "user"),
        ("<ipython-input-3-0a1b>", "user"),
        ("Cell In[3]", "user"),
        ("/tmp/ipykernel_30/1234567.py", "user"),
        (r"C:\Users\ann\net\train.py", "user"),
        ("/home/ann/my_transformers/run.py", "user"),
        ("/opt/conda/lib/python3.10/site-packages/torch/nn/modules/linear.py", "torch"),
        (r"C:\Python310\lib\site-packages\torch\nn\functional.py", "torch"),
        ("torch/nn/modules/module.py", "torch"),
        ("/usr/local/lib/python3.10/dist-packages/transformers/trainer.py", "library"),
        ("/opt/conda/lib/python3.10/site-packages/torchvision/ops/boxes.py", "library"),
        ("/workspace/transformers/src/transformers/modeling_utils.py", "library"),
        ("/opt/conda/bin/torchrun", "library"),
        ("/opt/conda/lib/python3.10/multiprocessing/pool.py", "standard"),
        ("/usr/lib/python3.11/json/decoder.py", "standard"),
        (r"C:\Users\ann\AppData\Local\Programs\Python\Python310\lib\threading.py", "standard"),
        (r"my_python\lib\multiprocessing\reduction.py", "standard"),
        ("/home/ann/project/lib/logging/rows.py", "user"),
        ("<frozen importlib._bootstrap>", "standard"),
    ],
)
def test_whose_code_it_is_shows_in_the_path(path, owner):
    assert owner_of(path) == owner
