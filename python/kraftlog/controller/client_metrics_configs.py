"""The settings of a subscription to clients' metrics (KIP-714), which a node stores and clients of other nodes get."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Final

from kraftlog.errors import ErrorCode, KafkaError

__all__ = ["check_client_metrics_configs"]

_MIN_PUSH_MS: Final = 100
_MAX_PUSH_MS: Final = 3_600_000
_MATCHED: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
# No setting needs more, and the node's loop does nothing else while it compiles one.
_PATTERN_MAX: Final = 8192
# Python's complaints about expressions that are none in Java either. Of others, such as escapes that only Java has,
# this node cannot tell.
_MALFORMED: Final = (
    "missing ), unterminated subpattern",
    "unbalanced parenthesis",
    "nothing to repeat",
    "multiple repeat",
    "unterminated character set",
    "bad escape (end of pattern)",
)


def check_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Check settings as Kafka's ``ClientMetricsConfigs.validate`` does.

    Raises:
        KafkaError: INVALID_REQUEST; an unknown key or a bad interval. INVALID_CONFIG; nothing to match clients with.
    """
    for name, text in configs.items():
        if name not in {"interval.ms", "metrics", "match"}:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        if name == "interval.ms" and not (text.isdigit() and _MIN_PUSH_MS <= int(text) <= _MAX_PUSH_MS):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {text} for interval.ms, interval must be between {_MIN_PUSH_MS} and"
                f" {_MAX_PUSH_MS} (1 hour)",
            )
        if name == "interval.ms" or not text.strip():
            continue
        elements = re.split(r"\s*,\s*", text.strip())
        if "" in elements:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configuration '{name}' values must not be empty.")
        for element in elements:
            if name == "match" and not _is_match(element):
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {element}")


def _is_match(element: str) -> bool:
    name, equals, pattern = (part.strip() for part in element.partition("="))
    if not (name in _MATCHED and equals and pattern) or "=" in pattern or len(pattern) > _PATTERN_MAX:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except re.error as error:
        return not error.msg.startswith(_MALFORMED)
    except (OverflowError, RecursionError):
        return False
    return True
