"""Tracebacks as Python, notebooks, rich, pytest, launchers and loggers print them, most of them made here by Python."""

from __future__ import annotations

import html
import os
import subprocess
import sys

import pytest

from gpudoc.facts.readers import read
from gpudoc.facts.readers.python_errors import CodeFrame, ErrorChain

PACKAGES = "/opt/conda/lib/python3.10/site-packages"
PLAIN = f"""Traceback (most recent call last):
  File "/home/ann/train.py", line 20, in <module>
    main()
  File "/home/ann/train.py", line 8, in forward
    return self.b(h)
  File "{PACKAGES}/torch/nn/modules/linear.py", line 114, in forward
    return F.linear(input, self.weight, self.bias)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)
"""


def chains(text: str) -> tuple[ErrorChain, ...]:
    return read(text).failures


def own(frames: tuple[CodeFrame, ...]) -> list[tuple[str, int, str]]:
    return [(f.file.rpartition("/")[2], f.line, f.source) for f in frames if f.owner == "user"]


def run(tmp_path, program: str, *arguments: str) -> str:
    """What a real program writes to its stderr."""
    (tmp_path / "prog.py").write_text(program, "utf-8")
    done = subprocess.run(
        [sys.executable, *arguments, "prog.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode
    return done.stderr


def test_a_traceback_of_python_is_read_whole(tmp_path):
    text = run(tmp_path, "def f(c):\n    return c['lr']\n\nf({})\n")
    ((error,),) = (chain.errors for chain in chains(f"epoch 1\n{text}done\n"))
    assert (error.kind, error.message, error.origin) == ("KeyError", "'lr'", f"line {len(text.splitlines()) + 1}")
    assert own(error.frames) == [("prog.py", 4, "f({})"), ("prog.py", 2, "return c['lr']")]
    assert [frame.function for frame in error.frames] == ["<module>", "f"]


@pytest.mark.parametrize(
    ("handler", "link"),
    [
        ("except KeyError as e:\n    raise ValueError('no') from e", "direct"),
        ("except KeyError:\n    {}.lr", "handling"),
    ],
)
def test_what_led_to_what_is_kept(tmp_path, handler, link):
    (chain,) = chains(run(tmp_path, f"try:\n    {{}}['lr']\n{handler}\n"))
    assert [error.link for error in chain.errors] == ["", link]
    assert chain.errors[0].kind == "KeyError"
    assert [own(error.frames)[-1][1] for error in chain.errors] == [2, 4]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_each_exception_of_a_group_is_read(tmp_path):
    program = "es = []\nfor i in 'ab':\n    try: int(i)\n    except ValueError as e: es.append(e)\nraise ExceptionGroup('two', es)\n"
    (chain,) = chains(run(tmp_path, program))
    assert [(e.name, e.link) for e in chain.errors] == [
        ("ExceptionGroup", ""),
        ("ValueError", "original"),
        ("ValueError", "original"),
    ]
    assert [own(e.frames)[-1][1] for e in chain.errors] == [5, 3, 3]


def test_a_worker_s_exception_is_the_original(tmp_path):
    program = "from multiprocessing import Pool\ndef w(n):\n    return {}[n]\nif __name__ == '__main__':\n    Pool(1).map(w, [1])\n"
    (chain,) = chains(run(tmp_path, program))
    assert own(chain.errors[0].frames) == [("prog.py", 3, "return {}[n]")]
    loader = f"""{PLAIN.replace("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)", "KeyError: Caught KeyError in DataLoader worker process 0.")}Original Traceback (most recent call last):
  File "{PACKAGES}/torch/utils/data/_utils/worker.py", line 308, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/ann/data.py", line 31, in __getitem__
    return self.rows[i]["label"]
KeyError: 'label'
"""
    (chain,) = chains(loader)
    assert [(e.link, e.message) for e in chain.errors][1] == ("original", "'label'")
    assert own(chain.errors[1].frames) == [("data.py", 31, 'return self.rows[i]["label"]')]


@pytest.mark.parametrize("style", ["long", "short"])
def test_pytest_shows_the_place_after_or_before_the_error(tmp_path, style):
    (tmp_path / "test_it.py").write_text("def f(c):\n    return c['lr']\n\ndef test_f():\n    f({})\n", "utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        f"--tb={style}",
        "test_it.py",
    ]
    # the plugins that are installed here would only be loaded
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=alone)
    error = chains(done.stdout)[0].errors[0]
    assert (error.kind, error.message) == ("KeyError", "'lr'")
    assert own(error.frames) == [("test_it.py", 5, "f({})"), ("test_it.py", 2, "return c['lr']")]


def test_a_box_of_rich_is_read_though_it_breaks_paths(tmp_path):
    program = "import sys\nfrom rich.console import Console\nfrom rich.traceback import install\ninstall(console=Console(file=sys.stderr, width=60))\ndef f(c):\n    return c['lr']\nf({})\n"
    (chain,) = chains(run(tmp_path, program))
    (error,) = chain.errors
    assert (error.kind, error.message) == ("KeyError", "'lr'")
    assert own(error.frames) == [("prog.py", 7, "f({})"), ("prog.py", 6, "return c['lr']")]


NOTEBOOK = f"""---------------------------------------------------------------------------
RuntimeError                              Traceback (most recent call last)
Cell In[3], line 5
      4 x = torch.randn(4, 10)
----> 5 y = net(x)

File {PACKAGES}/torch/nn/modules/module.py:1501, in Module._call_impl(self, *args, **kwargs)
   1499         or _global_forward_hooks or _global_forward_pre_hooks):
-> 1501     return forward_call(*args, **kwargs)

Cell In[2], line 9, in Net.forward(self, x)
      8     h = self.a(x)
----> 9     return self.b(h)

RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)
"""
OLD_NOTEBOOK = """KeyError                                  Traceback (most recent call last)
<ipython-input-7-1b2c> in <module>
      1 for e in range(3):
----> 2     train(cfg)

<ipython-input-6-aaaa> in train(cfg)
----> 2     lr = cfg["lr"]

KeyError: 'lr'
"""


def test_frames_of_notebooks_old_and_new_are_read():
    (chain,) = chains(NOTEBOOK)
    assert own(chain.errors[0].frames) == [("Cell In[3]", 5, "y = net(x)"), ("Cell In[2]", 9, "return self.b(h)")]
    assert chain.errors[0].message.startswith("mat1 and mat2")
    (chain,) = chains(OLD_NOTEBOOK)
    assert own(chain.errors[0].frames)[-1] == ("<ipython-input-6-aaaa>", 2, 'lr = cfg["lr"]')


COLAB = f"""RuntimeError                              Traceback (most recent call last)
[<ipython-input-33-abc>](https://localhost:8080/#) in train(model, x)
     39   x = x.to(device)
---> 40   x_out, q_out = model(x)
     41   return x_out

1 frames
[{PACKAGES}/torch/nn/modules/linear.py](https://localhost:8080/#) in forward(self, input)
    112     def forward(self, input):
--> 114         return F.linear(input, self.weight, self.bias)

RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)
"""
RULE = "-" * 75


@pytest.mark.parametrize(
    "text",
    [
        COLAB,
        f"{RULE}\n{COLAB}",
        RULE + COLAB,
        RULE + COLAB.replace("last)\n", "last)", 1),
        f"{COLAB.splitlines()[-1]}\n{RULE}\n" + COLAB.rpartition("RuntimeError")[0],
        COLAB.partition("\n")[2],
    ],
    ids=["as it is", "below a rule", "glued to the rule", "glued to the frame", "error above", "headless"],
)
def test_the_user_s_line_in_colab_is_found_however_the_paste_was_cut(text):
    (chain,) = chains(text)
    (error,) = chain.errors
    assert (error.kind, error.message) == (
        "RuntimeError",
        "mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)",
    )
    assert own(error.frames) == [("<ipython-input-33-abc>", 40, "x_out, q_out = model(x)")]
    assert error.frames[-1].line == 114


def test_the_arrow_of_a_notebook_is_short_at_a_large_line_number():
    (chain,) = chains(OLD_NOTEBOOK.replace("----> 2     lr", "-> 1234     lr"))
    assert own(chain.errors[0].frames)[-1] == ("<ipython-input-6-aaaa>", 1234, 'lr = cfg["lr"]')


def test_of_a_notebook_s_traceback_without_its_end_the_first_line_names_the_exception():
    (chain,) = chains(NOTEBOOK.rpartition("RuntimeError")[0])
    assert (chain.errors[0].kind, chain.errors[0].message, chain.errors[0].origin) == ("RuntimeError", "", "line 2")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: "".join(f"`{line}`\n" for line in text.splitlines()),
        lambda text: f"I get\n`{text.strip()}`\n",
        lambda text: f"**{text.strip()}**\n",
        lambda text: "<br>".join(text.splitlines()),
        lambda text: " ".join(line.strip() for line in text.splitlines()),
        lambda text: "".join(f"> {html.escape(line)}\n" for line in text.splitlines()),
        lambda text: "".join(f"&gt;{html.escape(line)}\n" for line in text.splitlines()),
    ],
    ids=["each line", "one piece of code", "bold", "breaks of HTML", "one line", "quoted and escaped", "escaped twice"],
)
def test_a_traceback_within_markdown_or_html_is_read_whole(wrap):
    (chain,) = chains(wrap(PLAIN.replace("(4x20 and 30x2)", "('4x20' and '30x2')")))
    (error,) = chain.errors
    assert error.message == "mat1 and mat2 shapes cannot be multiplied ('4x20' and '30x2')"
    assert own(error.frames)[-1] == ("train.py", 8, "return self.b(h)")


