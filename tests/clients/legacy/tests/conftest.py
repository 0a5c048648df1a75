import itertools
import os
import socket

import pytest
from rowhouse import Server
from sdks import SDKS, AzureCosmosdbTable, AzureStorage

_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def names_below_localhost():
    """These SDKs know accounts as host names only, which not every machine resolves."""
    resolve = socket.getaddrinfo
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *rest, **named: resolve(
                "127.0.0.1" if isinstance(host, str) and host.endswith(".localhost") else host, *rest, **named
            ),
        )
        yield


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """PostgreSQL when DATABASE_URL says so; else a SQLite file in a temporary folder."""
    server = Server(tmp_path_factory.mktemp("server"), os.environ.get("DATABASE_URL") or None).start()
    yield server
    assert server.process.poll() is None, f"the server died:\n{server.log.read_text()}"
    assert server.stop() == 0
    failures = [line for line in server.log.read_text().splitlines() if "ERROR" in line or "panicked" in line]
    assert failures == []


@pytest.fixture(params=SDKS, ids=lambda sdk: sdk.name)
def sdk(request, server):
    """Each SDK in turn."""
    return request.param(server)


@pytest.fixture
def storage(server):
    return AzureStorage(server)


@pytest.fixture
def cosmos(server):
    return AzureCosmosdbTable(server)


@pytest.fixture
def new_name():
    """Makes table names that no other test uses. Capitals in them would be signed by azure-storage as they
    are, where the service wants signatures over lower case."""
    return lambda prefix="t": f"{prefix}{next(_numbers):05}"


@pytest.fixture
def table(server, new_name):
    name = new_name()
    owner = AzureStorage(server)
    owner.create_table(name, fail_on_exist=True)
    yield name
    owner.delete_table(name, fail_not_exist=True)
