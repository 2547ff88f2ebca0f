import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpudoc.errors import ExitCode
from gpudoc.reading import UnreadableError, read_bytes, read_text
from gpudoc.yaml_files import dump_yaml, parse_yaml, read_yaml
from tests.waiting import wait_until


def aliases(first, following):
    return first + b"".join(
        following % (letter, letter, b",".join([b"*%c" % (letter - 1)] * 10)) for letter in range(ord("b"), ord("k"))
    )


def test_every_key_knows_its_line():
    document = parse_yaml("a: 1\nb:\n  c: [1, 2]\n  d: x\n", "f.yaml", "config")
    assert document.data == {"a": 1, "b": {"c": [1, 2], "d": "x"}}
    assert document.line_of(("b", "d")) == 4
    assert document.line_of(("b", "missing")) == 2
    assert document.line_of(("nothing",)) == 1


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("1e-3", 0.001),
        ("3E-4", 0.0003),
        ("-2e+2", -200.0),
        ("1.5e3", 1500.0),
        (".5e1", 5.0),
        ("1.0e-3", 0.001),
        ("1e-12", 1e-12),
    ],
)
def test_a_number_with_an_exponent_is_a_number_as_everywhere_else(written, number):
    read = parse_yaml(f"lr: {written}\n", "f.yaml", "config").data["lr"]
    assert (type(read), read) == (float, number)


@pytest.mark.parametrize(
    "text", ["1234e5678901", "12e456789012", "1e", "e5", "1e5x", "1.2.3", "12:30", "1-e3", "1e1234"]
)
def test_a_hash_or_a_name_with_an_e_among_digits_stays_text(text):
    assert parse_yaml(f"a: '{text}'\nb: {text}x\n", "f.yaml", "config").data == {"a": text, "b": f"{text}x"}
    assert parse_yaml(f"digest: {text}\n", "f.yaml", "config").data != {"digest": 0.0}
    read = parse_yaml(dump_yaml({"digest": text}), "f.yaml", "config").data["digest"]
    assert read == text


@pytest.mark.parametrize(
    "value", ["1e-3", "1e5", "3E4", "true", "1.0e-3", 0.001, 1e-05, 1e22, None, "12e34", [1, {"b": "2e2"}]]
)
def test_what_is_dumped_is_read_as_the_same(value):
    assert parse_yaml(dump_yaml({"a": value}), "f.yaml", "config").data == {"a": value}


