import re
import shlex

import typer.main
import yaml

from gpudoc.cli.app import application
from tools.handbook.agents import write_agents
from tools.handbook.site import collect_pages


def test_what_agents_read_names_commands_and_pages_that_there_are(tmp_path):
    pages = collect_pages()
    write_agents(tmp_path, pages)
    skill, note = (tmp_path / "SKILL.md").read_text(), (tmp_path / "AGENTS.md").read_text()
    head = yaml.safe_load(skill.split("---")[1])
    assert set(head) == {"name", "description"}
    commands = typer.main.get_command(application()).commands
    for line in re.findall(r"`(gpudoc [^`(]+)", skill + note):
        name, *rest = shlex.split(line)[1:]
        options = {option for one in commands[name].params for option in one.opts}
        own = rest[: rest.index("--")] if "--" in rest else rest
        assert {word for word in own if word.startswith("--")} <= options
    listed = set(re.findall(r"\]\(pages/(\S+)\)", (tmp_path / "llms.txt").read_text()))
    assert listed == {page.place for page in pages}
