"""A public class name exists once in the package, so that its reader knows the thing."""

import ast
import collections
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "gpudoc"


def test_a_public_class_name_exists_once():
    places = collections.defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, f"another class has this name already: {twice}"
