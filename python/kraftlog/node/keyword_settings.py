"""Kafka's keys as keyword arguments: ``auto_create_topics_enable=False``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from kraftlog.config_table import broker_configs
from kraftlog.node.config import AUTHORIZER_KEYS, OWN_KEYS, is_known_key

__all__ = ["check_keywords"]


def check_keywords(class_name: str, parameters: Sequence[str], keywords: Iterable[str]) -> None:
    """Refuse a keyword that is no key.

    Args:
        class_name: Whose constructor was called.
        parameters: Its named parameters, which a misspelt keyword may mean too.
        keywords: The other keywords, Kafka's keys with underscores for dots.

    Raises:
        TypeError: A keyword is no key; the text names the nearest one.
    """
    for name in keywords:
        key = name.replace("_", ".")
        if is_known_key(key):
            continue
        message = f"{class_name}() has no parameter {name!r}, and {key} is no key of Kafka's configuration"
        known = [
            *parameters,
            *(
                broker_config.replace(".", "_")
                for broker_config in (*broker_configs(), *sorted(OWN_KEYS | AUTHORIZER_KEYS))
            ),
        ]
        nearest = get_close_matches(name, known, n=1)
        if nearest:
            message += f"; did you mean {nearest[0]}?"
        raise TypeError(message)
