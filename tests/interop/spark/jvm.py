"""How the tests start the JVMs of Spark."""

from __future__ import annotations

# Short lives: the first compiler only, one collector thread.
JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
