import pytest

from gpudoc.knowledge.stacks import stack_rows


@pytest.mark.parametrize("section", ["outer", "loader", "inner", "lines", "waits"])
def test_each_row_says_what_it_looks_like_and_what_that_is(section):
    for row in stack_rows(section):
        assert row.says.keys() & {"file", "function", "line"}
        assert row.says.keys() >= ({"what", "fix"} if section == "waits" else {"phase"})


def test_a_frame_fits_by_its_file_and_its_function():
    save = next(row for row in stack_rows("outer") if "serialization" in str(row.says.get("file")))
    assert save.fits_frame("/v/torch/serialization.py", "save")
    assert not save.fits_frame("/v/torch/serialization.py", "load")
    assert not save.fits_frame("/u/other.py", "save")


def test_what_a_row_does_not_speak_of_it_does_not_fit():
    sleeps, loader = stack_rows("waits")[-1], stack_rows("waits")[2]
    assert sleeps.fits_line("time.sleep(3)")
    assert not sleeps.fits_frame("/u/train.py", "sleep")
    assert loader.fits_frame("/v/torch/utils/data/dataloader.py")
    assert not loader.fits_line("next(loader)")
