from __future__ import annotations

import pytest

from kraftlog.types import Uuid
from wire_facts import GOLDEN, rows


def test_uuid_vectors_print_and_parse_as_kafkas():
    for row in rows(GOLDEN / "vectors/uuid.jsonl.gz"):
        if "hex" in row:
            uuid = Uuid(bytes.fromhex(row["hex"]))
            assert str(uuid) == row["text"]
            assert Uuid.parse(row["text"]) == uuid
        elif "exception" in row:
            with pytest.raises(ValueError, match=r"UUID|base64"):
                Uuid.parse(row["parse"])
        else:
            assert str(Uuid.parse(row["parse"])) == row["text"]
