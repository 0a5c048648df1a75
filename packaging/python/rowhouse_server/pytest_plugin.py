"""Fixtures for pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import Server


@pytest.fixture(scope="session")
def rowhouse_server() -> Iterator[Server]:
    """A server for all tests of this process."""
    with Server() as server:
        yield server


@pytest.fixture
def rowhouse(rowhouse_server: Server) -> Server:
    """The server, empty."""
    rowhouse_server.reset()
    return rowhouse_server
