"""The node that most tests of the NameNode begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.namenode.scene import Scene, new_scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A NameNode and three DataNodes that hold nothing yet."""
    scene = await new_scene()
    yield scene
    await scene.close()
