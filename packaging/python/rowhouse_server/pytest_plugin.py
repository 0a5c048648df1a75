"""Fixtures for pytest."""

import pytest

from . import Server


@pytest.fixture(scope="session")
def rowhouse_server():
    """A server for all tests of this process."""
    with Server() as server:
        yield server


@pytest.fixture
def rowhouse(rowhouse_server):
    """The server, empty."""
    rowhouse_server.reset()
    return rowhouse_server
