"""The authorizer of a node, and the ACLs it is given as they are committed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kraftlog._kraftlog import GrantTable
from kraftlog.security.authorizer import Authorizer
from kraftlog.security.grants import Grants

if TYPE_CHECKING:
    from kraftlog.controller import MetadataDelta, MetadataImage
    from kraftlog.node.config import NodeConfig
    from kraftlog.runtime.metadata.metadata_quorum import MetadataQuorum

__all__ = ["Authorization"]

_LOOK_AGAIN_S: Final = 0.05


class Authorization:
    """Keeps the authorizer at the committed ACLs; does nothing if none is configured.

    Attributes:
        authorizer: None if ``authorizer.class.name`` is not set: everybody may do everything. Until ``load`` has ended
            it allows nothing to anybody but super users.
        grants: What I/O threads know of its decisions; None before ``open_data_path``.
    """

    def __init__(self, config: NodeConfig) -> None:
        self.authorizer: Authorizer | None = None
        self.grants: Grants | None = None
        self._loading: asyncio.Task[None] | None = None
        if config.has_authorizer:
            self.authorizer = Authorizer(
                super_users=config.super_users,
                allow_everyone_if_no_acl_found=config.allows_everyone_without_acls,
                is_loaded=False,
            )

    def open_data_path(self) -> GrantTable | None:
        """The table by which I/O threads serve requests; None if there is no authorizer to be asked."""
        if self.authorizer is None:
            return None
        table = GrantTable()
        self.grants = Grants(self.authorizer, table)
        return table

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Metadata was committed."""
        if self.authorizer is not None and delta.security_changed:
            self.authorizer.replace(image.security.acls.values())
            self._renew_grants()

    def begin_load(self, metadata: MetadataQuorum) -> None:
        """Wait in the background until what is committed now is known, on the running loop; ``stop`` ends that."""
        if self.authorizer is not None and self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load(self.authorizer, metadata))

    async def wait_for_load(self) -> None:
        """Wait until the authorizer knows the ACLs; returns at once if there is none."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    def stop(self) -> None:
        """No longer wait for ACLs."""
        if self._loading is not None:
            self._loading.cancel()

    def _renew_grants(self) -> None:
        if self.grants is not None:
            self.grants.renew()

    async def _load(self, authorizer: Authorizer, metadata: MetadataQuorum) -> None:
        # The high watermark is known soon after the first leader; before that any ACL that is here may be gone.
        while metadata.replica.high_watermark < 0:  # noqa: ASYNC110  it comes with a fetch response, as no event
            await asyncio.sleep(_LOOK_AGAIN_S)
        await metadata.wait_for_offset(metadata.replica.high_watermark - 1)
        authorizer.replace(metadata.image.security.acls.values())
        authorizer.complete_load()
        self._renew_grants()
