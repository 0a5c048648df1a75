import itertools
import os

import pytest
from azure.data.tables import TableServiceClient
from rowhouse import Server, Statuses

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def database_url():
    """PostgreSQL when DATABASE_URL says so; else None, for SQLite files in temporary folders."""
    return os.environ.get("DATABASE_URL") or None


@pytest.fixture(scope="session")
def server(tmp_path_factory, database_url):
    server = Server(tmp_path_factory.mktemp("server"), database_url).start()
    yield server
    assert server.process.poll() is None, f"the server died:\n{server.log.read_text()}"
    assert server.stop() == 0
    failures = [line for line in server.log.read_text().splitlines() if "ERROR" in line or "panicked" in line]
    assert failures == []


@pytest.fixture
def service(server):
    """The account's client. It never tries again, so that no failure is hidden."""
    with TableServiceClient(server.endpoint, credential=server.credential(), retry_total=0) as client:
        yield client


@pytest.fixture
def new_name():
    """Makes table names that no other test uses."""
    return lambda prefix="T": f"{prefix}{next(_numbers):05}"


@pytest.fixture
def table(service, new_name):
    with service.create_table(new_name()) as client:
        yield client
    service.delete_table(client.table_name)


@pytest.fixture
def statuses():
    return Statuses()
