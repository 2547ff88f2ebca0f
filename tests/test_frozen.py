import copy
import dataclasses
import pickle
from collections.abc import Mapping

import pytest

from gpudoc.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """What the other tests look at: every kind of field."""

    name: str
    size: int = 3
    marks: Mapping[str, int] = dataclasses.field(default_factory=dict, compare=False)
    note: str = dataclasses.field(default="", repr=False)
    number: int = dataclasses.field(default=7, init=False)


@dataclass(frozen=True, slots=True)
class Place:
    """One with fields in order, and more to do when it is made."""

    row: int
    column: int = 0

    def __post_init__(self):
        if self.row < 0:
            raise ValueError(self.row)


@dataclass(frozen=True, slots=True)
class Corner(Place):
    """One with a field of its own behind those of another."""

    side: str = "left"

    def __repr__(self):
        return f"the {self.side} corner"


def test_a_frozen_class_takes_its_fields_and_their_defaults():
    shelf = Shelf(name="a")
    assert (shelf.name, shelf.size, shelf.marks, shelf.note, shelf.number) == ("a", 3, {}, "", 7)
    assert Shelf(name="b").marks is not shelf.marks
    assert (Place(1, 2).row, Place(1, column=2).column, Corner(1, 2, "right").side) == (1, 2, "right")


def test_a_wrong_argument_is_a_type_error_that_names_the_class():
    for wrong in (lambda: Shelf(), lambda: Shelf("a"), lambda: Shelf(name="a", colour=1), lambda: Place(1, 2, 3)):
        with pytest.raises(TypeError, match=r"(Shelf|Place)\.__init__\(\)"):
            wrong()
    with pytest.raises(ValueError, match="-1"):
        Place(-1)


def test_a_frozen_object_is_equal_and_has_the_hash_by_its_compared_fields_only():
    one, same = Shelf(name="a", marks={"x": 1}), Shelf(name="a")
    assert one == same
    assert hash(one) == hash(same)
    assert one != Shelf(name="b")
    assert Place(1) != Corner(1)
    assert Place(1) != (1, 0)
    assert {Place(1), Place(1), Place(2)} == {Place(2), Place(1)}


def test_a_frozen_object_can_neither_be_set_nor_deleted_nor_given_more():
    for change in ("setattr(place, 'row', 2)", "delattr(place, 'row')", "setattr(place, 'more', 2)"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            eval(change, {"place": Place(1), "setattr": setattr, "delattr": delattr})
    assert not hasattr(Place(1), "__dict__")


def test_a_frozen_object_is_shown_copied_and_replaced_as_any_dataclass():
    shelf = Shelf(name="a", note="hidden", marks={"x": 1})
    assert repr(shelf) == "Shelf(name='a', size=3, marks={'x': 1}, number=7)"
    assert repr(Corner(1)) == "the left corner"
    assert dataclasses.replace(Corner(1), row=2) == Corner(2)
    for other in (pickle.loads(pickle.dumps(shelf)), copy.copy(shelf), copy.deepcopy(shelf)):
        assert other == shelf
        assert other.marks == {"x": 1}
    assert [field.name for field in dataclasses.fields(Corner)] == ["row", "column", "side"]


def test_a_class_that_is_not_frozen_with_slots_is_one_of_the_standard_library():
    @dataclass(slots=True)
    class Open:
        row: int = 0

    place = Open()
    place.row = 2
    assert place == Open(2)
