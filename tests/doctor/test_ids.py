"""Every cause that any command prints has a row, so that `gpudoc doctor --explain` answers for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import gpudoc
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.fleet.wording import IDS
from gpudoc.render.catalogue import show_catalogue

PACKAGE = Path(gpudoc.__file__).parent
# what makes a finding, with its id as the first argument or as `id`
MAKERS = ("Finding", "_finding", "finding")


def ids_in(path: Path) -> Iterator[str]:
    for call in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in MAKERS:
            given = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "id")]
            for one in given:
                choices = (one.body, one.orelse) if isinstance(one, ast.IfExp) else (one,)
                yield from (choice.value for choice in choices if isinstance(choice, ast.Constant))


def test_every_finding_of_every_command_is_a_cause_of_the_catalogue():
    found = {one: path.name for path in PACKAGE.rglob("*.py") for one in ids_in(path)} | dict.fromkeys(IDS.values(), "")
    assert len(found) > 60
    assert {"cpu_stolen", "power_limit_reached", "node_silent", "driver_not_answering"} <= found.keys()
    assert not {one: where for one, where in found.items() if one not in CATALOGUE}


def test_a_finding_about_a_fleet_is_explained(capsys):
    assert show_catalogue("node_silent") == 0
    assert "gpudoc doctor; dmesg" in capsys.readouterr().out
