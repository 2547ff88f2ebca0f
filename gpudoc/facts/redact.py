"""Removes from a report everything that identifies people and places: names, homes, hosts, addresses, serials, keys.
The same value always becomes the same placeholder, so a reader can still see that two lines concern one host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import NewType, TypeVar, cast

from gpudoc.patterns import DOTALL, Match, Pattern, escape

# Every repetition is bounded, or begins only where a run of its characters begins: a report may quote one line of
# megabytes, and the time for it must stay proportional to its length.
_SENSITIVE = (
    r"[\w.-]{0,64}?(?:token|secret|passw(?:or)?d|passphrase|pwd|api[_-]?key|apikey|access[_-]?key|account[_-]?key|"
    r"private[_-]?key|signing[_-]?key|encryption[_-]?key|license[_-]?key|credential|cookie|session[_-]?id|"
    r"auth(?:orization)?(?!or))[\w.-]{0,64}"
)
_SECRET_KEY = Pattern(rf"(?i)(?:{_SENSITIVE}|(?:.*_)?key)")
# keys whose names only sound secret: they hold counts and switches
_NO_SECRET = Pattern(
    r"(?i)(?:max|num|total|new|pad|eos|bos|unk|n|per|tokens?|key)?[_-]?tokens?(?:[_-].*|s)?|.*tokeniz.*|authors?|key"
)
# a quoted value extends to its closing quote and may contain blanks; in JSON within JSON the quotes have backslashes
_QUOTED = r"\\?\"[^\"\n]{1,300}\"|\\?'[^'\n]{1,300}'"
_ASSIGNED = Pattern(
    rf"(?i)(?P<name>(?<![\w.-]){_SENSITIVE})(?P<join>\\?['\"]?\s*[=:]\s*|\s+(?=\S{{8,}}))"
    rf"(?P<value>{_QUOTED}|[^\s'\",;&}}]{{3,}})"
)
# an option and a variable of the environment end at a blank, whatever characters the value has
_OPTION = Pattern(rf"(?i)(?P<name>(?<![\w.-])--?{_SENSITIVE})(?P<join>\s+|=)(?P<value>{_QUOTED}|[^\s'\"-][^\s'\"]*)")
_VARIABLE = Pattern(
    rf"(?P<name>(?<![\w.?&-])[A-Z][A-Z0-9_]{{0,64}}?(?:PASS|PASSWORD|PASSWD|SECRET|TOKEN|KEY|PWD|CREDENTIALS?))(?P<join>=)"
    rf"(?P<value>{_QUOTED}|[^\s'\"]{{3,}})"
)
_DRAWN = Pattern(r"[A-Za-z0-9+_][A-Za-z0-9+/_=~-]{15,299}")
_UNQUOTED = Pattern(r"(?s)(\\?[\"'])(.*?)(\\?[\"'])")
_PASSWORD = Pattern(r"(?i).*(?:pass|secret|pwd).*")
_AUTHORIZATION = Pattern(
    r"(?i)(?P<name>\bauthorization\b\\?['\"]?[ \t]{0,8}[:=][ \t]{0,8}\\?['\"]?)(?P<value>[^\s'\"\\][^'\"\n\\]{2,800})"
)
# programs that take a password after a one-letter option, and programs that take a key as an argument
_LETTER = Pattern(
    r"(?P<name>\b(?:mysql\w{0,8}|mariadb\w{0,8}|sshpass|redis-cli|mongo\w{0,8})\b[^\n]{0,120}?\s-[pa] ?)"
    r"(?P<value>[^\s-]\S*)|"
    r"(?P<glued>(?<!\S)-p)(?P<rest>(?!ython)[A-Za-z][^\s=/:]{0,60}\d[^\s=/:]{0,60})(?!\S)"
)
_LOGIN = Pattern(
    r"(?P<name>\b(?:wandb|huggingface-cli|hf|ngc|docker|comet|clearml)\b[^\n]{0,40}?\blogin\b[^\n]{0,60}?\s)"
    r"(?P<value>[A-Za-z0-9_-]{20,})"
)
_TOKENS = Pattern(
    r"(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{16,}|"
    r"xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w-]{20,}|npm_\w{20,}|pypi-[\w-]{20,}|"
    r"dckr_pat_[\w-]{16,}|nvapi-[\w-]{20,}|r8_\w{20,}|eyJ[\w-]{8,400}\.[\w-]{8,}\.[\w-]*|xapp-[\w-]{10,}|whsec_\w{16,}|"
    r"dapi[0-9a-f]{32}(?:-\d)?|SG\.[\w-]{16,}\.[\w-]{16,}|[rsp]k_(?:live|test)_\w{10,}|"
    r"(?<![\w:])(?:bot)?\d{8,12}:[\w-]{35}(?![\w-])|"
    r"(?:hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks)/[\w/-]{8,})"
)
# the beginning of such a token where the text was cut off
_CUT_TOKEN = Pattern(
    r"(?:(?<![\w.-])|(?<=\.{3}))(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA|AIza|npm_|pypi-|"
    r"dckr_pat_|nvapi-|eyJ|dapi|SG\.|[rsp]k_(?:live|test)_)[\w.-]{3,}?(?=\.{3}|\u2026|\Z)"
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
    r"(?P<base>(?<![\w./-])(?:/[\w.-]{1,40}){0,4}?/(?:home\d?|homes|[Uu]sers|people)/|[A-Za-z]:\\{1,2}Users\\{1,2})"
    r"(?P<value>[^\s/\\:'\",;)\]<>]+)"
)
# usually a user's name, sometimes a group's or a data set's: so it is not replaced anywhere else
_SCRATCH = Pattern(r"(?P<base>(?<![\w./-])(?:/[\w.-]{1,40}){0,3}?/scratch\d?/)(?P<value>[^\s/\\:'\",;)\]<>]+)")
_PLAIN_USERS = frozenset(
    ("root", "user", "users", "runner", "ubuntu", "admin", "jovyan", "shared", "public", "default", "all")
)
_VERSION_BEFORE = Pattern(
    r"(?i)(?:[=~><@_/+-]=?|\bv|versions?|release|build|driver|vbios|firmware|cuda|cudnn|nccl|"
    r"(?:^|\s)(?:nvidia|cuda|lib|py|torch)[\w.-]*|(?:^|\s)[A-Za-z][\w.]*(?:-[\w.]+)+)[\"':]*\s*(?:[:=]\s*)?(?:\(\s*)?[\"']?$"
)
_PROMPT = Pattern(
    r"(?<![\w.+-])(?P<user>[A-Za-z_][\w.-]{0,63})@(?P<host>[A-Za-z0-9][\w.-]{0,253})"
    r"(?P<after>:[~/]|\s[^\]\n]{0,80}\][$#%])"
)
_PUBLIC = (
    "pytorch.org", "github.com", "githubusercontent.com", "nvidia.com", "python.org", "pythonhosted.org",
    "anaconda.org", "anaconda.com", "google.com", "googleapis.com", "amazonaws.com", "microsoft.com", "azure.com",
    "kernel.org", "ubuntu.com", "debian.org", "docker.com", "openai.com", "intel.com", "amd.com",
)  # fmt: skip
_HOSTS = (
    Pattern(
        r"(?P<before>\b(?:srun|slurmstepd|sbatch|salloc|slurmd): (?:error|warning|info): )"
        r"(?P<value>(?!tasks?\b)[A-Za-z][\w.-]*(?:\[[\d,-]+\])?)(?P<after>: )"
    ),
    Pattern(
        r"(?i)(?P<before>\b(?:JOB|STEP) [\d.+_]{1,40} ON )(?P<value>[A-Za-z0-9][\w.-]*(?:\[[\d,-]+\])?)(?P<after>)"
    ),
    # a node's name with its domain: the first part contains a number, and the domain is an institution's
    Pattern(
        r"(?i)(?P<before>(?<![\w.@/-]))(?P<value>(?=[a-z-]{0,40}\d|login|head)[a-z][\w-]{0,62}(?:\.[a-z0-9-]{1,63}){1,6}"
        r"\.(?:edu|gov|mil|net|org|com|eu|de|fr|uk|ch|nl|se|fi|dk|jp|cn|kr|au|ca|tw|br))(?P<after>(?![\w.-]*\w))"
    ),
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


# patterns that recognise a secret by a word before it
_AFTER_A_WORD = (_AUTHORIZATION, _BEARER, _LOGIN, _LETTER, _OPTION, _ASSIGNED, _SERIAL, *_HOSTS[:2])
# a redacted document, or one that the user wants unredacted; nothing else is printed or written as JSON
Private = NewType("Private", dict[str, object])
T = TypeVar("T")


def private(document: Mapping[str, object]) -> Private:
    """The document in a form that may leave the machine: without anything that identifies people or places."""
    return Redactor.of_this_process().private(document)


def whole(document: Mapping[str, object]) -> Private:
    """The document unchanged: for --no-redact, or for a document that contains nothing about this machine."""
    return Private(dict(document))


# the longest word that is never cut, and how far before a secret the word that reveals it may stand
_LONGEST_WORD, _REACH = 1500, 300
_LAST_WORD = Pattern(r"\S+\Z")


def place_to_cut(text: str, place: int) -> int:
    """`place`, or an earlier one, where a cut does not separate a secret from the word that reveals it."""
    word = _LAST_WORD.search(text[max(0, place - _LONGEST_WORD) : place])
    if word is not None and word.start():
        place -= len(word[0])
    begin = max(0, place - _REACH)
    near = text[begin : place + _REACH]
    for pattern in _AFTER_A_WORD:
        for found in pattern.finditer(near):
            if found.start() < place - begin < found.end():
                place = begin + found.start()
    return place


@dataclass(slots=True)
class Redactor:
    """Replaces identifying values; one Redactor per document keeps the placeholders consistent throughout."""

    user: str = ""
    host: str = ""
    home: str = ""
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _users: list[str] = field(default_factory=list)
    _hosts: dict[str, str] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    _known_at: int = 0

    @classmethod
    def of_this_process(cls) -> Redactor:
        """A Redactor that knows this user, host and home folder, so it finds them anywhere in a text."""
        import getpass
        import socket

        try:
            user = getpass.getuser()
        # Windows has no user database to ask if no environment variable names the user
        except (ImportError, KeyError, OSError):
            user = ""
        # only the kernel's answer: looking up the full name would use the network
        return cls(user=user, host=socket.gethostname(), home=str(Path.home()))

    def know_user(self, name: str) -> None:
        """Remember a user's name, so that it is found as a word anywhere in the document."""
        if len(name) > 1 and name.lower() not in _PLAIN_USERS and name not in self._users:
            self._users.append(name)

    def know_host(self, name: str, placeholder: str) -> None:
        """Remember a host's name, so that it is found as a word anywhere in the document, even without its domain."""
        for known in dict.fromkeys((name, name.split(".")[0])):
            if len(known) > 1 and known.lower() not in _KNOWN_PLACES:
                self._hosts[known] = placeholder

    def private(self, document: Mapping[str, object]) -> Private:
        """The document in a form that may leave the machine."""
        return Private(self.clean(dict(document)))

    def clean(self, value: T) -> T:
        """The same record or JSON value with every text redacted; a value under a secret's name is replaced whole."""
        return cast(T, self._clean(value))

    def _clean(self, value: object) -> object:
        if isinstance(value, str):
            return self._said(value)
        if isinstance(value, Mapping):
            return {self._clean(key): self._entry(str(key), item) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(map(self._clean, value))
        if isinstance(value, list):
            return [self._clean(item) for item in value]
        if is_dataclass(value) and not isinstance(value, type):
            parts = {part.name: getattr(value, part.name) for part in fields(value) if part.init}
            return replace(value, **{name: self._entry(name, part) for name, part in parts.items()})
        return value

    def _said(self, text: str) -> str:
        """Do the same as `text`, with a cache: a record repeats the same few sentences, files and names many times."""
        if len(self._names) != self._known_at:
            # a cached text may contain a name that was found later
            self._texts.clear()
            self._known_at = len(self._names)
        if text not in self._texts:
            self._texts[text] = self.text(text)
        return self._texts[text]

    def text(self, text: str) -> str:
        """`text` with every secret, name, home, host, address and serial replaced."""
        if not text:
            return text
        for name in sorted((name for name in self._hosts if name in text), key=len, reverse=True):
            text = _replace_word(text, name, lambda known=self._hosts[name]: known)  # type: ignore[misc]
        text = _PEM.sub(lambda m: self._name("secret", m[0]), text)
        text = _URL_LOGIN.sub(lambda m: f"{m['scheme']}{self._name('secret', m['value'])}@", text)
        text = _SIGNED.sub(lambda m: m["name"] + self._name("secret", m["value"]), text)
        for tokens in (_TOKENS, _CUT_TOKEN):
            text = tokens.sub(lambda m: self._name("secret", m[0]), text)
        text = _AUTHORIZATION.sub(lambda m: m["name"] + self._name("secret", m["value"].strip()), text)
        text = _BEARER.sub(lambda m: f"{m['name']} {self._name('secret', m['value'])}", text)
        text = _LOGIN.sub(lambda m: m["name"] + self._name("secret", m["value"]), text)
        text = _LETTER.sub(self._letter, text)
        for pattern in (_VARIABLE, _OPTION, _ASSIGNED):
            text = pattern.sub(self._assigned, text)
        text = _EMAIL.sub(lambda m: self._name("email", m[0]), text)
        text = self._identifiers(text)
        text = self._own(text)
        text = self._places(text)
        return self._known(text)

    def _entry(self, key: str, value: object) -> object:
        if isinstance(value, str) and value:
            if _SECRET_KEY.fullmatch(key) and (not _NO_SECRET.fullmatch(key) or _is_random(value)):
                return self._name("secret", value)
            if _WHOLE_VALUES.fullmatch(key):
                redacted = self._said(value)
                return redacted if redacted != value else self._name(_kind_of_key(key), value)
        return self._clean(value)

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
        text = _PROMPT.sub(self._prompt, text)
        text = _HOME.sub(lambda match: self._named(match, "user"), text)
        text = _SCRATCH.sub(lambda match: self._named(match, "folder"), text)
        for pattern in _HOSTS:
            text = pattern.sub(self._host, text)
        return text

    def _named(self, match: Match[str], kind: str) -> str:
        if match["value"].lower() in _PLAIN_USERS or match["value"].startswith("<"):
            return match[0]
        return match["base"] + self._name(kind, match["value"])

    def _prompt(self, match: Match[str]) -> str:
        user, host = match["user"], match["host"]
        user = user if user.lower() in _PLAIN_USERS else self._name("user", user)
        host = host if host.lower() in _KNOWN_PLACES else self._name("host", host)
        return f"{user}@{host}{match['after']}"

    def _letter(self, match: Match[str]) -> str:
        before, value = (match["name"], match["value"]) if match["name"] else (match["glued"], match["rest"])
        return before + (value if value.startswith("<") else self._name("secret", value))

    def _host(self, match: Match[str]) -> str:
        value = match["value"]
        if value.lower() in _KNOWN_PLACES or value.startswith(("<", "127.")) or value.isdecimal():
            return match[0]
        if value.lower().endswith(_PUBLIC):
            return match[0]
        return match["before"] + self._name("host", value) + match["after"]

    def _own(self, text: str) -> str:
        """Replace this process's home, host and user wherever they occur as words."""
        for value, kind in ((self.home, "home"), (self.host, "host"), (self.user, "user")):
            if len(value) > 2 and value.lower() not in _PLAIN_USERS and value not in ("/root", "localhost"):
                text = _replace_word(text, value, partial(self._name, kind, value))
        return text

    def _known(self, text: str) -> str:
        """Replace all names found so far wherever they occur as words."""
        for value in self._users:
            text = _replace_word(text, value, partial(self._name, "user", value))
        for (kind, value), name in list(self._names.items()):
            if kind in ("user", "host") and len(value) > 3 and value.lower() not in _PLAIN_USERS and value in text:
                text = _replace_word(text, value, lambda known=name: known)  # type: ignore[misc]
        return text

    def _assigned(self, match: Match[str]) -> str:
        name, value = match["name"].lstrip("-"), match["value"]
        quoted = _UNQUOTED.fullmatch(value)
        begin, inside, end = (quoted[1], quoted[2], quoted[3]) if quoted else ("", value, "")
        spaced = not match["join"].strip("'\" \t\\")
        is_number = inside.replace(".", "").isdecimal()
        if (_NO_SECRET.fullmatch(name) and not _is_random(inside)) or not inside or inside.startswith("<"):
            return match[0]
        if _is_plain(inside) and not (is_number and _PASSWORD.fullmatch(name)):
            return match[0]
        # "--token VALUE" hides a value, "the token was refused" does not
        if spaced and not match["name"].startswith("-"):
            return match[0]
        return match["name"] + match["join"] + begin + self._name("secret", inside) + end

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
    """Whether the value is a number or a switch, which is never a secret, whatever precedes it."""
    return bool(Pattern(r"(?i)[\d.,]+|true|false|none|null|yes|no|\(?not|missing|is|was|not").fullmatch(value))


def _is_random(value: str) -> bool:
    """Whether the value looks random: long, with mixed letters and digits. A plain word may follow 'token', too."""
    if not _DRAWN.fullmatch(value) or not any(map(str.isalpha, value)):
        return False
    num_digits = sum(map(str.isdecimal, value))
    is_mixed = value.lower() != value != value.upper() and num_digits > 0
    return (is_mixed and num_digits * 20 >= len(value)) or (num_digits >= 4 and value.isalnum())
