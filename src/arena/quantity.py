"""Numbers with units: bytes and cores as Kubernetes writes them, durations as people do; and the first of many names.

One reading for flags, YAML, settings and manifests: whole numbers of billionths (Kubernetes' own precision, rounded
up as it does), never a binary fraction on the way, and plain refusals. Nothing heavy is imported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NANO = 10**9
_LARGEST = 2**63 - 1  # what Kubernetes can hold
_LONGEST = 100 * 366 * 86400  # seconds; beyond this some clock overflows

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,9})|([A-Za-z]*))"

_SECONDS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}  # in milliseconds
_PART = r"([0-9]+)(?:\.([0-9]+))?(ms|[smhdw])"
_TOO_LONG = 64  # characters; no number a person writes is longer


def parse_bytes(text: str) -> int:
    """Bytes of a quantity, a fraction rounded up: `parse_bytes("64Mi")` is 67108864, `"1G"` 1000000000."""
    return _ceil(_nanos(text), _NANO)


def parse_cpu(text: str) -> float:
    """Cores of a quantity, to the thousandth (rounded up, as Kubernetes does): `parse_cpu("500m")` is 0.5."""
    return _ceil(_nanos(text), _NANO // 1000) / 1000


def parse_quantity(text: str) -> float:
    """The number of any Kubernetes quantity, also of a device: `parse_quantity("1500m")` is 1.5."""
    return _nanos(text) / _NANO


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `5m`, `1h30m`, `1d`, `250ms`; a bare number is seconds."""
    nanos = sum(_scaled(whole, part, _SECONDS[unit] * 10**6) for whole, part, unit in _duration_parts(text))
    if nanos > _LONGEST * _NANO:
        raise ValueError(f"{_short(text)} is longer than 100 years")
    return nanos / _NANO


def whole_seconds(text: str) -> int:
    """A duration as whole seconds, rounded up: what Kubernetes takes.

    >>> whole_seconds("300ms"), whole_seconds("2h")
    (1, 7200)
    """
    return int(-(-parse_duration(text) // 1))


def format_bytes(count: int) -> str:
    """A size for people, three digits and a binary unit: `format_bytes(1536)` is `1.5Ki`."""
    shown, unit = float(count), ""
    for bigger in _BINARY:
        if round(shown) < 1024:
            break
        shown, unit = shown / 1024, bigger
    return (f"{shown:.0f}" if shown >= 99.95 or not unit else f"{shown:.1f}".removesuffix(".0")) + unit


def format_age(seconds: float) -> str:
    """`12 s`, `5 min`, `3 h`, `2 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def _nanos(text: str) -> int:
    match = re.fullmatch(_QUANTITY, text.strip()) if len(text) <= _TOO_LONG else None
    sign, whole, part, exponent, unit = match.groups("") if match else ("",) * 5
    if not whole and not part:
        raise ValueError(f"{_short(text)} is not a quantity such as 512, 500m, 64Mi or 1G")
    number = _scaled(whole, part, _factor(text, exponent, unit))
    if sign == "-" and number:
        raise ValueError(f"{_short(text)} is negative")
    if number > _LARGEST * _NANO:
        raise ValueError(f"{_short(text)} is too large")
    return number


def _factor(text: str, exponent: str, unit: str) -> int | tuple[int, int]:
    """What one of this unit is in billionths; below a billionth as a fraction."""
    if unit in _BINARY:
        return _BINARY[unit] * _NANO
    if unit and unit not in _DECIMAL:
        raise ValueError(f"{_short(text)} has no known unit: {unit!r} is none of {', '.join([*_DECIMAL, *_BINARY])}")
    power = int(exponent or 0) if not unit else _DECIMAL[unit]
    if abs(power) > 30:
        raise ValueError(f"{_short(text)} has an exponent beyond 30")
    return 10 ** (9 + power) if power >= -9 else (1, 10 ** -(9 + power))


def _scaled(whole: str, part: str, factor: int | tuple[int, int]) -> int:
    """`whole.part` times the factor, rounded up."""
    times, divisor = factor if isinstance(factor, tuple) else (factor, 1)
    return _ceil(int((whole + part) or "0") * times, divisor * 10 ** len(part))


def _duration_parts(text: str) -> list[tuple[str, str, str]]:
    plain = text.strip() if len(text) <= _TOO_LONG else ""
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", plain):
        plain += "s"
    parts: list[tuple[str, str, str]] = re.findall(_PART, plain)
    if not re.fullmatch(f"(?:{_PART})+", plain):
        raise ValueError(f"{_short(text)} is not a duration such as 90s, 5m, 1h30m or 1d")
    sizes = [_SECONDS[unit] for _, _, unit in parts]
    if sizes != sorted(set(sizes), reverse=True):
        raise ValueError(f"{_short(text)} is not a duration: larger units come first and each once, as in 1h30m")
    return parts


def _short(text: str) -> str:
    return repr(text if len(text) <= _TOO_LONG else text[: _TOO_LONG - 3] + "...")


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


def few(names: Sequence[str], most: int = 3) -> str:
    """`worker-0, worker-1, worker-2 and 61 more`.

    >>> few(["worker-0"]), few(["a", "b", "c", "d"])
    ('worker-0', 'a, b, c and 1 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
