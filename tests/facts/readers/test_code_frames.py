"""Lines that are frames, as each program prints them and as pastes leave them."""

from __future__ import annotations

import pytest

from gpudoc.facts.readers.python_errors import read_frame

COLAB = "https://localhost:8080/#"


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ('File "/home/ann/train.py", line 8, in step', ("/home/ann/train.py", 8, "step", "")),
        ('File "train.py", line 8', ("train.py", 8, "", "")),
        ('File "train.py", line 8, in step out = net(x)', ("train.py", 8, "step", "out = net(x)")),
        ('File "train.py", line 8, in <listcomp> f(x)', ("train.py", 8, "<listcomp>", "f(x)")),
        ('ann/train.py", line 8, in step', ("ann/train.py", 8, "step", "")),
        ('e "/home/ann/train.py", line 8, in step', ("/home/ann/train.py", 8, "step", "")),
        ('"/home/ann/train.py", line 8', ("/home/ann/train.py", 8, "", "")),
        ("Cell In[9], line 1", ("Cell In[9]", 1, "", "")),
        ("Cell In[9], line 4, in fit(net)", ("Cell In[9]", 4, "fit", "")),
        ("/home/ann/nb.ipynb Cell 5 in <cell line: 1>()", ("/home/ann/nb.ipynb Cell 5", 0, "", "")),
        ("/home/ann/nb.ipynb Cell 5 line 3", ("/home/ann/nb.ipynb Cell 5", 3, "", "")),
        ("File <ipython-input-5-77>:3, in fit(net)", ("<ipython-input-5-77>", 3, "fit", "")),
        ("File /opt/lib/a.py:3, in Net.fit(self)", ("/opt/lib/a.py", 3, "Net.fit", "")),
        ("<ipython-input-7-1b2c> in <module>", ("<ipython-input-7-1b2c>", 0, "<module>", "")),
        (f"[<ipython-input-3-ab>]({COLAB}) in fit(net, x)", ("<ipython-input-3-ab>", 0, "fit", "")),
        ("/tmp/ipykernel_12/345.py in fit(net)", ("/tmp/ipykernel_12/345.py", 0, "fit", "")),
    ],
)
def test_a_frame_is_read_from_one_line(line, frame):
    found = read_frame(line, "plain", "", "line 1")
    assert found is not None
    assert (found[0].file, found[0].line, found[0].function, found[0].source) == frame


def test_a_file_of_a_library_in_a_notebook_is_a_frame_there_and_prose_elsewhere():
    line = f"[/opt/lib/torch/nn/linear.py]({COLAB}) in forward(self, x)"
    inside = read_frame(line, "notebook", "", "")
    assert inside is not None
    assert (inside[0].file, inside[0].function, inside[1]) == ("/opt/lib/torch/nn/linear.py", "forward", "notebook")
    assert read_frame("I changed train.py in my fork", "plain", "", "") is None
    assert read_frame("line 8 of train.py", "plain", "", "") is None
