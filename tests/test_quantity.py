"""Quantities and durations: Kubernetes' rules, exact, and nonsense refused in a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.quantity import format_bytes, parse_bytes, parse_cpu, parse_duration, parse_quantity


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("512", 512),
        ("64Mi", 64 * 1024**2),
        ("1G", 10**9),
        ("1k", 1000),
        ("1.5Gi", 3 * 512 * 1024**2),
        (".5Ki", 512),
        ("1.", 1),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("12e-1", 2),
        ("500m", 1),
        ("+3", 3),
        (" 5 ", 5),
        ("0.1", 1),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_bytes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


ODD_QUANTITIES = ["1GGi", "1gi", "1K", "1KB", "Gi", "1 Gi", "1Gi\n1Gi", "1e3Mi", "1e", "-", ".", "e3", "1..2", "1,5"]
ODD_QUANTITIES += ["", " ", "1_000", "0x10", "-1", "-1Mi", "nan", "inf", "٣", "1e99", "1e99999999999", "9" * 5000]
ODD_QUANTITIES += ["9223372036854775808", "9Ei"]


@pytest.mark.parametrize("text", ODD_QUANTITIES)
def test_nonsense_is_refused_with_the_word(text: str) -> None:
    with pytest.raises(ValueError, match=r"is |has ") as caught:
        parse_bytes(text)
    assert len(str(caught.value)) < 200
    assert text.strip()[:10] in str(caught.value).encode().decode("unicode_escape", "replace") or not text.isascii()


@pytest.mark.parametrize(
    ("text", "cores"), [("500m", 0.5), ("2", 2.0), ("0.25", 0.25), ("1u", 0.001), ("1k", 1000.0), ("100n", 0.001)]
)
def test_cpu(text: str, cores: float) -> None:
    assert parse_cpu(text) == cores


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86400),
        ("2w", 14 * 86400),
        ("1h30m", 5400),
        ("1d2h3m4s5ms", 86400 + 7200 + 180 + 4.005),
        ("150", 150),
        ("1.5h", 5400),
        ("0.3", 0.3),
        ("250ms", 0.25),
        ("0", 0),
        (" 10s ", 10),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


ODD_DURATIONS = ["", "s", "-5s", "5x", "30m1h", "1m1m", "1h 30m", "nan", "inf", "1e3", "1e9d", "5M", "1:30", "99999d"]
ODD_DURATIONS += ["1h30", ".5s", "٣s", "1_0s", "9" * 100]


@pytest.mark.parametrize("text", ODD_DURATIONS)
def test_odd_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1536, "1.5Ki"),
        (10 * 1024**2, "10Mi"),
        (1024**2 - 1, "1Mi"),
        (100 * 1024**2 + 7, "100Mi"),
        (5 * 10**9, "4.7Gi"),
        (2**70, "1024Ei"),
    ],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text


@given(st.integers(0, 2**53), st.sampled_from(["", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_whole_numbers_are_exact(number: int, unit: str) -> None:
    factor = {"": 1, "k": 1000, "M": 10**6, "G": 10**9, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}[unit]
    if number * factor <= 2**63 - 1:
        assert parse_bytes(f"{number}{unit}") == number * factor
    else:
        with pytest.raises(ValueError, match="too large"):
            parse_bytes(f"{number}{unit}")


@given(st.integers(0, 10**12))
def test_milli_units_are_exact(milli: int) -> None:
    assert parse_quantity(f"{milli}m") == milli / 1000
    assert parse_cpu(f"{milli}m") == milli / 1000


@given(st.text(max_size=80))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    for parse in (parse_bytes, parse_cpu, parse_duration):
        try:
            number = parse(text)
        except ValueError:
            continue
        assert number >= 0


@given(st.integers(0, 2**63 - 1))
def test_a_shown_size_is_near_and_reads_back(count: int) -> None:
    assert abs(parse_quantity(format_bytes(count)) - count) <= count / 18 if count < 2**62 else format_bytes(count)


@given(st.integers(0, 870_000), st.integers(0, 59), st.integers(0, 59))
def test_compound_durations_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds
