"""Java's ``.properties`` text form, read exactly as ``java.util.Properties.load`` reads it."""

from __future__ import annotations

from kraftlog.errors import KraftlogError

__all__ = ["PropertiesError", "parse_properties"]

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(KraftlogError):
    """A ``.properties`` text that Java would refuse as well."""


def parse_properties(text: str) -> dict[str, str]:
    r"""Read a ``.properties`` text; a key given twice keeps its last value.

    Comments (``#``, ``!``), continuation lines (an odd number of backslashes at the end), the separators
    ``=``, ``:`` and white space, and the escapes ``\t \n \r \f \uXXXX`` are honoured; any other escaped
    character stands for itself.

    Args:
        text: The whole file; Kafka reads it as ISO-8859-1.

    Raises:
        PropertiesError: A ``\u`` escape without four hexadecimal digits, naming the line.
    """
    properties: dict[str, str] = {}
    for line_number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        key = _unescape(line[:key_end], line_number)
        properties[key] = _unescape(line[value_start:], line_number)
    return properties


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    joined: list[str] = []
    first_line_number = 0
    natural_lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for line_number, natural in enumerate(natural_lines, 1):
        stripped = natural.lstrip(_BLANK)
        if not joined:
            if not stripped or stripped[0] in "#!":
                continue
            first_line_number = line_number
        if _ends_with_continuation(stripped) and line_number < len(natural_lines):
            joined.append(stripped[:-1])
            continue
        if _ends_with_continuation(stripped):
            stripped = stripped[:-1]
        joined.append(stripped)
        lines.append((first_line_number, "".join(joined)))
        joined = []
    return lines


def _ends_with_continuation(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[int, int]:
    """Where the key ends and where the value starts."""
    position = 0
    while position < len(line):
        character = line[position]
        if character == "\\":
            position += 2
            continue
        if character in "=:" or character in _BLANK:
            break
        position += 1
    key_end = min(position, len(line))
    position = key_end
    while position < len(line) and line[position] in _BLANK:
        position += 1
    if position < len(line) and line[position] in "=:":
        position += 1
        while position < len(line) and line[position] in _BLANK:
            position += 1
    return key_end, position


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            out.append(character)
            continue
        if position >= len(text):
            break
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                msg = f"line {line_number}: malformed \\uxxxx encoding in {text!r}"
                raise PropertiesError(msg)
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)
