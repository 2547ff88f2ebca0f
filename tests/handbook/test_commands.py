import subprocess
import sys

import typer.main

from gpudoc.bench.cases import cuda_soak
from gpudoc.bench.cases.catalog import CPU_CASES, CUDA_CASES
from gpudoc.cli.app import application
from tools.handbook.commands import command_pages, rows_page


def test_every_command_has_a_page_with_every_option_and_its_help():
    pages = {page.title.removeprefix("gpudoc "): page.text for page in command_pages()}
    commands = typer.main.get_command(application()).commands
    assert pages.keys() == commands.keys()
    for name, command in commands.items():
        for parameter in command.params:
            assert all(f"`{option}" in pages[name] for option in parameter.opts if option.startswith("-")), (
                parameter.name
            )


def test_a_page_says_what_the_help_says():
    done = subprocess.run(
        [sys.executable, "-m", "gpudoc", "bench", "--help"], capture_output=True, text=True, check=True
    )
    page = next(page for page in command_pages() if page.title == "gpudoc bench")
    said = "Take about 15 seconds instead of 90."
    assert said in done.stdout
    assert f"| `--quick` | {said} |" in page.text
    assert "gpudoc bench --quick --out bench.json" in page.text


def test_every_row_of_bench_is_explained():
    text = rows_page().text
    rows = {name for case in (*CPU_CASES, *CUDA_CASES, cuda_soak.CASE) for name in case.rows}
    assert len(rows) > 20
    assert not [name for name in rows if f"| `{name}` | " not in text]
