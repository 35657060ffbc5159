"""``kraftlog storage`` and Kafka's StorageTool with the same arguments: exit codes, words and files."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from interop.harness import Java
from interop.tool_runs import Said, run_kafka, run_ours
from kraftlog.cli.storage import main

CLUSTER = "6ukEYB2qBMCQ4OIrSkFKQA"
DIRECTORIES = ["FQgOjCvOTu6yIpYZT_LP7A", "zmrU_NoDRMan1PsIUbAMkw", "HXC_smQ7Sb-UhGabv5cSIQ"]
VOTERS = ",".join(
    f"{node_id}@localhost:{9090 + node_id}:{directory}" for node_id, directory in enumerate(DIRECTORIES, 1)
)
OTHERS = ",".join(VOTERS.split(",")[1:])
STATIC = {"controller.quorum.bootstrap.servers": None, "controller.quorum.voters": "1@localhost:9091"}
BROKER = {"process.roles": "broker", "listeners": "PLAINTEXT://:9092"}
TWO = {"log.dirs": "{home}/a,{home}/b", "metadata.log.dir": "{home}/m"}
# name -> (changes of the properties, the runs with them)
RUNS: dict[str, tuple[dict[str, str | None], list[str]]] = {
    "standalone": ({}, ["info", "format -s", "info", "format -s", "format -s -g"]),
    "two-directories": (TWO, ["format -s", "info"]),
    "initial-controllers": ({}, [f"format -I {VOTERS}"]),
    "initial-controllers-without-this-one": ({}, [f"format -I {OTHERS}"]),
    "no-initial-controllers": ({}, ["format -N"]),
    "no-flag": ({}, ["format"]),
    "two-flags": ({}, ["format -s -N", f"format -s -I {VOTERS}"]),
    "static": (STATIC, ["format", "info"]),
    "static-standalone": (STATIC, ["format -s", f"format -I {VOTERS}", "format -f kraft.version=1"]),
    "static-no-initial": (STATIC, ["format -N"]),
    "broker": (BROKER, ["format", "info"]),
    "broker-standalone": (BROKER, ["format -s", f"format -I {VOTERS}"]),
    "broker-no-initial": (BROKER, ["format -N"]),
    "release": ({}, ["format -s -r 3.7-IV4"]),
    "release-short": ({}, ["format -s -r 3.9"]),
    "release-and-features": ({}, ["format -s -r 4.0 -f group.version=0 -f transaction.version=1"]),
    "release-unknown": ({}, ["format -s -r 9.9"]),
    "unstable": ({}, ["format -s -r 4.4-IV0", "format -s -f metadata.version=31"]),
    "ambiguous": ({}, ["format -s -r 4.0 -f metadata.version=25"]),
    "feature": ({}, ["format -s -f metadata.version=25"]),
    "feature-wrong": (
        {},
        ["format -s -f foo=1", "format -s -f group.version=9", "format -s -f group.version", "format -s -f a=b"],
    ),
    "feature-dependency": ({}, ["format -s -r 3.9 -f eligible.leader.replicas.version=1"]),
    "kraft-version": ({}, ["format -s -f kraft.version=0", "format -s -f kraft.version=1"]),
    "voters-wrong": (
        {},
        [
            f"format -I {wrong}"
            for wrong in (
                "1",
                "x@localhost:9091:" + DIRECTORIES[0],
                "-1@localhost:9091:" + DIRECTORIES[0],
                "1@[::1:9091:" + DIRECTORIES[0],
                "1@localhost",
                "1@localhost:70000:" + DIRECTORIES[0],
                "1@localhost:9091:no-uuid!",
                ",".join([VOTERS.split(",")[0]] * 2),
            )
        ],
    ),
    "ipv6": ({}, [f"format -I 1@[::1]:9091:{DIRECTORIES[0]}"]),
    "other-cluster": ({}, ["format -N", "format -N -g -t AAAAAAAAAAAAAAAAAAAAAw"]),
    "advertised": ({"advertised.listeners": "CONTROLLER://controller-1.example:9999"}, ["format -s"]),
    "empty-host": ({"listeners": "CONTROLLER://:9091"}, ["format -s"]),
    "no-node-id": ({"node.id": None}, ["format -s"]),
}
EVERYWHERE = [
    "version-mapping",
    "version-mapping -r 3.7",
    "version-mapping -r 9.9",
    "feature-dependencies -f metadata.version=25 -f eligible.leader.replicas.version=1",
    "feature-dependencies -f metadata.version=99",
    "feature-dependencies -f foo=1",
    "feature-dependencies -f group.version=9",
]


def prepared(home: Path) -> list[list[str]]:
    """The arguments of every run, with properties files and directories under ``home``."""
    runs: list[list[str]] = [line.split() for line in EVERYWHERE]
    for name, (changes, commands) in RUNS.items():
        folder = home / name
        folder.mkdir(parents=True)
        properties = {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": "CONTROLLER://localhost:9091",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9091",
            "log.dirs": "{home}/data",
            **changes,
        }
        text = "".join(f"{key}={value}\n" for key, value in properties.items() if value is not None)
        (folder / "server.properties").write_text(text.replace("{home}", str(folder)))
        for command in commands:
            arguments = [*command.split(), "-c", str(folder / "server.properties")]
            if arguments[0] == "format" and "-t" not in arguments:
                arguments += ["-t", CLUSTER]
            runs.append(arguments)
    return runs


def comparable(said: Said, home: Path) -> tuple[int, str, str]:
    """Without what is drawn: where it ran and directory ids."""
    texts = [
        re.sub(r"directory\.id=[\w-]{22}", "directory.id=...", text.replace(str(home), ""))
        for text in (said.out, said.err)
    ]
    if "usage: " in texts[1]:
        texts[1] = "usage\n"  # argparse and argparse4j word it themselves
    # The order of a map in Java is nobody's promise.
    texts[0] = "".join(sorted(texts[0].splitlines(keepends=True)))
    return said.code, texts[0].rstrip("\n"), texts[1].rstrip("\n")


def files(home: Path) -> dict[str, bytes]:
    """Every file written, times, CRCs and drawn ids blanked."""
    drawn = {
        match.group(1)
        for path in home.rglob("meta.properties")
        for match in [re.search(r"directory\.id=([\w-]{22})", path.read_text())]
        if match and match.group(1) not in DIRECTORIES
    }
    found: dict[str, bytes] = {}
    for path in sorted(home.rglob("*")):
        if path.is_dir() or path.name == "server.properties":
            continue
        data = path.read_bytes()
        if path.suffix == ".checkpoint":
            data = _without_times(data, drawn)
        else:
            data = re.sub(rb"(?m)^#.*\n", b"", data)
            for identifier in drawn:
                data = data.replace(identifier.encode(), b"drawn")
        found[str(path.relative_to(home))] = data
    return found


def _without_times(data: bytes, drawn: set[str]) -> bytes:
    result, position = bytearray(data), 0
    while position < len(result):
        size = 12 + int.from_bytes(result[position + 8 : position + 12], "big")
        result[position + 17 : position + 21] = bytes(4)
        result[position + 27 : position + 43] = bytes(16)
        position += size
    for identifier in drawn:
        result = bytearray(bytes(result).replace(base64.urlsafe_b64decode(identifier + "=="), bytes(16)))
    # The header record says when the last contained batch was written: milliseconds of this decade.
    result = bytearray(re.sub(rb"\x00\x00\x01[\xa0-\xff][\s\S]{4}", bytes(8), bytes(result)))
    return bytes(result)


@pytest.mark.spec(
    "BOOT-01", "BOOT-02", "BOOT-03", "BOOT-04", "BOOT-05", "BOOT-06", "BOOT-07", "BOOT-08", "BOOT-09", "BOOT-10",
    "BOOT-11", "BOOT-12", "BOOT-13", "BOOT-14", "BOOT-15", "BOOT-16", "BOOT-17", "BOOT-18", "BOOT-19", "BOOT-22",
    "BOOT-23",
)  # fmt: skip
def test_storage_does_and_says_what_kafkas_tool_does(tmp_path: Path, java: Java) -> None:
    homes = tmp_path / "kafka", tmp_path / "ours"
    runs = [prepared(home) for home in homes]
    theirs, ours = run_kafka(java, "kafka.tools.StorageTool", runs[0]), run_ours(main, runs[1])
    wrong = []
    for arguments, kafkas, own in zip(runs[1], theirs, ours, strict=True):
        expected, found = comparable(kafkas, homes[0]), comparable(own, homes[1])
        if expected != found:
            wrong.append(f"{' '.join(arguments)}\n  Kafka: {expected}\n  ours:  {found}")
    assert not wrong, "\n".join(wrong)
    written = [files(home) for home in homes]
    assert sorted(written[0]) == sorted(written[1])
    assert {name: data for name, data in written[0].items() if data != written[1][name]} == {}
