"""Calls onto a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from kraftlog.own_thread import OwnThread


async def nothing():
    pass


def test_call_that_is_interrupted_is_cancelled(monkeypatch):
    """A consumer's poll went on, and moved the position over records that no caller got."""
    started, cancelled = threading.Event(), threading.Event()

    async def wait():
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt(_future, _timeout=None):
        assert started.wait(30)
        raise KeyboardInterrupt

    thread = OwnThread("interrupted", nothing, nothing)
    thread.start()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(concurrent.futures.Future, "result", interrupt)
            with pytest.raises(KeyboardInterrupt):
                thread.call(wait, what="test")
        assert cancelled.wait(30)
    finally:
        thread.stop()
