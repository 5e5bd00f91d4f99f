"""Sizes and durations with units: what is read, what is refused, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.base.units import (
    format_duration,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)
from paxosblock.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0B", 0),
        ("1B", 1),
        ("512KiB", 524_288),
        ("128MiB", 134_217_728),
        ("0.5KiB", 512),
        (" 1 GiB ", 1_073_741_824),
        ("64k", 65_536),
        ("128m", 134_217_728),
        ("128M", 134_217_728),
        ("1.5g", 1_610_612_736),
        ("2t", 2_199_023_255_552),
        ("40KB", 40_960),
        ("40kb", 40_960),
        ("1kB", 1024),
        ("2TB", 2_199_023_255_552),
        ("512kib", 524_288),
        ("7b", 7),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("0s", 0.0),
        ("1us", 1e-6),
        ("1ms", 0.001),
        ("60s", 60.0),
        ("1.5h", 5400.0),
        ("20min", 1200.0),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, duration_s: float) -> None:
    assert parse_duration(text) == duration_s


def test_a_rate_is_a_size_per_second() -> None:
    assert parse_rate("64MiB/s") == parse_rate(" 64m / s") == 64 << 20


@pytest.mark.parametrize("text", ["64MiB", "64MiB/min", "/s", "64/s", "fast"])
def test_what_is_no_size_per_second_is_no_rate(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_rate(text)


def test_a_size_without_a_unit_is_refused_with_the_units_there_are() -> None:
    with pytest.raises(ConfigError, match=r"^size '512' has no unit: add one of B, KiB, MiB, "):
        parse_size("512")


def test_a_duration_without_a_unit_is_refused_with_the_units_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"^duration '60' has no unit: add one of us, ms, s, min, h, d$"
    ):
        parse_duration("60")


@pytest.mark.parametrize("text", ["512 bytes", "5min", "1ki", "1p"])
def test_an_unknown_unit_of_a_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown unit .*: use one of B, KiB, MiB, GiB, TiB$"):
        parse_size(text)


@pytest.mark.parametrize("text", ["128m", "5M", "1S", "2H", "64k"])
def test_a_duration_has_no_unit_that_could_mean_a_size_or_a_month(text: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown unit .*: use one of us, ms, s, min, h, d$"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "B", "-1B", "1e3B", "1,5KiB", "KiB 1", "٣B", "1B 2B"])
def test_a_text_that_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size: write a number and one of the units"):
        parse_size(text)


def test_a_part_of_a_byte_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^size '0\.3KiB' is not a whole number of bytes$"):
        parse_size("0.3KiB")


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0B"), (1000, "1000B"), (1024, "1KiB"), (1536, "1536B"), (134_217_728, "128MiB")],
)
def test_a_size_is_printed_exactly_in_the_largest_unit(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(0, "0s"), (1.5, "1500ms"), (90, "90s"), (1200, "20min"), (86400, "1d")],
)
def test_a_duration_is_printed_exactly_in_the_largest_unit(duration_s: float, text: str) -> None:
    assert format_duration(duration_s) == text


@given(st.integers(min_value=0, max_value=2**62))
def test_a_printed_size_reads_back_as_the_same_size(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(st.integers(min_value=0, max_value=10**15))
def test_a_printed_duration_reads_back_as_the_same_duration(microseconds: int) -> None:
    duration_s = microseconds / 1_000_000
    assert parse_duration(format_duration(duration_s)) == duration_s
