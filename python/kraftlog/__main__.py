"""``python -m kraftlog``."""

from __future__ import annotations

import sys

from kraftlog.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