def test_the_last_line_written_above_its_traceback_is_one_failure():
    (chain,) = chains(f"{PLAIN.splitlines()[-1]}\n\n{PLAIN}")
    assert own(chain.errors[0].frames)[-1] == ("train.py", 8, "return self.b(h)")
    first, other = chains(f"KeyError: 'lr'\n\n{PLAIN}")
    assert (first.errors[0].kind, other.errors[0].kind) == ("KeyError", "RuntimeError")


def test_the_first_frame_counts_though_its_beginning_was_cut():
    (chain,) = chains(PLAIN.partition('File "/home')[2].replace("__init__", "x"))
    assert own(chain.errors[0].frames) == [("train.py", 20, "main()"), ("train.py", 8, "return self.b(h)")]


@pytest.mark.parametrize(
    "before",
    ["[rank0]: ", "[rank0]:", "[default3]:", "3: ", "(RayTrainWorker pid=7, ip=10.0.0.1) ", "trainer-1  | ",
     "2026-05-01T10:00:00.123456789Z stderr F ", "2026-05-01 10:00:00,123 - ERROR - ", "ERROR:root:", "> "],
)  # fmt: skip
def test_what_launchers_and_loggers_put_before_a_line_is_left_away(before):
    (chain,) = chains("".join(f"{before}{line}\n" for line in PLAIN.splitlines()))
    (error,) = chain.errors
    assert error.message == "mat1 and mat2 shapes cannot be multiplied (4x20 and 30x2)"
    assert own(error.frames)[-1] == ("train.py", 8, "return self.b(h)")


