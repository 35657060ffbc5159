"""How the tests start the JVMs of Spark."""

from __future__ import annotations

import shlex
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parent / "target" / "classes.jsa"
"""What class_archive.py makes."""

# Short lives: the first compiler only, one collector thread, shared class data.
PLAIN_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
JVM_FLAGS = PLAIN_FLAGS + (f" {shlex.quote(f'-XX:SharedArchiveFile={ARCHIVE}')}" if ARCHIVE.exists() else "")
