"""A run as a short text: the cluster, what happens to it when, and what breaks.

    # A leader outside the voter set counts itself.
    cluster seed=7 voter_count=3 observer_count=0 is_dynamic=1 ...
    at 3204 isolate_node node=leader for_ms=2500
    at 5811 remove_voter voter=2
    end 9000
    breaks INV-06

``end`` is there when the run stops at that time, in milliseconds, without waiting for the cluster to recover.
``breaks`` is left out once the reason is mended: the scenario then has to pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kraftlog.testing.config import SimulationConfig

__all__ = ["Scenario", "ScheduledFault"]

Value = int | float | str


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """One fault: when, which, and everything that chance had to say about it."""

    at_ms: int
    kind: str
    arguments: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return " ".join([f"at {self.at_ms} {self.kind}", *(f"{name}={value}" for name, value in self.arguments)])

    @classmethod
    def parse(cls, line: str) -> ScheduledFault:
        """Read what ``str`` gave.

        Raises:
            ValueError: It is none of these.
        """
        words = line.split()
        if len(words) < 3 or words[0] != "at":
            msg = f"not a fault: {line!r}"
            raise ValueError(msg)
        return cls(int(words[1]), words[2], tuple(_parse_pairs(words[3:]).items()))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run that is written down.

    Args:
        config: The cluster.
        faults: What happens, by time.
        end_ms: When to stop; None runs to the end and waits for the cluster to recover.
        breaks: The rule that is broken; None where all hold.
        note: What it shows.
    """

    config: SimulationConfig
    faults: tuple[ScheduledFault, ...]
    end_ms: int | None = None
    breaks: str | None = None
    note: str = ""

    def __str__(self) -> str:
        lines = [f"# {line}" for line in self.note.splitlines()]
        pairs = " ".join(f"{name}={value}" for name, value in self.config.resolved().settings().items())
        lines.append(f"cluster {pairs}")
        lines += [str(fault) for fault in self.faults]
        if self.end_ms is not None:
            lines.append(f"end {self.end_ms}")
        if self.breaks is not None:
            lines.append(f"breaks {self.breaks}")
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, text: str, **options: Any) -> Scenario:
        """Read a text scenario; ``options`` are further arguments of its ``SimulationConfig``.

        Raises:
            ValueError: A line that is none, or no cluster.
        """
        notes: list[str] = []
        settings: dict[str, Any] | None = None
        faults: list[ScheduledFault] = []
        end_ms: int | None = None
        breaks: str | None = None
        for line in text.splitlines():
            word = line.split(maxsplit=1)[0] if line.strip() else ""
            match word:
                case "":
                    continue
                case _ if word.startswith("#"):
                    notes.append(line.lstrip("# "))
                case "cluster":
                    settings = dict(_parse_pairs(line.split()[1:]))
                case "at":
                    faults.append(ScheduledFault.parse(line))
                case "end":
                    end_ms = int(line.split()[1])
                case "breaks":
                    breaks = line.split()[1]
                case _:
                    msg = f"not a line of a scenario: {line!r}"
                    raise ValueError(msg)
        if settings is None:
            msg = "a scenario needs a line that begins with cluster"
            raise ValueError(msg)
        # Scenarios that were written down before replicas could do so.
        settings.setdefault("refuses_connections", 0)
        for name in ("is_dynamic", "auto_join", "refuses_connections"):
            if name in settings:
                settings[name] = bool(settings[name])
        config = SimulationConfig(**settings, **options)
        return cls(config, tuple(faults), end_ms, breaks, "\n".join(notes))

    def with_faults(self, faults: tuple[ScheduledFault, ...]) -> Scenario:
        """The same with other faults."""
        return replace(self, faults=faults)


def _parse_pairs(words: list[str]) -> dict[str, Value]:
    pairs: dict[str, Value] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            msg = f"not NAME=VALUE: {word!r}"
            raise ValueError(msg)
        try:
            pairs[name] = float(text) if "." in text else int(text)
        except ValueError:
            pairs[name] = text
    return pairs
