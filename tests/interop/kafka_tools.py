"""Kafka's tools over the files and the node of kraftlog, and what counts as their complaint."""

from __future__ import annotations

import re
import select
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from interop.harness import Java

DUMP = "org.apache.kafka.tools.DumpLogSegments"
SHELL = "org.apache.kafka.shell.MetadataShell"
_SHELL_ATTEMPTS = 5


def files_with(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


def dump(
    java: Java, files: Iterable[Path], *flags: str, max_message_size: int = 50_000_000, has_gaps: bool = False
) -> str:
    """DumpLogSegments over files; it complains on stderr, and with ``isvalid: false`` in a batch line.

    With ``has_gaps`` offsets may be missing, as compaction leaves it; the tool remarks on that with Kafka's files too.
    So it does on a time index entry of a batch that was emptied and kept for its producer's sequence: such a batch has
    its largest timestamp in the header, and the tool looks for it in records.
    """
    listed = ",".join(str(path) for path in files)
    done = java.tool(DUMP, "--files", listed, "--max-message-size", str(max_message_size), *flags, timeout=300)
    # The tool compares the first offset of every segment with -1, and so finds fault with each but the first (with
    # Kafka's own files too): "Non-consecutive offsets in .../BASE.log", "  -1 is followed by BASE".
    said = done.stderr
    if has_gaps:
        said = re.sub(r"^Non-consecutive offsets in \S*\n(  -?\d+ is followed by \d+\n)+", "", said, flags=re.MULTILINE)
        emptied = r"^Found timestamp mismatch in :\S*\n(  Index timestamp: \d+, log timestamp: -1(?:\n|\Z))+"
        said = re.sub(emptied, "", said, flags=re.MULTILINE)
    said = re.sub(
        r"^Non-consecutive offsets in \S*/0*(\d+)\.log\n  -1 is followed by \1\n", "", said, flags=re.MULTILINE
    )
    complaints = [line for line in said.splitlines() if not re.search(r"\b(INFO|DEBUG)\b", line)]
    assert not complaints, f"DumpLogSegments {' '.join(flags)} complains:\n" + "\n".join(complaints[:20])
    bad = [line for line in done.stdout.splitlines() if re.match(r"baseOffset: .* isvalid: false", line)]
    assert not bad, f"DumpLogSegments: {bad[:5]}"
    return done.stdout


def assert_dump_accepts(java: Java, *folders: Path, print_data: bool = True, has_gaps: bool = False) -> dict[str, int]:
    """Every segment and index of partitions, in the three ways the tool can look; batches of each folder."""
    segments = [path for folder in folders for path in files_with(folder, ".log")]
    indexes = [path for folder in folders for path in files_with(folder, ".index", ".timeindex", ".txnindex")]
    flags = ["--print-data-log"] if print_data else []
    text = dump(java, segments, "--deep-iteration", *flags, has_gaps=has_gaps)
    sections = re.findall(r"^Dumping (\S+)$(.*?)(?=^Dumping |\Z)", text, re.MULTILINE | re.DOTALL)
    parts = {Path(name): part for name, part in sections}
    batches = dict.fromkeys((folder.name for folder in folders), 0)
    for segment in segments:
        # The tool stops without an error at bytes that are no batch: the last batch has to end where the file ends.
        found = re.findall(r"^baseOffset: .* position: (\d+) .*\bsize: (\d+) ", parts[segment], re.MULTILINE)
        end = sum(map(int, found[-1])) if found else 0
        size = segment.stat().st_size
        assert end == size, f"{segment}: batches end at {end}, the file at {size}"
        batches[segment.parent.name] += len(found)
    if indexes:
        sanity = dump(java, indexes, "--index-sanity-check", has_gaps=has_gaps)
        for index in indexes:
            verdict = f"{index} passed sanity check." in sanity or f"{index} is empty." in sanity
            assert verdict or index.suffix == ".txnindex", f"{index}: no sanity verdict\n{sanity[-2000:]}"
        dump(java, indexes, has_gaps=has_gaps)  # prints entries, and compares each with the segment
    return batches


def metadata_shell(java: Java, snapshot: Path, *command: str) -> str:
    # On a busy machine the shell may look before it has loaded the last of the image, and then prints nothing, or that
    # there is no such file. Sometimes it waits for ever, mostly in a JVM that is warm, as it asks how far the image is
    # before anything is loaded: each gets its own, and another one if it does not end.
    for attempt in range(_SHELL_ATTEMPTS):
        try:
            done = java.run(SHELL, "--snapshot", str(snapshot), *command, timeout=40)
        except subprocess.TimeoutExpired:
            if attempt == _SHELL_ATTEMPTS - 1:
                raise
            continue
        assert "Exception" not in done.stdout + done.stderr, done.stdout + done.stderr
        if done.stdout.strip() and "No such file or directory" not in done.stdout:
            break
    return done.stdout


def assert_verification_finds_no_lag(java: Java, bootstrap: str, topic: str, *, within_s: float = 60) -> None:
    """Kafka's ReplicaVerificationTool finds equal checksums, and within that time no lag.

    The tool reports until it is killed, and so runs in a JVM of its own.
    """
    command = java.command(
        "org.apache.kafka.tools.ReplicaVerificationTool",
        *("--broker-list", bootstrap, "--topics-include", topic, "--report-interval-ms", "1000"),
    )
    printed: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            deadline = time.monotonic() + within_s
            while not any("max lag is 0 for partition" in line for line in printed):
                left_s = deadline - time.monotonic()
                assert left_s > 0, "".join(printed)
                assert select.select([process.stdout], [], [], left_s)[0], "".join(printed)
                line = process.stdout.readline()
                assert line, "".join(printed)
                printed.append(line)
        finally:
            process.kill()
    said = "".join(printed)
    assert "has different checksum" not in said, said
    assert "doesn't match" not in said, said
