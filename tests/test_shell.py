import os
import subprocess

import pytest

from gpudoc.shell import is_name, is_pci_address, is_plain, is_uuid, is_version, quote, quote_path

INJECTED = (
    "$(touch x)",
    "`touch x`",
    ";touch x",
    "|sh",
    "&&sh",
    "\nsh",
    "'",
    '"',
    "\\",
    ">x",
    "<x",
    "*",
    "~",
    "!",
    "#",
    "\x1b[8m",
)


@pytest.mark.parametrize("word", [*INJECTED, "plain", "a b", "größe", os.fsdecode(b"log\xff"), "$'a'", "-rf"])
def test_a_shell_takes_a_quoted_word_as_it_is(word):
    said = subprocess.run(["bash", "-c", f"printf %s {quote(word)}"], capture_output=True, check=True)
    assert said.stdout == os.fsencode(word)
    assert quote(word).isprintable()


def test_no_program_takes_a_path_for_an_option():
    assert quote_path("-rf") == "./-rf"
    assert quote_path("--help; sh") == "'./--help; sh'"
    assert quote_path("a.yaml") == "a.yaml"


FORMS = (
    (
        is_version,
        ("2.5.1+cu124", "2.13.0+cpu", "570.86.15", "2.6.0.dev20250101+cu126", "3.0.0rc1", "2.4.0a0+git12ab", "12"),
    ),
    (is_pci_address, ("0000:3b:00.0", "00000000:3B:00.0", "3b:00.0")),
    (is_uuid, ("GPU-8c1f5e3a-0123-4567-89ab-0123456789ab", "MIG-8c1f5e3a-0123-4567-89ab-0123456789ab", "GPU-8c1f5e3a")),
    (is_name, ("nvidia-cudnn-cu12", "torch", "flash_attn", "gpu017.example.org")),
)


@pytest.mark.parametrize(("holds", "values"), FORMS)
def test_a_strict_form_holds_what_is_real_and_nothing_that_a_shell_obeys(holds, values):
    for value in values:
        assert holds(value), value
        assert is_plain(value)
        for injected in (*INJECTED, " -x", " "):
            assert not holds(value + injected), injected
            assert not holds(injected + value), injected


@pytest.mark.parametrize("injected", INJECTED)
def test_what_a_shell_obeys_is_not_plain(injected):
    assert not is_plain(f"a{injected}")
