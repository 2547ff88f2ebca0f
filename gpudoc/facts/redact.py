"""Takes out of a report what says who and where: names, homes, hosts, addresses, serials, keys; the same thing always
becomes the same placeholder, so that a reader can still see that two lines speak of one host."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gpudoc.patterns import DOTALL, Match, Pattern, escape

# Every repetition is bounded, or begins only where a run of its characters begins: a report may quote one line of
# megabytes, and nothing here may take time beyond proportion to it.
_SENSITIVE = (
    r"[\w.-]{0,64}?(?:token|secret|passw(?:or)?d|passphrase|pwd|api[_-]?key|apikey|access[_-]?key|account[_-]?key|"
    r"private[_-]?key|signing[_-]?key|encryption[_-]?key|license[_-]?key|credential|cookie|session[_-]?id|"
    r"auth(?:orization)?(?!or))[\w.-]{0,64}"
)
_SECRET_KEY = Pattern(rf"(?i)(?:{_SENSITIVE}|(?:.*_)?key)")
# keys under which counts and switches stand, whose names only sound secret
_NO_SECRET = Pattern(
    r"(?i)(?:max|num|total|new|pad|eos|bos|unk|n|per|tokens?|key)?[_-]?tokens?(?:[_-].*|s)?|.*tokeniz.*|author.*|key"
)
_ASSIGNED = Pattern(
    rf"(?i)(?P<name>(?<![\w.-]){_SENSITIVE})(?P<join>['\"]?\s*[=:]\s*['\"]?|\s+(?=\S{{8,}}))"
    r"(?P<value>[^\s'\",;&}]{3,})"
)
_TOKENS = Pattern(
    r"(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{16,}|"
    r"xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w-]{20,}|npm_\w{20,}|pypi-[\w-]{20,}|"
    r"dckr_pat_[\w-]{16,}|nvapi-[\w-]{20,}|r8_\w{20,}|eyJ[\w-]{8,400}\.[\w-]{8,}\.[\w-]*)"
)
_PEM = Pattern(r"-----BEGIN [A-Z ]*(?:PRIVATE KEY|CERTIFICATE)-----.*?(?:-----END [A-Z ]+-----|\Z)", DOTALL)
_BEARER = Pattern(r"(?i)\b(?P<name>bearer|basic)\s+(?P<value>[\w.~+/=-]{8,})")
_URL_LOGIN = Pattern(
    r"(?P<scheme>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,20}://)(?P<value>[^\s/@:]{1,256}(?::[^\s/@]{0,256})?)@"
)
_SIGNED = Pattern(r"(?i)(?P<name>[?&](?:sig|signature|x-amz-[\w-]+|x-goog-[\w-]+|key|code)=)(?P<value>[^&\s'\"]+)")
_EMAIL = Pattern(r"(?<![\w.+-])[\w.+-]{1,128}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[A-Za-z]{2,24}\b")
_UUID = Pattern(r"\b(?P<kind>GPU-|MIG-)?(?P<value>[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})\b")
_SHORT_UUID = Pattern(r"\b(?P<kind>GPU-|MIG-)(?P<value>[0-9a-fA-F]{6,}(?:-[0-9a-fA-F]+)*)\b")
_MAC = Pattern(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}(?![0-9a-fA-F:])")
_SERIAL = Pattern(
    r"(?i)(?P<name>\b(?:serial(?:[ _-]?(?:number|no))?|asset[ _-]tag|board[ _-]id|s/n)\b['\"]?\s*[:=]\s*['\"]?)"
    r"(?P<value>[\w./-]{4,})"
)
_IP4 = Pattern(
    r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.]*\d)(?!\.so|[-+_]\w)"
)
_IP6 = Pattern(r"(?i)(?<![\w:])(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3})(?:::?[0-9a-f]{1,4}){2,7}(?![\w:])")
_HOME = Pattern(
    r"(?P<base>(?<![\w.])/(?:home|Users|export/home|data/home)/|[A-Za-z]:\\{1,2}Users\\{1,2})"
    r"(?P<value>[^\s/\\:'\",;)\]<>]+)"
)
_PLAIN_USERS = frozenset(
    ("root", "user", "users", "runner", "ubuntu", "admin", "jovyan", "shared", "public", "default", "all")
)
_VERSION_BEFORE = Pattern(
    r"(?i)(?:[=~><@_/+-]=?|\bv|versions?|release|build|driver|vbios|firmware|cuda|cudnn|nccl|"
    r"(?:^|\s)(?:nvidia|cuda|lib|py|torch)[\w.-]*|(?:^|\s)[A-Za-z][\w.]*(?:-[\w.]+)+)[\"':]*\s*(?:[:=]\s*)?(?:\(\s*)?[\"']?$"
)
_HOSTS = (
    Pattern(r"(?P<before>(?<![\w.-])[A-Za-z_][\w.-]{0,63}@)(?P<value>[A-Za-z0-9][\w.-]{0,253})(?P<after>:[~/])"),
    Pattern(
        r"(?m)(?P<before>^(?:[A-Z][a-z]{2}\s+\d+ \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+)\s)(?P<value>[A-Za-z0-9][\w.-]*)"
        r"(?P<after>\s+[\w./-]+(?:\[\d+\])?:)"
    ),
    Pattern(r"(?m)(?P<before>^[ \t]{0,8})(?P<value>[A-Za-z0-9][\w.-]{0,253})(?P<after>:\d+:\d+ \[\d+\] NCCL)"),
    Pattern(
        r"(?i)(?P<before>\b(?:host(?:_?name)?|node_?name|node_?list|master[_-]addr(?:ess)?|submit_host|rdzv[_-]endpoint)"
        r"['\"]?\s*[=:]\s*['\"]?)(?P<value>[A-Za-z0-9][\w.\[\],-]*)(?P<after>)"
    ),
    Pattern(
        r"(?P<before>\b(?:tcp|nccl|grpc|ssh|redis|postgres(?:ql)?|mongodb|amqp|ftp|smb|nfs)://)"
        r"(?P<value>[A-Za-z0-9][\w.-]*)(?P<after>)"
    ),
    Pattern(
        r"(?i)(?P<before>(?<![\w.-]))(?P<value>[a-z0-9][\w-]{0,63}(?:\.[\w-]{1,63}){0,8}"
        r"\.(?:internal|local|lan|corp|intra|intranet|cluster|hpc|home\.arpa))(?P<after>(?![\w-]))"
    ),
)
_KNOWN_PLACES = frozenset(("localhost", "none", "null", "true", "false", "unknown", "auto", "static", "memory"))
_WHOLE_VALUES = Pattern(
    r"(?i)(?:host_?name|node_?name|node_?list|user_?name|user|login|master_addr|.*_host|.*_user|.*nodelist|serial.*|uuid)"
)
_PLACEHOLDER = Pattern(r"<[a-z]+-\d+>")


@dataclass(slots=True)
class Redactor:
    """Replaces what identifies; one Redactor for one document keeps its placeholders the same throughout."""

    user: str = ""
    host: str = ""
    home: str = ""
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _users: list[str] = field(default_factory=list)
    _hosts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_this_process(cls) -> Redactor:
        """A Redactor that knows this user, this host and this home, and so finds them anywhere in a text."""
        try:
            user = getpass.getuser()
        # Windows has no list of users to ask when no variable names one
        except (ImportError, KeyError, OSError):
            user = ""
        # only what the kernel says: asking for a full name would ask the network
        return cls(user=user, host=socket.gethostname(), home=str(Path.home()))

    def know_user(self, name: str) -> None:
        """A user's name that stands in the document, to be found as a word anywhere in it."""
        if len(name) > 1 and name.lower() not in _PLAIN_USERS and name not in self._users:
            self._users.append(name)

    def know_host(self, name: str, placeholder: str) -> None:
        """A host's name that stands in the document, found as a word anywhere in it, with or without its domain."""
        for known in dict.fromkeys((name, name.split(".")[0])):
            if len(known) > 1 and known.lower() not in _KNOWN_PLACES:
                self._hosts[known] = placeholder

    def document(self, value: object) -> object:
        """The same JSON value with every text in it redacted; what stands under a secret's name is replaced whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._entry(str(key), item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(item) for item in value]
        return value

    def text(self, text: str) -> str:
        """`text` with every secret, name, home, host, address and serial replaced."""
        if not text:
            return text
        for name in sorted((name for name in self._hosts if name in text), key=len, reverse=True):
            text = _replace_word(text, name, lambda known=self._hosts[name]: known)  # type: ignore[misc]
        text = _PEM.sub(lambda m: self._name("secret", m[0]), text)
        text = _URL_LOGIN.sub(lambda m: f"{m['scheme']}{self._name('secret', m['value'])}@", text)
        text = _SIGNED.sub(lambda m: m["name"] + self._name("secret", m["value"]), text)
        text = _TOKENS.sub(lambda m: self._name("secret", m[0]), text)
        text = _BEARER.sub(lambda m: f"{m['name']} {self._name('secret', m['value'])}", text)
        text = _ASSIGNED.sub(self._assigned, text)
        text = _EMAIL.sub(lambda m: self._name("email", m[0]), text)
        text = self._identifiers(text)
        text = self._places(text)
        return self._known(text)

    def _entry(self, key: str, value: object) -> object:
        if isinstance(value, str) and value:
            if _SECRET_KEY.fullmatch(key) and not _NO_SECRET.fullmatch(key):
                return self._name("secret", value)
            if _WHOLE_VALUES.fullmatch(key):
                redacted = self.text(value)
                return redacted if redacted != value else self._name(_kind_of_key(key), value)
        return self.document(value)

    def _identifiers(self, text: str) -> str:
        for pattern in (_UUID, _SHORT_UUID):
            text = pattern.sub(lambda m: (m["kind"] or "") + self._name("uuid", m["value"].lower()), text)
        text = _SERIAL.sub(lambda m: m["name"] + self._name("serial", m["value"]), text)
        text = _MAC.sub(lambda m: self._name("mac", m[0].lower()), text)
        text = _IP6.sub(lambda m: self._name("address", m[0].lower()), text)
        return _IP4.sub(self._address, text)

    def _address(self, match: Match[str]) -> str:
        start = match.string.rfind("\n", 0, match.start()) + 1
        before = match.string[max(start, match.start() - 60) : match.start()]
        if match[0].startswith(("127.", "0.0.0.", "255.")) or _VERSION_BEFORE.search(before):
            return match[0]
        return self._name("address", match[0])

    def _places(self, text: str) -> str:
        text = _HOME.sub(self._home, text)
        for pattern in _HOSTS:
            text = pattern.sub(self._host, text)
        return text

    def _home(self, match: Match[str]) -> str:
        if match["value"].lower() in _PLAIN_USERS or match["value"].startswith("<"):
            return match[0]
        return match["base"] + self._name("user", match["value"])

    def _host(self, match: Match[str]) -> str:
        value = match["value"]
        if value.lower() in _KNOWN_PLACES or value.startswith(("<", "127.")) or value.isdigit():
            return match[0]
        return match["before"] + self._name("host", value) + match["after"]

    def _known(self, text: str) -> str:
        """Names met anywhere so far, and this process's own, wherever they stand as words."""
        for value, kind in ((self.home, "home"), (self.host, "host"), (self.user, "user")):
            if len(value) > 2 and value.lower() not in _PLAIN_USERS and value not in ("/root", "localhost"):
                text = _replace_word(text, value, partial(self._name, kind, value))
        for value in self._users:
            text = _replace_word(text, value, partial(self._name, "user", value))
        for (kind, value), name in list(self._names.items()):
            if kind in ("user", "host") and len(value) > 3 and value.lower() not in _PLAIN_USERS and value in text:
                text = _replace_word(text, value, lambda known=name: known)  # type: ignore[misc]
        return text

    def _assigned(self, match: Match[str]) -> str:
        name = match["name"].lstrip("-")
        spaced = not match["join"].strip("'\" \t")
        if _NO_SECRET.fullmatch(name) or match["value"].startswith("<") or _is_plain(match["value"]):
            return match[0]
        # "--token VALUE" hides a value, "the token was refused" does not
        if spaced and not match["name"].startswith("-"):
            return match[0]
        return match["name"] + match["join"] + self._name("secret", match["value"])

    def _name(self, kind: str, value: str) -> str:
        if _PLACEHOLDER.fullmatch(value):
            return value
        known = self._names.get((kind, value))
        if known is None:
            number = 1 + sum(other == kind for other, _ in self._names)
            known = "~" if kind == "home" else f"<{kind}-{number}>"
            self._names[kind, value] = known
        return known


def _kind_of_key(key: str) -> str:
    lowered = key.lower()
    found = next((kind for kind in ("serial", "uuid", "user") if kind in lowered), "")
    return found or ("user" if "login" in lowered else "host")


def _replace_word(text: str, word: str, name: Callable[[], str]) -> str:
    return Pattern(rf"(?<![\w<-]){escape(word)}(?![\w>-])").sub(lambda _: name(), text)


def _is_plain(value: str) -> bool:
    """Numbers and switches are no secrets, whatever stands before them."""
    return bool(Pattern(r"(?i)[\d.,]+|true|false|none|null|yes|no|\(?not|missing|is|was|not").fullmatch(value))
