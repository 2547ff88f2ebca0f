"""A public class name exists once in the package, so that its reader knows the thing."""

import ast
import collections
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "gpudoc"
# these are the names of two things still; the list may only shrink. The quickstart's `Text` is part of the fingerprint
# by which a checkpoint and a profile know their data set
TWICE = frozenset({"Evidence", "Text"})


def test_a_public_class_name_exists_once():
    places = collections.defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    new = {name: where for name, where in twice.items() if name not in TWICE}
    assert not new, f"another class has this name already: {new}"
    assert set(twice) >= TWICE, f"these names are unique now, take them off the list: {sorted(TWICE - set(twice))}"