def test_ranks_that_write_in_turn_are_told_apart():
    other = PLAIN.replace("RuntimeError: mat1", "KeyError: mat1").replace("line 8", "line 9")
    mixed = [
        f"[rank{n}]: {line}"
        for pair in zip(PLAIN.splitlines(), other.splitlines(), strict=True)
        for n, line in enumerate(pair)
    ]
    found = chains("\n".join(mixed))
    assert [(c.rank, c.errors[0].kind, own(c.errors[0].frames)[-1][1]) for c in found] == [
        ("[rank0]", "RuntimeError", 8),
        ("[rank1]", "KeyError", 9),
    ]


def test_lines_of_a_message_that_are_equally_long_are_not_one_word():
    said = "CUDA error: operation not permitted when stream is capturing"
    after = "CUDA kernel errors might be asynchronously reported at some other API call"
    (error,) = chains(
        f'Traceback (most recent call last):\n  File "train.py", line 30, in f\nRuntimeError: {said}\n{after}\n'
    )
    assert len(f"RuntimeError: {said}") == len(after)
    assert error.errors[0].message == f"{said}\n{after}"


def test_cut_and_wrapped_tracebacks_give_what_they_hold():
    lines = PLAIN.splitlines()
    (headless,) = chains("\n".join(lines[3:]))
    assert own(headless.errors[0].frames) == [("train.py", 8, "return self.b(h)")]
    (endless,) = chains("\n".join(lines[:-1]))
    assert (endless.errors[0].kind, len(endless.errors[0].frames)) == ("", 3)
    (wrapped,) = chains("\n".join(line[i : i + 50] for line in lines for i in range(0, len(line), 50)))
    assert own(wrapped.errors[0].frames)[-1] == ("train.py", 8, "return self.b(h)")
    assert "(4x20 and" in wrapped.errors[0].message


