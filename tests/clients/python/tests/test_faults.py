"""Faults that a test orders, and what the SDK does about them by its own retry policy: what
docs/how-to/test-suites.md says of both."""

import json
import re
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.core.exceptions import HttpResponseError, ServiceResponseError
from azure.data.tables import TableServiceClient
from rowhouse import Server


# The address of the admin listener, once there is one.
ADMIN = None


@pytest.fixture(scope="module")
def server(tmp_path_factory, database_url):
    server = Server(tmp_path_factory.mktemp("faults"), database_url)
    server.settings = {"ROWHOUSE_ADMIN_LISTEN": "127.0.0.1:0", "ROWHOUSE_TEST_MODE": "true"}
    server.start()
    yield server
    assert server.stop() == 0


@pytest.fixture
def service(server):
    """A client with the default policy."""
    global ADMIN
    ADMIN = re.search(r"operators are answered at (http://\S+)", server.log.read_text()).group(1)
    with TableServiceClient(server.endpoint, credential=server.credential()) as service:
        yield service
        order()


@pytest.fixture
def orders(service):
    """A table, whose connection is open."""
    orders = service.create_table_if_not_exists("Orders")
    yield orders
    service.delete_table("Orders")


def order(*rules):
    body = json.dumps(rules).encode()
    urllib.request.urlopen(urllib.request.Request(f"{ADMIN}/test/faults", body, method="PUT")).close()


def counted():
    with urllib.request.urlopen(f"{ADMIN}/test/faults") as listed:
        return [rule["matched"] for rule in json.load(listed)["rules"]]


def ended(call, *arguments):
    """How a call ended, and after how many seconds."""
    begun = time.monotonic()
    try:
        call(*arguments)
        outcome = 200
    except (HttpResponseError, ServiceResponseError) as error:
        outcome = getattr(error, "status_code", None)
    return outcome, time.monotonic() - begun


def test_a_lost_answer(orders):
    order({"table": "Orders", "disconnect": "after"})
    with pytest.raises(ServiceResponseError):
        orders.create_entity({"PartitionKey": "p", "RowKey": "1"})
    assert orders.get_entity("p", "1")
    assert counted() == [2]


def test_short_pages_are_followed(orders):
    for row in "abc":
        orders.create_entity({"PartitionKey": "p", "RowKey": row})
    order({"table": "Orders", "page": 1, "times": 9})
    pages = [[entity["RowKey"] for entity in page] for page in orders.list_entities().by_page()]
    assert pages == [["a"], ["b"], ["c"]]
    assert counted() == [3]
    assert [entity["RowKey"] for entity in orders.list_entities()] == ["a", "b", "c"]


def test_what_is_repeated_and_how_often(service):
    names = ["busy", "timeout", "error", "slow", "lost", "read", "stale", "once"]
    tables = {name: service.create_table_if_not_exists(name) for name in names}

    def insert(name):
        tables[name].create_entity({"PartitionKey": "p", "RowKey": "1"})

    for name in ["stale", "read"]:
        insert(name)
    order(
        {"table": "busy", "times": 9, "error": "ServerBusy"},
        {"table": "timeout", "times": 9, "error": "OperationTimedOut"},
        {"table": "error", "times": 9, "error": "InternalError"},
        {"table": "slow", "times": 9, "error": "RequestTimedOut"},
        {"table": "lost", "times": 9, "disconnect": "before"},
        {"table": "read", "times": 9, "disconnect": "before"},
        {"table": "stale", "operation": "MergeEntity", "times": 9, "error": "UpdateConditionNotSatisfied"},
        {"table": "once", "error": "ServerBusy"},
    )
    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(ended, insert, name) for name in ["busy", "timeout", "error", "slow", "lost"]]
        calls.append(threads.submit(ended, tables["read"].get_entity, "p", "1"))
        calls.append(threads.submit(ended, tables["stale"].update_entity, {"PartitionKey": "p", "RowKey": "1"}))
        calls.append(threads.submit(ended, insert, "once"))
    results = [call.result() for call in calls]
    assert [outcome for outcome, _ in results] == [503, 500, 500, 408, None, None, 412, 200]
    assert counted() == [4, 4, 4, 1, 1, 4, 1, 2]
    # At once, then after 1.6 and 3.2 seconds; a busy server says when.
    at_least = [3, 4.8, 4.8, 0, 0, 4.8, 0, 1]
    assert all(seconds >= least for (_, seconds), least in zip(results, at_least)), results
    assert tables["once"].get_entity("p", "1")
    order()
    for table in tables.values():
        table.delete_table()
