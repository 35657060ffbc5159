"""The runnable jobs of the folder spark/, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

JOBS = Path(__file__).parents[3] / "spark"


def load(name: str) -> ModuleType:
    """A job as if it were run: it finds what lies beside it, and goes to the workers by value as a script does."""
    from pyspark import cloudpickle

    if str(JOBS) not in sys.path:
        sys.path.append(str(JOBS))
    spec = importlib.util.spec_from_file_location(name, JOBS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module