def test_the_forward_line_that_autograd_names_is_kept():
    forward = 'UserWarning: Error detected in ExpBackward0. Traceback of forward call that caused the error:\n  File "/home/ann/train.py", line 4, in <module>\n    b = a.exp()\n'
    (chain,) = chains(forward + PLAIN)
    assert own(chain.errors[0].forward) == [("train.py", 4, "b = a.exp()")]


def test_user_code_below_an_exception_of_the_compiler_is_its_innermost():
    text = PLAIN.replace("RuntimeError: mat1", "torch._dynamo.exc.Unsupported: mat1")
    (chain,) = chains(
        f'{text}\nfrom user code:\n   File "/home/ann/net.py", line 12, in forward\n    print(x)\n\nSet TORCH_LOGS="+dynamo"\n'
    )
    (error,) = chain.errors
    assert error.name == "Unsupported"
    assert own(error.frames)[-1] == ("net.py", 12, "print(x)")


@pytest.mark.parametrize(
    "text",
    [
        "Epoch 3 loss 0.3, 12 it/s",
        "/x/y.py:3: UserWarning: lr_scheduler.step() before optimizer.step()\n  warnings.warn(",
        "CUDA Error Count: 0\nECC Errors\n    Volatile: 0",
        'Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  File "/home/ann/train.py", line 8 in step\n',
    ],
)
def test_warnings_counters_and_stacks_are_no_exceptions(text):
    assert chains(text) == ()


def test_one_line_is_enough():
    (chain,) = chains("I get `RuntimeError: expected scalar type Half but found Float` in every step")
    assert chain.errors[0].message == "expected scalar type Half but found Float"
    (chain,) = chains("I get KeyError: 'lr'")
    assert chain.errors[0].message == "'lr'"
    (chain,) = chains("torch.cuda.OutOfMemoryError: CUDA out of memory.")
    assert (chain.errors[0].kind, chain.errors[0].name) == ("torch.cuda.OutOfMemoryError", "OutOfMemoryError")


@pytest.mark.parametrize(
    "unit",
    [
        'File "',
        "+-",
        "Error: ",
        "[rank0]: ",
        "a.",
        "----> 1 ",
        " | ",
        '  File "a.py", line 1, in f\n',
        "A" * 30,
        "(pid=1",
    ],
)
def test_an_exception_below_long_and_hostile_lines_is_read(unit):
    """What backtracks would not come to its end."""
    (*_, last) = chains(unit * 20_000 + "\n\nKeyError: 'x'\n")
    assert last.errors[-1].message == "'x'"