@pytest.mark.parametrize(
    "content", [b"[" * 500, b"a: [" + b"1," * 21_000 + b"1]\n", aliases(b"a: &a [x,x]\n", b"%c: &%c [%s]\n")]
)
def test_yaml_beyond_the_bounds_is_not_called_something_else_than_yaml(tmp_path, content):
    (tmp_path / "cfg.yaml").write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        read_yaml(tmp_path / "cfg.yaml", "config")
    assert "not YAML" not in caught.value.message
    assert caught.value.hint.startswith("is this the right file?")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cfg.yaml: this config is empty"),
        (b"# only a comment\n", "cfg.yaml: this config is empty"),
        (b"a: [1, 2\n", "cfg.yaml:2:1: not YAML"),
        (b"a: 1\na: 2\n", "cfg.yaml:2:1: not YAML: the key 'a' occurs twice"),
        (b"a: 1\nbb: wi\x7fdth\n", "cfg.yaml:2:7: a control character (0x7f)"),
        (b"a: 1\nb: \x1b[31m\n", "cfg.yaml:2:4: a control character (0x1b)"),
        (b"a: \x00", "cfg.yaml:1:4: binary (a zero byte)"),
        (b"a: 1\nb: gr\xf6\xdfe\n", "cfg.yaml:2:6: not UTF-8"),
        (b"\xff\xfe\x00binary", "cfg.yaml:1:1: not UTF-8"),
        (b"a:\n\tb: 1\n", "cfg.yaml:2:1: not YAML"),
        (b"a: !!python/object/apply:os.system ['true']", "cfg.yaml:1:4: not YAML"),
        (b"x" * (1 << 20) + b"x", "at most 1 MiB"),
        (b"[" * 500, "cfg.yaml:1: nested too deeply: more than 40 levels"),
        (b"\n".join(b" " * n + b"a:" for n in range(60)), "cfg.yaml:42: nested too deeply"),
        (b"a: &a [*a]\n", "cfg.yaml:1: nested too deeply"),
        (b"a: 2024-13-45", "cfg.yaml:1: not YAML"),
        (b"a: 1\nb: " + b"9" * 6000, "cfg.yaml:2:4: not YAML: a number with 6000 digits"),
        (b"a: 0x" + b"f" * 6000, "cfg.yaml:1:4: not YAML: a number with 6002 digits"),
        (b'a: "\\uD800"', "cfg.yaml:1:4: not YAML: an escape that encodes half"),
        (b'a: "\\UFFFFFFFF"', "cfg.yaml:1: not YAML"),
        (aliases(b"a: &a [x,x]\n", b"%c: &%c [%s]\n"), "too large: its aliases stand for more than 100,000 values"),
        (
            aliases(b"a: &a {x: 1}\n", b"%c: &%c {<<: [%s]}\n"),
            "too large: its aliases stand for more than 100,000 values",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_no_yaml_says_what_it_is_and_where(tmp_path, content, says):
    path = tmp_path / "cfg.yaml"
    path.write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        read_yaml(path, "config")
    assert says in caught.value.message
    assert caught.value.exit_code is ExitCode.NOT_DONE


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"a: 1\nb: \x7f\n", "sed -n 2l "),
        ("a: größe\n".encode("utf-16"), "iconv -f utf-16 -t utf-8 "),
        ("a: größe\n".encode("latin1"), "iconv -f latin1 -t utf-8 "),
        (b"a:\n\tb: 1\n", "indent with spaces"),
    ],
)
def test_what_to_do_about_bytes_that_no_editor_shows(tmp_path, content, hint):
    (tmp_path / "cfg.yaml").write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        read_yaml(tmp_path / "cfg.yaml", "config")
    assert hint in caught.value.hint


def test_the_mark_that_windows_puts_first_is_no_part_of_the_text(tmp_path):
    (tmp_path / "cfg.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(tmp_path / "cfg.yaml", "config").data == {"a": 1}


def test_what_is_no_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place, says in (
        (tmp_path, "a folder"),
        (tmp_path / "pipe", "a pipe without a writer"),
        ("/dev/zero", "a device"),
        (tmp_path / "none", "no such config"),
        (tmp_path / ("x" * 400), "cannot be read: File name too long"),
        # a file that the kernel lets nobody read from its begin
        ("/proc/self/mem", "cannot be read"),
    ):
        with pytest.raises(UnreadableError, match=says):
            read_bytes(place, "config")


def _first(reader):
    try:
        return os.read(reader, 1)
    except BlockingIOError:
        # it is open at the other end, and nothing was written yet
        return b""


def test_a_pipe_that_somebody_writes_into_is_read_to_its_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    program = "import sys, time; f = open(sys.argv[1], 'w'); f.write('a: '); f.flush(); time.sleep(0.3); f.write('1')"
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer = subprocess.Popen([sys.executable, "-c", program, tmp_path / "pipe"])
    wait_until(lambda: _first(reader) or writer.poll() is not None)
    try:
        assert read_text(tmp_path / "pipe", "config") == ": 1"
    finally:
        os.close(reader)
        writer.wait()


NAMES = ("x$(touch pwned).yaml", "c.yaml; touch pwned; .yaml", "`touch pwned`.yaml", "-n.yaml", "a b.yaml")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [b"a: 1\nb: \x7f\n", "a: größe\n".encode("latin1")])
def test_what_to_type_names_the_file_and_runs_nothing_in_its_name(tmp_path, monkeypatch, name, content):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        read_yaml(Path(name), "config")
    command = caught.value.hint.rpartition(": ")[2]
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "b: " in done.stdout or Path("new.yaml").read_text("utf-8") == "a: größe\n"
    assert not Path("pwned").exists()


def test_a_file_of_very_many_values_is_refused_before_they_are_built(monkeypatch):
    built = []
    monkeypatch.setattr(yaml.SafeLoader, "get_single_node", lambda loader: built.append(loader))
    with pytest.raises(UnreadableError, match="contains more than 20,000 values"):
        parse_yaml("[" + "a," * 500_000 + "]", "cfg.yaml", "config")
    assert not built
