import pytest

from tools.handbook.page import Page, fenced, plain, sentence, table


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("open /dev/nvidia*", r"open /dev/nvidia\*"),
        ("0 <= target & more", "0 &lt;= target &amp; more"),
        ("join([model])", r"join(\[model\])"),
        ("`a_b <c>` and d_e", r"`a_b <c>` and d\_e"),
    ],
)
def test_plain_text_reads_the_same_in_markdown(text, written):
    assert plain(text) == written


def test_a_sentence_has_a_capital_unless_its_first_word_is_a_name_of_code():
    assert sentence("model too large") == "Model too large."
    assert sentence("/dev/shm is small") == "/dev/shm is small."
    assert sentence("torch.cuda fails.") == "torch.cuda fails."


def test_a_block_of_code_may_hold_backticks():
    assert fenced("```\nx\n```") == "````text\n```\nx\n```\n````\n"


def test_a_page_is_its_title_and_its_text():
    assert Page("a.md", "A_B", "\ntext\n\n").markdown == "# A\\_B\n\ntext\n"
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
