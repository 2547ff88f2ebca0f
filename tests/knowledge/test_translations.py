import csv
import itertools
from collections import Counter
from pathlib import Path

import pytest

from gpudoc.doctor.model import Card, Setting
from gpudoc.doctor.questions import answers_to
from gpudoc.doctor.registry import CATALOGUE
from gpudoc.doctor.setting import called
from gpudoc.facts.readers import read
from gpudoc.knowledge import translations
from gpudoc.knowledge.cause_rows import own_rows, parse_row
from gpudoc.knowledge.tables import FOLDER, parse_texts
from gpudoc.knowledge.translations import LANGUAGES, translation
from gpudoc.patterns import Pattern

REPORTS = Path(__file__).parents[2] / "tools" / "wording" / "reports.tsv"
COMMON = 8
LETTERS = {"zh": Pattern(r"[\u4e00-\u9fff]"), "ru": Pattern(r"[\u0400-\u04ff]")}
BRACES = Pattern(r"\{ ?(\w*)(?::[^}]*)?\}")
# what is typed, named or printed stays as it is
CODE = Pattern(r"(?a)[A-Za-z_][\w.]*\(|\b[a-z_]+=(?!about)[\w.'-]*\w|\b[A-Z]+_[A-Z_]+\b")
ROWS = {cause: parse_row(text) for rows in own_rows().values() for cause, text in rows.items()}
SETTINGS = [
    Setting(place=place, packager=packager, driver_cuda=cuda, capability=capability, num_gpus=gpus, cards=cards)
    for place, (packager, cuda), (capability, gpus), cards in itertools.product(
        ("host", "docker", "kubernetes", "slurm", "colab", "notebook", "wsl", "windows"),
        (("pip", None), ("conda", (11, 4)), ("uv", (13, 0))),
        ((None, None), ((12, 0), 2), ((7, 0), 1)),
        ((), (Card(index=1),), (Card(index=0), Card(pci_address="0000:3b:00.0"))),
    )
]


def counts(text: str) -> Counter[str]:
    return Counter(BRACES.findall(text))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_row_says_as_much_as_the_english_one_with_the_same_words_and_code(language):
    for row in parse_texts((FOLDER / "languages" / f"{language}_causes.yaml").read_text("utf-8")):
        english, said = ROWS[row["id"]], translation(language).of_cause(row["id"])
        assert len(said) >= 2
        if isinstance(english["fix"], dict):
            assert list(row["fix"]) == list(english["fix"])
        for text, told in said.items():
            assert counts(text) == counts(told), row["id"]
            assert LETTERS[language].search(told), told
            assert set(CODE.findall(text)) <= set(CODE.findall(told)), told


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_has_the_words_of_the_english_one(language):
    for english, said in translation(language).sentences.items():
        assert counts(english) == counts(said), english
        assert BRACES.sub("", said).strip(), english


def test_both_languages_have_the_same_causes_and_the_commonest_are_among_them():
    told = [set(translation(language).causes) for language in LANGUAGES]
    assert told[0] == told[1]
    with REPORTS.open(encoding="utf-8", newline="") as lines:
        seen = Counter(row[1] for row in csv.reader(lines, delimiter="\t"))
    common = {cause for cause, count in seen.items() if count >= COMMON and cause in CATALOGUE}
    assert len(common) >= 55
    assert common <= told[0]
    assert sum(CATALOGUE[cause].family == "code" for cause in told[0]) >= 10


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_step_of_each_cause_is_said_in_every_setting_and_its_command_is_not_touched(language):
    known = translation(language)
    english = {(c, step.say) for c in known.causes for setting in SETTINGS for step in CATALOGUE[c].fix(setting)}
    assert len(english) > 150
    left = [(cause, say) for cause, say in english if not LETTERS[language].search(known.translate(say, cause))]
    assert not left


@pytest.mark.parametrize("language", LANGUAGES)
def test_sentences_of_other_tables_and_of_code_are_known(language):
    known = translation(language)
    for name in ("nothing_known", "slow"):
        for fact in parse_texts((FOLDER / "deciding.yaml").read_text("utf-8"))[name]:
            assert LETTERS[language].search(known.translate(fact)), fact
    for answer in answers_to(read(asked := "How many num_workers for 8 CPU cores?"), asked):
        assert LETTERS[language].search(known.translate(answer.say))
    assert known.translate(called((Card(index=3), Card(index=5)))) != "GPUs 3 and 5"


def test_a_title_with_figures_of_its_own_stands_behind_the_causes():
    chinese = translation("zh")
    assert chinese.title(CATALOGUE["oom_capacity"].title, "oom_capacity").startswith("显存不足")
    assert (
        chinese.title("train.py:8: h has 20 features, b wants 30", "shape_mismatch")
        == "两个张量的形状不匹配（train.py:8: h has 20 features, b wants 30）"
    )
    assert chinese.title("Another process (412) holds 9 GiB of the card's 24 GiB", "oom_other_process") == (
        "另一个进程（412）占用了显卡 24 GiB 显存中的 9 GiB"
    )
    assert chinese.title("Something new", "gpu_ecc_error") == "Something new"


def test_a_sentence_with_a_reason_is_only_known_where_the_reason_is():
    russian = translation("ru")
    known = (
        "Switch the machine off, which ends every program on it, and switch it on again (a warm restart may not be "
        "enough)."
    )
    assert russian.translate(known, "gpu_fallen_off_bus").startswith("Выключите машину")
    assert russian.translate(known, "oom_capacity") == known
    unknown = "Switch the machine off, which ends every program on it, and sing."
    assert russian.translate(unknown, "gpu_fallen_off_bus") == unknown


def test_the_words_of_the_screen_take_their_values_as_they_are():
    assert translations.translation("zh").say("fix: {}", "x = {k: v}") == "解决：x = {k: v}"
    assert translations.translation("ru").say("not a sentence {}", 3) == "not a sentence 3"
