"""Which names and values look secret, so that they are masked wherever they are shown and never stored.

A guess must err on the side of hiding, but not so far that `MAX_TOKENS=512` or `AUTHOR` lose their values: names are
read as words, and a value that is a mere switch (`HF_HUB_DISABLE_IMPLICIT_TOKEN=1`) hides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MASK = "***"

_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
_SECRET_WORD = (
    r"secrets?|credentials?|\w*passw\w*|passphrases?|tokens?|auth|authorization|cookies?|pat"
    r"|(?:api|access|secret|private|auth)keys?|(?:auth|access|bearer|session|refresh)tokens?"
)
_KEY_OF = {"access", "account", "api", "auth", "client", "deploy", "encryption", "master", "private"}
_KEY_OF |= {"secret", "service", "session", "shared", "signing", "ssh", "storage"}
# The secret's place or nature, not the secret: TOKEN_FILE, SSH_AUTH_SOCK, AUTH_TYPE.
_ABOUT = {"count", "dir", "enabled", "endpoint", "expiry", "file", "host", "len", "length", "limit", "method", "mode"}
_ABOUT |= {"name", "path", "port", "provider", "ref", "size", "sock", "timeout", "ttl", "type", "uri", "url"}
# Tokens of text, not of doors: MAX_TOKENS, PAD_TOKEN_ID.
_TEXT_TOKEN = {
    "bos",
    "cls",
    "eos",
    "id",
    "ids",
    "len",
    "mask",
    "max",
    "min",
    "new",
    "num",
    "pad",
    "per",
    "sep",
    "special",
}
_TEXT_TOKEN |= {"batch", "budget", "input", "output", "prompt", "total", "train", "unk", "vocab"}
_SWITCHES = {"", "0", "1", "true", "false", "yes", "no", "on", "off", "none", "null"}

_VALUE = "|".join(
    [
        r"(?<![A-Za-z0-9])(?:"
        r"hf_[A-Za-z0-9]{16,}|gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{16,}"
        r"|gsk_[A-Za-z0-9]{16,}|nvapi-[\w-]{16,}|dckr_pat_[\w-]{16,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{16,}"
        r"|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
        r"|eyJ[\w-]{5,}\.eyJ[\w-]{2,}\.[\w-]*)",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        r"(?<=://)[^\s/:@]*:[^\s/@]+(?=@)",
        r"(?<=AccountKey=)[^;\s]+|(?<=hooks\.slack\.com/services/)[\w/]+",
        r"(?i:(?<=bearer )|(?<=basic ))[\w+/=.-]{16,}",
    ]
)


def looks_secret(name: str, value: str = "") -> bool:
    """True for names such as `HF_TOKEN`, `db.password`, `apiKey` and values such as `ghp_…`, `AKIA…`, a JWT.

    >>> looks_secret("WANDB_API_KEY"), looks_secret("X", "https://me:pw@host/"), looks_secret("AUTHOR")
    (True, True, False)
    """
    if value and re.search(_VALUE, value):
        return True
    return not (value and value.strip().lower() in _SWITCHES) and _secret_name(name)


def split(env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The plain and the secret part of an environment."""
    secret = {name: value for name, value in env.items() if looks_secret(name, value)}
    return {name: value for name, value in env.items() if name not in secret}, secret


def mask_object(node: Any, name: str = "") -> Any:
    """A part of a Kubernetes object with `***` for what looks secret: by its key, or as the value of a variable.

    >>> mask_object({"env": [{"name": "HF_TOKEN", "value": "hf_x"}], "password": "p", "image": "i:1"})
    {'env': [{'name': 'HF_TOKEN', 'value': '***'}], 'password': '***', 'image': 'i:1'}
    """
    if isinstance(node, Mapping):
        own = str(node.get("name", ""))
        return {key: mask_object(value, own if key == "value" else str(key)) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [mask_object(one, name) for one in node]
    return MASK if isinstance(node, str) and looks_secret(name, node) else node


def mask_sets(sets: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """Paths of an object and their values, without what looks secret."""
    return tuple((path, mask_object(value, path.rpartition(".")[2])) for path, value in sets)


def masked_in(node: Any, name: str = "") -> list[str]:
    """The names of what is masked in a part of an object."""
    if isinstance(node, Mapping):
        own = str(node.get("name", ""))
        return [one for key, value in node.items() for one in masked_in(value, own if key == "value" else str(key))]
    if isinstance(node, list | tuple):
        return [found for one in node for found in masked_in(one, name)]
    return [name] if node == MASK else []


def mask(mapping: Mapping[str, str]) -> dict[str, str]:
    """The mapping with `***` for every value that looks secret."""
    return {name: MASK if looks_secret(name, value) else value for name, value in mapping.items()}


def mask_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Text without the given secrets (four characters and more) and without whatever looks like a token.

    >>> mask_text("curl -H 'X: swordfish'", ["swordfish"])
    "curl -H 'X: ***'"
    """
    for secret in sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return re.sub(_VALUE, MASK, text)


def mask_words(argv: Sequence[str]) -> list[str]:
    """A command line for people: `--password X`, `--api-key=X`, `TOKEN=X` and tokens without their values."""
    masked: list[str] = []
    for before, word in zip(["", *argv], argv, strict=False):
        name, equals, value = word.partition("=")
        flag = before.lstrip("-") if before.startswith("-") and "=" not in before and not word.startswith("-") else ""
        if equals and value and re.fullmatch(r"[\w.-]+", name) and looks_secret(name, value):
            masked.append(f"{name}={mask_text(value) if re.search(_VALUE, value) else MASK}")
        else:
            masked.append(MASK if flag and looks_secret(flag, word) else mask_text(word))
    return masked


def _secret_name(name: str) -> bool:
    words = [word.lower() for word in re.findall(_WORDS, name)]
    if not words or words[-1] in _ABOUT:
        return False
    return any(_secret_word(words, position) for position in range(len(words)))


def _secret_word(words: list[str], position: int) -> bool:
    word, around = words[position], {*words[:position], *words[position + 1 :]}
    if word in ("token", "tokens"):
        return not around & _TEXT_TOKEN
    if word in ("key", "keys"):
        return position > 0 and words[position - 1] in _KEY_OF
    if word in ("pass", "pwd"):  # DB_PASS and MYSQL_PWD, but neither PWD nor PASS_RATE
        return 0 < position == len(words) - 1 and words[0] != "old"
    return re.fullmatch(_SECRET_WORD, word) is not None
