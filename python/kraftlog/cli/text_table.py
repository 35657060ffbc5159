"""Tables of text, as the administrative commands print them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["print_table"]


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below their titles, each column as wide as its widest entry."""
    widths = [max(len(entry) for entry in column) for column in zip(titles, *rows, strict=True)]
    for line in (titles, *rows):
        print("  ".join(f"{entry:<{width}}" for entry, width in zip(line, widths, strict=True)).rstrip())
