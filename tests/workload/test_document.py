import pytest

from gpudoc.errors import GpudocError
from gpudoc.workload.document import nearest, read_document


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
