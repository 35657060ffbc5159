"""Archive the classes that Apache Kafka loads, and compile the Java programs of the tests, once: for `.ci/dev jars`.

With the archive (JEP 350) a broker of the tests starts with half the processor time, as do Kafka's tools. Everything
works without either: a JVM ignores an archive that does not fit it, and compiles a source each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from interop.harness import HERE, Java, KafkaServer, class_archive


class Archived(KafkaServer):
    """A server that writes the archive when it ends."""

    archive: Path

    def start_command(self) -> list[str]:
        java, *rest = super().start_command()
        return [java, f"-XX:ArchiveClassesAtExit={self.archive}", *rest]


def compile_programs(libs: str, classes: Path) -> None:
    """Those that need nothing but these jars."""
    sources = sorted(str(source) for source in (HERE / "java").glob("*.java") if source.stem != "WordCount")
    subprocess.run(["javac", "-nowarn", "-cp", libs, "-d", str(classes), *sources], check=True)


def main() -> None:
    """Write both beside the jars."""
    libs = os.environ.get("KAFKA_LIBS", str(HERE / "target" / "libs" / "*"))
    archive = class_archive(libs)
    archive.unlink(missing_ok=True)
    compile_programs(libs, archive.with_suffix(""))
    java = Java(libs)
    try:
        with tempfile.TemporaryDirectory() as home:
            server = Archived(Path(home), java)
            server.archive = Path(home) / archive.name
            server.start()
            server.stop()
            beside = archive.with_suffix(".new")
            beside.write_bytes(server.archive.read_bytes())
            beside.replace(archive)
    finally:
        java.close()
    print(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
