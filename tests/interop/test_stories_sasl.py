"""The page about SASL, as a reader follows it."""

from __future__ import annotations

from pathlib import Path

from interop.harness import Java
from interop.story import story


def test_clients_are_authenticated_by_password(tmp_path: Path, java: Java) -> None:
    with story(tmp_path / "story", java) as told:
        told.read("sasl.md")
        refused = told.run("kraftlog features --bootstrap-server 127.0.0.1:9091 describe 2>&1 || echo refused\n")
        assert "refused" in refused
        told.run("sed s/admin-secret/wrong/ admin.properties > wrong.properties\n")
        wrong = "kraftlog features --bootstrap-server 127.0.0.1:9091 --command-config wrong.properties describe 2>&1"
        assert "Invalid username or password" in told.run(f"{wrong} || true\n")
        assert "kraft.version" in told.run(wrong.replace("wrong", "admin") + "\n")
