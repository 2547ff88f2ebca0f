import pytest

from gpudoc.errors import GpudocError
from gpudoc.workload.document import nearest, parse_document, read_document


def test_every_key_knows_its_line():
    document = parse_document("a: 1\nb:\n  c: [1, 2]\n  d: x\n", "f.yaml", "config")
    assert document.data == {"a": 1, "b": {"c": [1, 2], "d": "x"}}
    assert document.line_of(("b", "d")) == 4
    assert document.line_of(("b", "missing")) == 2
    assert document.line_of(("nothing",)) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"# only a comment\n", "is empty"),
        (b"a: [1, 2\n", "not YAML"),
        (b"a: 1\na: 2\n", "stands twice"),
        (b"\xff\xfe\x00binary", "not UTF-8"),
        (b"a: \x00", "binary"),
        (b"a: !!python/object/apply:os.system ['true']", "not YAML"),
        (b"x" * (1 << 20) + b"x", "at most 1 MiB"),
        (b"[" * 2000, "nested too deeply|not YAML"),
        (b"a: 2024-13-45", "not YAML"),
    ],
)
def test_a_file_that_is_no_config_says_what_it_is(tmp_path, content, says):
    path = tmp_path / "cfg.yaml"
    path.write_bytes(content)
    with pytest.raises(GpudocError, match=says) as caught:
        read_document(path, "config")
    assert "cfg.yaml" in caught.value.message


def test_a_missing_file_names_the_one_that_exists(tmp_path):
    (tmp_path / "config.yaml").write_text("a: 1")
    with pytest.raises(GpudocError, match="no such config") as caught:
        read_document(tmp_path / "confg.yaml", "config")
    assert "config.yaml exists" in caught.value.hint


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(GpudocError, match="a folder"):
        read_document(tmp_path, "config")


def test_the_nearest_name_is_offered_else_all_of_them():
    assert nearest("epoch", ["epochs", "seed"]) == "; did you mean 'epochs'?"
    assert nearest("zzz", ["epochs", "seed"]) == "; allowed: epochs, seed"
