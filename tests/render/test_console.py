import json

from gpudoc.render import console


def test_piped_output_has_no_colour(capsys):
    console.stdout().print("fine", style="bold red")
    assert capsys.readouterr().out == "fine\n"


def test_messages_go_to_stderr(capsys):
    console.stderr(plain=True).print("trying batch 64")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "trying batch 64\n")


def test_text_in_brackets_is_text(capsys):
    console.stdout().print("float32[3, 8] [red]")
    assert capsys.readouterr().out == "float32[3, 8] [red]\n"


def test_one_document_and_nothing_else(capsys):
    console.print_json({"schema": "x", "text": "größer"})
    assert json.loads(capsys.readouterr().out) == {"schema": "x", "text": "größer"}
