"""Text from anywhere, made fit for XML, for a terminal and for one line."""

import math
import re

from kit.measurement import Measurement

# Forbidden or discouraged in XML 1.0: C0 and C1 controls, surrogates, noncharacters. Beyond XML, the signs that turn
# the direction of writing, with which a log could disguise a line.
_PLANES = "".join(f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(17))
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef" + _PLANES + "]"
)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def printable(text: str) -> str:
    """`text` with characters that XML forbids, or that could steer a terminal, written as escapes (``\\x1b``)."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(_escape, text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str, longest: int = 300) -> str:
    """`text`, printable, on one line of at most `longest` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def capped(text: str, longest: int, pointer: str) -> str:
    """The end of `text`, printable, in about `longest` characters; after a cut, `pointer` tells where all of it is."""
    text = printable(text)
    if len(text) <= longest:
        return text
    return f"[cut to its end; all of it: {pointer}]\n" + text[-longest:].partition("\n")[2]


def number(value: float) -> str:
    """Three significant digits, or ``NaN``, ``inf``."""
    return "NaN" if math.isnan(value) else f"{value:.3g}"


def factor(value: float | None) -> str:
    """A margin as it is read: ``×17.7``, empty for None."""
    return "" if value is None else f"×{number(value)}"


def amount(value: float, unit: str) -> str:
    """A value with its unit; the unit of a ratio is left out."""
    return number(value) if unit == "1" else f"{number(value)} {unit}"


def describe(measurement: Measurement) -> str:
    """One clause: ``max_abs_error = 0.3 nat, limit <= 0.1 (peer), margin ×0.333``, and where, in brackets, if that is known."""
    place = f" [{measurement.where}]" if measurement.where else ""
    clause = f"{measurement.name} = {amount(measurement.value, measurement.unit)}"
    if measurement.comparison is None or measurement.limit is None or measurement.source is None:
        return clause + place
    clause += f", limit {measurement.comparison} {number(measurement.limit)} ({measurement.source})"
    return clause + (f", margin {factor(measurement.margin)}" if measurement.margin is not None else "") + place
