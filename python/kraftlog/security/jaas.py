"""JAAS text as in ``sasl.jaas.config``: one login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

Source: Kafka's ``JaasConfig``, which reads it with Java's ``StreamTokenizer``. Where that would silently drop a part of
the text (behind an unquoted slash, behind the end of a line inside quotes), reading fails here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kraftlog.errors import KraftlogError

__all__ = ["PLAIN_MODULE", "SCRAM_MODULE", "JaasEntry", "JaasError", "parse_jaas"]

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_TOKEN: Final = re.compile(
    r"""(?P<blank>[\x00-\x20]+|//[^\n\r]*|/\*.*?\*/)
    |(?P<mark>[=;])
    |"(?P<double>(?:[^"\\\n\r]|\\[^\n\r])*)"
    |'(?P<single>(?:[^'\\\n\r]|\\[^\n\r])*)'
    |(?P<word>[^\x00-\x20=;"'/]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)


class JaasError(KraftlogError):
    """JAAS text that cannot be read; the message says why and shows no value."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module.

    Attributes:
        module: Java's name of its class.
        options: Not shown in a text, as some are passwords.
    """

    module: str
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """Read the entry of one login module.

    Raises:
        JaasError: It is not one entry of the form ``module flag name=value ... ;``.
    """
    tokens = list(_tokens(text))
    if not tokens:
        raise JaasError("it names no login module")
    if tokens[-1] != (True, ";"):
        raise JaasError("it does not end with a semicolon")
    if tokens.count((True, ";")) > 1:
        raise JaasError("it has more than one login module")
    words = tokens[:-1]
    if len(words) < 2 or words[0][0] or words[1][0] or words[1][1].lower() not in _FLAGS:
        raise JaasError(
            "it begins with the class of a login module and one of required, requisite, sufficient, optional"
        )
    options: dict[str, str] = {}
    rest = words[2:]
    while rest:
        (is_mark, name), *rest = rest
        if is_mark or len(rest) < 2 or rest[0] != (True, "=") or rest[1][0]:
            shown = "an equals sign" if is_mark else f"option {name}"
            raise JaasError(f'{shown} is not followed by one value; write name="value", with quotes')
        if name in options:
            raise JaasError(f"option {name} is there twice")
        options[name] = rest[1][1]
        rest = rest[2:]
    return JaasEntry(words[0][1], options)


def _tokens(text: str) -> Iterator[tuple[bool, str]]:
    """Whether it is one of the marks ``=`` and ``;``, and the text of each token."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise JaasError(
                "a value with a slash has to be quoted"
                if text[position] == "/"
                else "a quote is not closed on its line"
            )
        position = found.end()
        if found["mark"]:
            yield True, found["mark"]
        elif found["word"]:
            yield False, found["word"]
        elif not found["blank"]:
            yield False, _ESCAPE.sub(_unescaped, found["single"] if found["double"] is None else found["double"])


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPES.get(escaped, escaped)
