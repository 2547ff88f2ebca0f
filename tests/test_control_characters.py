import ast
import json
import unicodedata
from pathlib import Path

import pytest

from gpudoc import control_characters
from gpudoc.control_characters import escape_controls, escape_line, to_json

OBEYED = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp", "Cs")]
# signs that stand in a text of their script and are seen there
SEEN = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")


@pytest.mark.parametrize("escape", [escape_controls, escape_line])
def test_nothing_that_a_terminal_obeys_or_hides_is_left(escape):
    kept = {sign for sign in OBEYED if sign in escape(f"a{sign}b")}
    assert kept - SEEN == ({"\n"} if escape is escape_controls else set())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;pwn\x07", "\\x1b]0;pwn\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\tb", "a b"),
        (b"log\xff".decode("utf-8", "surrogateescape"), "log\\xff"),
        ("\U000e0041", "\\U000e0041"),
        ("größer · 模型 ✓ ┌─┐", "größer · 模型 ✓ ┌─┐"),
    ],
)
def test_they_are_written_out_and_letters_of_every_script_stay(text, shown):
    assert escape_controls(text) == escape_line(text) == shown


def test_a_line_stays_one_line():
    assert escape_line("a\nfix: b") == "a\\x0afix: b"
    assert escape_controls("a\nb") == "a\nb"


def test_a_document_may_be_shown_and_says_the_same():
    # with a letter between, as two halves would become one character
    document = {"text": "a".join(OBEYED) + "größer"}
    written = to_json(document)
    assert not set(written) & (set(OBEYED) - SEEN - {"\n"})
    assert json.loads(written) == document
    assert "größer" in written
    assert to_json(document, ascii_only=True).isascii()


# how else than by the console text may reach a terminal: escaped there, or into a pipe that gpudoc reads itself
WRITERS = {
    "render/live.py": "progress, escaped as it comes in",
    "train/watch/watching.py": "ranks speak without render",
    "cli/tune.py": "a question, escaped",
    "workload/images.py": "a program without the command line, escaped",
    "bench/collective.py": "a pipe",
    "bench/worker.py": "a pipe",
    "facts/live/handoff.py": "a pipe",
    "facts/live/launcher.py": "a pipe",
    "facts/live/nvml.py": "a pipe",
}


def writes_to_a_stream(node):
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called in ("print", "sys.stdout.write", "sys.stderr.write")


def test_only_these_files_write_to_a_terminal():
    package = Path(control_characters.__file__).parent
    writers = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if "inside" not in file.parts and any(map(writes_to_a_stream, ast.walk(ast.parse(file.read_text("utf-8")))))
    }
    assert writers == set(WRITERS)
