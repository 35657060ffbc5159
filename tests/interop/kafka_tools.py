"""Kafka's own tools over our files and our node, and what counts as a complaint of theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from interop.harness import Java

DUMP = "org.apache.kafka.tools.DumpLogSegments"
SHELL = "org.apache.kafka.shell.MetadataShell"


def files_with(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


def dump(java: Java, files: Iterable[Path], *flags: str, max_message_size: int = 50_000_000) -> str:
    """DumpLogSegments over files; it complains on stderr, and with ``isvalid: false`` in a batch line."""
    listed = ",".join(str(path) for path in files)
    done = java.run(DUMP, "--files", listed, "--max-message-size", str(max_message_size), *flags, timeout=300)
    complaints = [line for line in done.stderr.splitlines() if not re.search(r"\b(INFO|DEBUG)\b", line)]
    assert not complaints, f"DumpLogSegments {' '.join(flags)} complains:\n" + "\n".join(complaints[:20])
    bad = [line for line in done.stdout.splitlines() if re.match(r"baseOffset: .* isvalid: false", line)]
    assert not bad, f"DumpLogSegments: {bad[:5]}"
    return done.stdout


def assert_dump_accepts(java: Java, folder: Path, *, batches_in: Path | None = None) -> int:
    """Every segment and index of a partition, in the three ways the tool can look; returns the number of batches."""
    segments = files_with(folder, ".log")
    indexes = files_with(folder, ".index", ".timeindex", ".txnindex")
    assert segments, f"{folder} has no segment"
    text = dump(java, segments, "--deep-iteration", "--print-data-log")
    batches = sum(1 for line in text.splitlines() if line.startswith("baseOffset: "))
    for segment in segments:
        size = segment.stat().st_size
        assert f"Dumping {segment}" in text
        # The tool stops without a word at bytes that are no batch: the last batch has to end where the file ends.
        part = text.split(f"Dumping {segment}\n", 1)[1].split("Dumping ", 1)[0]
        ends = [
            int(found[1]) + int(found[2])
            for found in re.finditer(r"^baseOffset: .* position: (\d+) .*\bsize: (\d+) ", part, re.MULTILINE)
        ]
        assert (ends[-1] if ends else 0) == size, f"{segment}: batches end at {ends[-1:]}, the file at {size}"
    if indexes:
        sanity = dump(java, indexes, "--index-sanity-check")
        for index in indexes:
            if index.suffix != ".txnindex":
                assert f"{index} passed sanity check." in sanity, f"{index}: no sanity verdict\n{sanity[-2000:]}"
        dump(java, indexes)  # prints entries, and compares each with the segment
    return batches


def metadata_shell(java: Java, snapshot: Path, *command: str) -> str:
    done = java.run(SHELL, "--snapshot", str(snapshot), *command)
    assert "Exception" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stdout
