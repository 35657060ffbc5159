"""Bugs of producers and consumers, and of what a broker tells those who fetch."""

from __future__ import annotations

from put_back.bug import Bug

TRUNCATION = "unit/client/test_truncation_detection.py"

CLIENT_BUGS = (
    Bug(
        "a longer log hides from a consumer that what it read is gone (CTRN-44)",
        "client.state.subscription",
        "            offset = end_offset if lacking is None else min(end_offset, lacking)\n",
        "",
        TRUNCATION,
    ),
    Bug(
        "a position that was moved back is not validated again (CTRN-44)",
        "client.state.subscription",
        "            found.validate(position)  # records of that epoch may be gone, too\n",
        "            found.seek_validated(position)\n",
        TRUNCATION,
    ),
    Bug(
        "validations that fail in turn put the metadata off for ever (CTRN-20)",
        "client.state.core_context",
        "        if self.metadata.is_update_wanted:\n            return\n",
        "",
        TRUNCATION,
    ),
    Bug(
        "a record that was given up comes behind the next one (KIP-360)",
        "client.batch_sender",
        "            self._producer = next_epoch(self._producer)\n",
        "            self._producer = None\n",
        "simulation/world/test_bursts.py",
    ),
    Bug(
        "a static leader does not see the partitions that came while it was away (KIP-814)",
        "client.classic_membership",
        "        if joined.skip_assignment and not await self._is_all_assigned():\n",
        "        if joined.skip_assignment and self.generation < 0:\n",
        "simulation/world/test_groups.py",
    ),
    Bug(
        "a consumer joins again with each poll after an error",
        "client.group_subscription",
        '            self._again_s = loop.time() + self._config["retry.backoff.ms"] / 1000\n',
        "",
        "simulation/world/test_groups.py",
    ),
    Bug(
        "a node that hangs is asked for metadata first",
        "client.connections",
        "return min(connected, key=itemgetter(0))[1]",
        "return connected[0][1]",
        "unit/client/test_connections.py",
    ),
    Bug(
        "a producer never asks again which partitions there are",
        "client.async_producer",
        "            if self._topics.begin_refresh():\n                self._spawn(self._refresh())\n",
        "",
        "simulation/world/test_operator.py",
    ),
    Bug(
        "a producer forgets a topic that it sends to (KIP-526)",
        "client.state.producer_topics",
        "if used_ms > before_ms}",
        "if used_ms < before_ms}",
        "unit/client/test_producer_topics.py",
    ),
    Bug(
        "a follower that diverged does not hear of the high watermark (RINV-36)",
        "api.handlers.fetch",
        "    is_taken = not read.error_code and read.diverging_epoch is None\n",
        "    is_taken = not read.error_code\n",
        "unit/api/handlers/test_fetch_news.py",
    ),
    Bug(
        "an idempotent producer sends without an id after InitProducerId failed",
        "client.batch_sender",
        "            if self._lacks_producer or not queue or name in self._busy:\n",
        "            if not queue or name in self._busy:\n",
        "unit/client/test_batch_sender.py::test_no_batch_is_sent_before_there_is_a_producer_id",
    ),
)
