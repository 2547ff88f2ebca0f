"""What --help says: each line begins with what it makes gpudoc do."""

import typer

from gpudoc.cli.app import application

# grows when an option needs another verb
VERBS = {
    "Aim", "Also", "Answer", "Check", "Choose", "Compare", "Compute", "Continue", "Examine", "Exit", "Expect",
    "Explain", "Find", "Forget", "Import", "Keep", "Leave", "Let", "Limit", "List", "Load", "Measure", "Name",
    "Predict", "Print", "Prove", "Remove", "Resume", "Run", "Search", "Serve", "Set", "Show", "Stay", "Stop", "Take",
    "Then", "Train", "Try", "Tune", "Use", "Watch", "Write",
}  # fmt: skip
# they begin with who or where, and then with a verb
BEFORE = ("Do not ", "For a command: ", "With --across: ")


def texts():
    group = typer.main.get_command(application())
    for name, command in group.commands.items():
        yield name, command.get_short_help_str(200)
        yield name, command.help
        for option in command.params:
            if option.param_type_name == "option":
                yield f"{name} {option.opts[0]}", option.help


def test_each_begins_with_a_verb():
    found = dict(texts())
    assert len(found) > 60
    wrong = []
    for place, text in found.items():
        for lead in BEFORE:
            text = text.removeprefix(lead)
        if text.split()[0].strip(",:").capitalize() not in VERBS:
            wrong.append(f"{place}: {text.splitlines()[0]}")
    assert not wrong, "\n".join(wrong)
