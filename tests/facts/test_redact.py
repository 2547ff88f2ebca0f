"""Planted secrets of every kind, in every place a report has; none may survive, and what helps must."""

from __future__ import annotations

import json
import random
import string

import pytest

from gpudoc.facts.redact import Redactor

SEED = random.Random(20261121)


def letters(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(SEED.choice(alphabet) for _ in range(count))


def hexes(count: int) -> str:
    return letters(count, "0123456789abcdef")


def uuid() -> str:
    return "-".join(hexes(n) for n in (8, 4, 4, 4, 12))


def address() -> str:
    return f"10.{SEED.randint(20, 254)}.{SEED.randint(20, 254)}.{SEED.randint(20, 254)}"


def name() -> str:
    return "q" + letters(8, string.ascii_lowercase)


# a bare 'token' counts or is a word of a text, or it is a secret: what stands behind it says which
TOKEN_FORMS = (
    "python train.py --token {} --steps 9",
    "--token={}",
    "token={}",
    "token: {}",
    '{{"token": "{}"}}',
    "TOKEN={}",
    "login(token='{}')",
)


def drawn():
    return f"{letters(12)}Q{letters(6)}z{letters(4, string.digits)}"


# a line with {} for the secret, and what makes a secret for it
LINES = [
    ("export HF_TOKEN={}", lambda: "hf_" + letters(34)),
    ("HUGGING_FACE_HUB_TOKEN: {}", lambda: letters(37)),
    ("WANDB_API_KEY={} python train.py", lambda: hexes(40)),
    ("wandb: login --relogin {}", lambda: "sk-" + letters(40)),
    ("git clone https://{}@github.com/org/private.git", lambda: "ghp_" + letters(36)),
    ("pip install --index-url https://{}@packages.example.com/simple torch", lambda: f"{name()}:{letters(20)}"),
    ("AWS_SECRET_ACCESS_KEY={}", lambda: letters(40)),
    ("aws_access_key_id = {}", lambda: "AKIA" + letters(16, string.ascii_uppercase)),
    ("Authorization: Bearer {}", lambda: letters(48)),
    ("curl -H 'Authorization: Basic {}'", lambda: letters(28)),
    ("python serve.py --api-key {} --port 80", lambda: letters(32)),
    ("python serve.py --password={}", lambda: letters(14)),
    ('{{"client_secret": "{}", "n": 1}}', lambda: letters(30)),
    ("DB_PASSWORD='{}'", lambda: letters(18)),
    ("GET https://x.blob.core.windows.net/data?sig={}&se=1", lambda: letters(43)),
    ("jwt eyJhbGciOiJIUzI1NiJ9.{}", lambda: f"{letters(40)}.{letters(30)}"),
    ("glpat {}", lambda: "glpat-" + letters(20)),
    ("OPENAI_API_KEY={}", lambda: "sk-proj-" + letters(40)),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----", lambda: letters(64)),
    ("ngc key nvapi-{}", lambda: letters(64)),
    ('  File "/home/{}/project/train.py", line 12, in <module>', name),
    ("/Users/{}/miniconda3/envs/ml/bin/python", name),
    ("C:\\Users\\{}\\AppData\\Local\\Programs\\Python\\python.exe", name),
    ("{}@node:~/project$ nvidia-smi", lambda: "root"),
    ("root@{}:/workspace# nvidia-smi", lambda: name() + "-gpu-01"),
    ("Nov 20 12:00:01 {} kernel: NVRM: Xid (PCI:0000:17:00): 79", lambda: name() + "-n3"),
    ("{}:4242:4300 [0] NCCL INFO Bootstrap", lambda: name() + "-dgx"),
    ("MASTER_ADDR={} MASTER_PORT=29500", lambda: name() + "-head"),
    ("  host      : {}", lambda: name() + ".cluster.local"),
    ("tcp://{}:29500", lambda: name() + "-rdzv"),
    ("connect to {}:29500 refused", address),
    ("inet {} netmask 255.255.255.0", address),
    ("link/ether {} brd", lambda: ":".join(hexes(2) for _ in range(6))),
    ("inet6 fe80::{} scope link", lambda: ":".join("a" + hexes(3) for _ in range(4))),
    ("GPU 0: NVIDIA A100 (UUID: GPU-{})", uuid),
    ("CUDA_VISIBLE_DEVICES=GPU-{}", lambda: hexes(8)),
    ("    Serial Number : {}", lambda: letters(13, string.digits)),
    ("contact {} for access", lambda: f"{name()}@uni-example.edu"),
    ("machine id {}", uuid),
    ("mounted from {}.corp:/export", lambda: name() + "-nas"),
    ("Authorization: token {}", lambda: hexes(40)),
    ("Authorization: ApiKey {}", lambda: letters(20)),
    ('{{"Authorization": "ApiKey {}"}}', lambda: letters(9)),
    ("curl -H 'X-Auth: 1' -H 'Authorization: {}'", lambda: letters(12)),
    ("mysql --password {}", lambda: letters(6)),
    ("mysql -u root -p{}", lambda: letters(8)),
    ("deploy -p{}", lambda: "hunter" + letters(4, string.digits)),
    ("sshpass -p {} ssh node", lambda: letters(5)),
    ("PGPASSWORD={} psql", lambda: f"{letters(1)}&{letters(3)};{letters(5)}"),
    ("password = 'correct {} battery'", lambda: letters(9)),
    ('passphrase: "correct {} battery"', lambda: letters(9)),
    (r'{{"text": "{{\"password\": \"correct {}\"}}"}}', lambda: letters(9)),
    ("wandb login {}", lambda: hexes(40)),
    ("$ wandb login --relogin --host x {}", lambda: hexes(40)),
    ("WANDB_KEY={}", lambda: letters(30)),
    ("POST https://hooks.slack.com/services/{}", lambda: f"T{letters(8)}/B{letters(8)}/{letters(24)}"),
    ("https://discord.com/api/webhooks/{}", lambda: f"{letters(18, string.digits)}/{letters(68)}"),
    ("https://api.telegram.org/bot{}/sendMessage", lambda: f"{letters(10, '123456789')}:{letters(35)}"),
    *((form, make) for form in TOKEN_FORMS for make in (drawn, lambda: hexes(40))),
    ("databricks {}", lambda: "dapi" + hexes(32)),
    ("sendgrid {}", lambda: f"SG.{letters(22)}.{letters(43)}"),
    ("stripe {}", lambda: "sk_live_" + letters(24)),
    ("/lustre/home/{}/run", name),
    ("/gpfs/users/{}/run", name),
    ("/scratch/{}/run", name),
    ("/p/scratch/{}/run", name),
    ("[{}@gpu01 x]$ python train.py", name),
    ("[ann@{} x]$ python train.py", lambda: "gpu" + letters(4, string.digits)),
    ("{}@gpu01:~/project$ nvidia-smi", name),
    ("srun: error: {}: task 3: Killed", lambda: "gpu" + letters(4, string.digits)),
    ("slurmstepd: error: *** JOB 12 ON {} CANCELLED AT 2026-11-20 ***", lambda: "gpu" + letters(4, string.digits)),
    ("connected to {} in 3 s", lambda: f"cn{letters(4, string.digits)}.hpc.uni-example.edu"),
]
PLANTED = [(line, make()) for _ in range(6) for line, make in LINES if make() != "root"]


def test_at_least_two_hundred_are_planted():
    assert len({secret for _, secret in PLANTED}) >= 200


@pytest.mark.parametrize("shape", ["text", "lines of a document", "values of a document", "one text"])
def test_no_planted_secret_survives(shape):
    redactor = Redactor()
    if shape == "one text":
        output = redactor.text("\n".join(line.format(secret) for line, secret in PLANTED))
    elif shape == "lines of a document":
        output = json.dumps(redactor.clean({"lines": [line.format(secret) for line, secret in PLANTED]}))
    elif shape == "values of a document":
        findings = [{"evidence": [{"fact": "x", "value": line.format(secret)}]} for line, secret in PLANTED]
        output = json.dumps(redactor.clean({"findings": findings}))
    else:
        output = "\n".join(redactor.text(line.format(secret)) for line, secret in PLANTED)
    assert [(line, secret) for line, secret in PLANTED if secret in output] == []


def test_secrets_under_their_names_in_a_document():
    document = {"environment": {"WANDB_API_KEY": "plain-value-1", "HF_TOKEN": "abc"}, "db_password": "x y z"}
    text = json.dumps(Redactor().clean(document))
    assert not any(value in text for value in ("plain-value-1", "abc", "x y z"))
    secret = drawn()
    counted = {"token": "128009", "num_tokens": "81920", "eos_token": "<|endoftext|>"}
    clean = Redactor().clean({**counted, "inner": {"token": secret}})
    assert secret not in json.dumps(clean)
    assert counted.items() <= clean.items()


def test_this_user_host_and_home_are_found_anywhere():
    redactor = Redactor(user="mlinde", host="rack7-node3", home="/nfs/people/mlinde")
    text = redactor.text("rack7-node3 ran /nfs/people/mlinde/run.py for mlinde; scratch is /scratch/mlinde/data")
    assert text == "<host-1> ran ~/run.py for <user-1>; scratch is /scratch/<user-1>/data"


def test_the_same_thing_has_the_same_placeholder():
    redactor = Redactor()
    first = redactor.clean({"gpus": [{"uuid": "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"}]})
    again = redactor.text("CUDA_VISIBLE_DEVICES=GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
    assert first == {"gpus": [{"uuid": "GPU-<uuid-1>"}]}
    assert again == "CUDA_VISIBLE_DEVICES=GPU-<uuid-1>"


def test_redacting_twice_changes_nothing_more():
    once = Redactor().text("\n".join(line.format(secret) for line, secret in PLANTED[:40]))
    assert Redactor().text(once) == once


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-cublas-cu12        12.4.5.8",
        "nvidia-cublas-cu12==12.4.5.8",
        "libcublas                 12.4.5.8                      0    nvidia",
        "opencv-python 4.8.0.76",
        "cuDNN version: 9.1.0.70",
        "libcudnn.so.8.9.7.29",
        "Driver Version: 550.54.14    CUDA Version: 12.4",
        "VBIOS Version : 96.00.61.00.01",
        "00000000:17:00.0 Off |                    0 |",
        "NVRM: Xid (PCI:0000:17:00): 79, pid=1234, name=python",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        '  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1511',
        "max_new_tokens=512 num_tokens: 81920 tokenizer=bert pad_token_id=0",
        "KeyError: 'token_type_ids'",
        "author: someone",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "at::native::copy_ c10::Error c10::cuda::CUDAException",
        "2026-11-20 12:34:56,789 - INFO - step 100 loss 2.31",
        "127.0.0.1:29500",
        "https://download.pytorch.org/whl/cu126",
        "The access token was refused",
        "tokens=81920 tokens: <|endoftext|> token=128009 eos_token: </s> token = tokenizer.encode(text)[0]",
        "token: model.layers.0.self_attn.q_proj.weight --tokenizer Qwen2.5-Coder-7B-Instruct",
        "--token /run/secrets/token_file_2026 token: encoder_layer_0_self_attention",
        "monkey = 3",
        "Authorization failed",
        "authors = ['someone']",
        "srun: error: Unable to create step for job 12: Job violates accounting",
        "torch.nn.modules.conv1.weight conda-forge download-r2.pytorch.org",
        "docker run -p 8080:80 -p8888:8888 gcc -pthread -pipe",
        "/usr/lib/python3.11/site-packages/torch/utils/data.py /code/run/a.py",
        "KeyError: 'password'",
        "The password is wrong",
    ],
)
def test_what_helps_is_kept(line):
    assert Redactor().text(line) == line


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "a.",
        "a-",
        "ab:",
        "1.",
        "token",
        "/home/",
        "a@",
        "key=",
        "word ",
        "\n",
        "a@b:/",
        "--",
        "/a",
        "-p1",
        "[a@b ",
        "authorization: ",
        "--password ",
        "PASSWORD=",
        "password='",
        "wandb login ",
        "a1.b",
        "/scratch",
    ],
)
def test_a_very_long_line_takes_no_time_beyond_proportion(part):
    """The suite's timeout is the bound: what grows with the square of the length would not end within it."""
    text = part * (300_000 // len(part))
    assert Redactor(user="mlinde", host="rack7-node3", home="/nfs/people/mlinde").text(text)


def test_a_host_that_is_known_is_replaced_with_and_without_its_domain():
    redactor = Redactor()
    redactor.know_host("cn17.hpc.example.org", "<node-3>")
    assert (
        redactor.text("cn17: lost; cn17.hpc.example.org answers, cn170 too")
        == "<node-3>: lost; <node-3> answers, cn170 too"
    )
