"""A NameNode whose DataNodes may be deaf for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.hdfs.scenes import CONFIG, Case, DeafNetwork
from tests.namenode.cluster import acceptors
from tests.namenode.scene import MEMBERS, new_scene


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    network = DeafNetwork(acceptors(*MEMBERS))
    scene = await new_scene(network=network, config=CONFIG)
    yield scene, network
    await scene.close()
