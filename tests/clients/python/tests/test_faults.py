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
def orders(server):
    """A table, by a client with the default policy, whose connection is open."""
    global ADMIN
    ADMIN = re.search(r"operators are answered at (http://\S+)", server.log.read_text()).group(1)
    with TableServiceClient(server.endpoint, credential=server.credential()) as service:
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
    order({"table": "Orders", "then": {"drop": "after"}})
    with pytest.raises(ServiceResponseError):
        orders.create_entity({"PartitionKey": "p", "RowKey": "1"})
    assert orders.get_entity("p", "1")
    assert counted() == [2]


def test_what_is_repeated_and_how_often(orders):
    def insert(row):
        orders.create_entity({"PartitionKey": "p", "RowKey": row})

    for row in ["stale", "read"]:
        insert(row)
    order(
        {"row": "busy", "times": 9, "then": {"error": "ServerBusy"}},
        {"row": "timeout", "times": 9, "then": {"error": "OperationTimedOut"}},
        {"row": "error", "times": 9, "then": {"error": "InternalError"}},
        {"row": "slow", "operation": "InsertEntity", "times": 9, "then": {"error": "RequestTimedOut"}},
        {"row": "dropped", "times": 9, "then": {"drop": "before"}},
        {"row": "read", "times": 9, "then": {"drop": "before"}},
        {"row": "stale", "operation": "MergeEntity", "times": 9, "then": {"error": "UpdateConditionNotSatisfied"}},
        {"row": "once", "then": {"error": "ServerBusy"}},
    )
    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(ended, insert, row) for row in ["busy", "timeout", "error", "slow", "dropped"]]
        calls.append(threads.submit(ended, orders.get_entity, "p", "read"))
        calls.append(threads.submit(ended, orders.update_entity, {"PartitionKey": "p", "RowKey": "stale"}))
        calls.append(threads.submit(ended, insert, "once"))
    results = [call.result() for call in calls]
    assert [outcome for outcome, _ in results] == [503, 500, 500, 408, None, None, 412, 200]
    assert counted() == [4, 4, 4, 1, 1, 4, 1, 2]
    # At once, then after 1.6 and 3.2 seconds; a busy server says when.
    at_least = [3, 4.8, 4.8, 0, 0, 4.8, 0, 1]
    assert all(seconds >= least for (_, seconds), least in zip(results, at_least)), results
    assert orders.get_entity("p", "once")
