import contextlib
import secrets

import pytest
from docker_client import Container, docker


@pytest.fixture
def run():
    """Starts containers that are gone after the test."""
    with contextlib.ExitStack() as stack:

        def start(image, *command, options=()):
            container = Container(image, *command, options=["-p", "127.0.0.1::10002", *options])
            stack.callback(container.remove)
            return container

        yield start


@pytest.fixture
def volume():
    name = "v" + secrets.token_hex(8)
    docker("volume", "create", name)
    yield name
    docker("volume", "rm", "-f", name)
