import pytest

from gpudoc.facts.readers import read
from gpudoc.facts.readers.clean import clean
from gpudoc.facts.readers.eight_bit import encoding_of

CHINESE = "请问这个错误怎么解决？我的显卡是 RTX 3090。\nRuntimeError: CUDA error: out of memory\n"
RUSSIAN = "Привет! Обучение падает, помогите:\nRuntimeError: CUDA error: out of memory\n"


@pytest.mark.parametrize("encoding", ["gbk", "gb18030", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_chinese_is_read_in_every_encoding_that_it_is_saved_in(encoding):
    assert [line.text for line in clean(CHINESE.encode(encoding))] == CHINESE.splitlines()


@pytest.mark.parametrize("encoding", ["koi8-r", "cp1251", "cp866", "utf-8", "utf-16"])
def test_russian_is_read_in_every_encoding_that_it_is_saved_in(encoding):
    assert [line.text for line in clean(RUSSIAN.encode(encoding))] == RUSSIAN.splitlines()


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Größe überprüfen: das Übliche ist schön", "cp1252"),
        ("Le modèle a été entraîné là-bas, créé hier", "cp1252"),
        ("프로그램이 실행되지 않습니다", "cp949"),
        ("プログラムが動かない。助けてください", "shift-jis"),
    ],
)
def test_other_languages_are_taken_for_neither(text, encoding):
    assert encoding_of(text.encode(encoding)) == "cp1252"


@pytest.mark.parametrize(("text", "encoding"), [(CHINESE, "gbk"), (RUSSIAN, "koi8-r")])
def test_a_question_below_a_long_log_in_ascii_tells_its_encoding(text, encoding):
    log = "".join(f"step {step} loss 0.5\n" for step in range(5_000))
    lines = read((log + text).encode(encoding)).text.lines
    assert [line.text for line in lines[-2:]] == text.splitlines()


def test_bytes_in_no_encoding_are_shown_beside_what_can_be_read():
    data = b"\xff\xfe\xfa".replace(b"\xff\xfe", b"\x81\x8d") + b"\nRuntimeError: CUDA error: out of memory\n"
    assert read(data).text.lines[-1].text == "RuntimeError: CUDA error: out of memory"
