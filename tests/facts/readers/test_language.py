import pytest

from gpudoc.facts.readers import read
from gpudoc.facts.readers.language import language_of

TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/home/张三/项目/train.py", line 42, in <module>\n'
    "    loss.backward()  # 反向传播\n"
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
)
LOG = "\n".join(f"step {step} loss {1 / (step + 1):.4f}" for step in range(300))


def told(text: str) -> str:
    return language_of(read(text).text)


@pytest.mark.parametrize(
    "text",
    [
        "我的3090训练时GPU利用率只有10%，怎么办？",
        "显存不足怎么办",
        f"请问这个错误怎么解决？\n{TRACE}",
        f"{TRACE}\n已经把 batch 调到 1 了还是不行",
        f"{LOG}\n训练到这里就卡住了，请问是什么原因？",
        "CUDA out of memory 怎么解决？用的是 PyTorch 2.6 和 RTX 4090",
        "图像/视频数据训练很慢",
    ],
)
def test_who_asks_in_chinese_is_answered_in_chinese(text):
    assert told(text) == "zh"


@pytest.mark.parametrize(
    "text",
    [
        "Обучаю модель на 3090, загрузка GPU всего 10 %. Что делать?",
        f"Помогите, обучение падает:\n{TRACE}",
        f"Помогите!\n{TRACE}",
        "Не хватает видеопамяти, batch size 32, RTX 3060",
        f"{LOG}\nдальше ничего не происходит",
    ],
)
def test_who_asks_in_russian_is_answered_in_russian(text):
    assert told(text) == "ru"


@pytest.mark.parametrize(
    "text",
    [
        TRACE,
        LOG,
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/中文 数据/图片 1.png'",
        "FileNotFoundError: No such file: D:\\项目\\数据\\train.csv",
        "loaded checkpoint from /mnt/данные/модели/последняя.pt\nstep 1 loss 0.3",
        # what a program prints of its data
        f"{LOG}\nsample: 今天天气很好\n{LOG}",
        "2026-01-01 10:00:00 INFO 开始训练，共 100 步\nRuntimeError: CUDA error: out of memory",
        # a name, a greeting and a quotation within an English question
        'My training on "中文维基百科" is slow, how do I find out why? The GPU is at 10 %.',
        "I train on 中文数据 and it is slow.\nMy GPU is at 10 %, how can I make it faster please?",
        "Hello, why is my job slow? (привет)",
        # other languages with these letters
        "学習がとても遅いです。どうすればいいですか？GPU使用率は10%です。",
        "Чому моє навчання таке повільне? Відеокарта завантажена на 10 %, її не вистачає",
    ],
)
def test_everything_else_is_answered_in_english(text):
    assert told(text) == "en"


def test_of_two_languages_the_one_that_somebody_writes_more_of_counts():
    assert told("训练很慢，请问怎么办？\nhow to fix this?") == "zh"
    assert told("训练慢\nMy training is slow since I changed the card, and I do not know how to find out why.") == "en"
    assert told("训练很慢，请问怎么办？\nПомогите") == "zh"
