"""The value of ``--add-scram``: a user's SCRAM credential, as ``kafka-storage format`` takes it (KIP-900).

SCRAM-SHA-256=[name=alice,password=secret], with salt (base64) and iterations if wanted; or saltedpassword (base64) and
salt instead of password. Source: Kafka's ``ScramParser``.
"""

from __future__ import annotations

import base64
import binascii
import secrets

from kraftlog.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_BY_NAME, ScramMechanism
from kraftlog.storage.formatter import FormatError
from kraftlog.wire.messages.metadata_records import UserScramCredentialRecord

__all__ = ["parse_scram_argument"]

_SALT_BYTES = 19


def parse_scram_argument(text: str) -> UserScramCredentialRecord:
    """Make the record of the credential.

    Raises:
        FormatError: It is not of that form.
    """
    mechanism, components = _split(text.strip())
    name = components.pop("name", None)
    if name is None:
        raise FormatError("You must supply 'name' to add-scram")
    salt = _base64("salt", components.pop("salt", None))
    iterations = _iterations(components.pop("iterations", None), mechanism)
    password = components.pop("password", None)
    salted = components.pop("saltedpassword", None)
    if password is None and salted is None:
        raise FormatError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and salt is None:
        raise FormatError("You must supply 'salt' with 'saltedpassword' to add-scram")
    if password is not None and salted is not None:
        raise FormatError("You must supply only one of 'password' or 'saltedpassword' to add-scram")
    if components:
        raise FormatError(f"Unknown SCRAM configurations: {', '.join(sorted(components))}")
    if salt is None:
        salt = secrets.token_urlsafe(_SALT_BYTES).encode()
    salted_password = _base64("saltedPassword", salted)
    if password is not None:
        salted_password = mechanism.salted_password(password, salt, iterations)
    if not name or password == "" or not salted_password:  # Java makes no key of nothing
        raise FormatError("'name' and 'password' of add-scram must not be empty")
    credential = mechanism.credential(salted_password, salt, iterations)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.code,
        salt=salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=iterations,
    )


def _split(text: str) -> tuple[ScramMechanism, dict[str, str]]:
    """The mechanism, and the components between the brackets by name."""
    mechanism_name, equals, config = text.partition("=")
    if not equals:
        # Kafka shows the argument; it may have a password in it.
        raise FormatError("Failed to find equals sign in a SCRAM argument")
    mechanism = MECHANISM_BY_NAME.get(mechanism_name)
    if mechanism is None:
        raise FormatError(f"The add-scram mechanism {mechanism_name} is not supported.")
    if not config.startswith("["):
        raise FormatError("Expected configuration string to start with [")
    if not config.endswith("]"):
        raise FormatError("Expected configuration string to end with ]")
    components: dict[str, str] = {}
    for component in config[1:-1].split(","):
        key, equals, value = component.partition("=")
        if not equals:
            raise FormatError("No equals sign found in a SCRAM component")
        is_quoted = len(value) >= 2 and value[0] == value[-1] == '"'
        components[key.strip()] = value[1:-1] if is_quoted else value
    return mechanism, components


def _base64(what: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"Failed to decode given {what}") from None


def _iterations(text: str | None, mechanism: ScramMechanism) -> int:
    if text is None:
        return ITERATIONS_MIN
    try:
        iterations = int(text)
    except ValueError:
        raise FormatError(f"Failed to parse iterations count: {text}") from None
    if iterations < ITERATIONS_MIN:
        raise FormatError(f"The 'iterations' value must be >= {ITERATIONS_MIN} for add-scram using {mechanism.name}")
    if iterations > ITERATIONS_MAX:
        raise FormatError(f"The 'iterations' value must be <= {ITERATIONS_MAX} for add-scram using {mechanism.name}")
    return iterations
