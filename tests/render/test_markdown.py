import re

import pytest

from gpudoc.render.markdown import code, fence, prose, table
from gpudoc.render.table import Table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("CUDA_VISIBLE_DEVICES hides the GPU", "CUDA_VISIBLE_DEVICES hides the GPU"),
        ("Put `with x[0]:` around it", "Put `with x[0]:` around it"),
        ("a <img src=x> b", r"a \<img src=x\> b"),
        ("[click](https://evil.example)", "`[click](https://evil.example)`"),
        ("ask @torvalds, see #1 and www.evil.example", "ask `@torvalds,` see `#1` and `www.evil.example`"),
        ("_a_ **b** ~~c~~", r"\_a\_ \*\*b\*\* \~\~c\~\~"),
        ("one ` alone", "one ' alone"),
        ("a\n\n## b\x1b[8m", r"a\\x0a\\x0a## b\\x1b\[8m"),
    ],
)
def test_a_sentence_shows_what_it_was_given(text, shown):
    assert prose(text) == shown


def test_code_within_a_line_has_no_way_out():
    assert code("a` <b> `c\nd") == "`a' <b> 'c\\x0ad`"


@pytest.mark.parametrize("command", ["pip install torch", "```\n# heading", "a ````` b"])
def test_no_line_of_a_command_closes_its_block(command):
    first, *inside, last = "\n".join(fence(command)).split("\n")
    assert first == f"{last}sh"
    assert inside == command.split("\n")
    assert not any(re.match(rf"\s*{last}", line) for line in inside)


def test_a_table_keeps_its_columns():
    shown = table(Table(headings=("a", "b"), rows=(("x|y", "1"),), numeric=frozenset("b")))
    assert shown == ["| a | b |", "| --- | --: |", "| x/y | 1 |"]
