"""Sixty seconds of hostile frames against a live node; the seed is printed and can be given back."""

from __future__ import annotations

import os

import pytest

from interop.frame_fuzzer import fuzz

SECONDS = float(os.environ.get("KRAFTLOG_FUZZ_SECONDS", "60"))
SEED = int(os.environ.get("KRAFTLOG_FUZZ_SEED", "20240601"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hostile_frames_disturb_nobody(tmp_path):
    findings = fuzz(SEED, SECONDS, tmp_path)
    print(f"seed {SEED}: {findings.figures}")
    assert not findings.faults, "\n".join(findings.faults)
    assert sum(findings.attacks.values()) > 10 * SECONDS
