"""The service's properties, its stats, and what pages of other origins may do."""

import socket
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    TableAnalyticsLogging,
    TableCorsRule,
    TableMetrics,
    TableRetentionPolicy,
    TableServiceClient,
    generate_account_sas,
)
from rowhouse import Server, code_of


@pytest.fixture
def own(tmp_path, database_url):
    """A client of an account of its own, since properties are the account's."""
    server = Server(tmp_path, database_url).start()
    try:
        with TableServiceClient(server.endpoint, credential=server.credential(), retry_total=0) as client:
            yield server, client
    finally:
        assert server.stop() == 0


def plain(metrics):
    kept = metrics.retention_policy
    return metrics.enabled, metrics.include_apis, kept.enabled, kept.days


def test_a_new_account_has_defaults(own):
    properties = own[1].get_service_properties()
    logging = properties["analytics_logging"]
    assert (logging.version, logging.read, logging.write, logging.delete) == ("1.0", False, False, False)
    assert plain(properties["hour_metrics"]) == (True, True, True, 7)
    assert plain(properties["minute_metrics"]) == (False, None, False, None)
    assert properties["cors"] == []


def test_what_is_set_comes_back_and_the_rest_stays(own):
    server, client = own
    client.set_service_properties(
        analytics_logging=TableAnalyticsLogging(
            read=True, write=True, delete=True, retention_policy=TableRetentionPolicy(enabled=True, days=5)
        ),
        hour_metrics=TableMetrics(
            enabled=True, include_apis=True, retention_policy=TableRetentionPolicy(enabled=True, days=365)
        ),
    )
    client.set_service_properties(minute_metrics=TableMetrics(enabled=True, include_apis=False))
    client.set_service_properties(
        cors=[
            TableCorsRule(["*"], ["GET"]),
            TableCorsRule(
                ["http://a.example", "https://b.example"],
                ["GET", "PUT", "MERGE"],
                allowed_headers=["x-ms-*", "content-type"],
                exposed_headers=["*"],
                max_age_in_seconds=500,
            ),
        ]
    )
    properties = client.get_service_properties()
    logging = properties["analytics_logging"]
    assert (logging.read, logging.write, logging.delete, logging.retention_policy.days) == (True, True, True, 5)
    assert plain(properties["hour_metrics"]) == (True, True, True, 365)
    assert plain(properties["minute_metrics"]) == (True, False, False, None)
    first, second = properties["cors"]
    assert (first.allowed_origins, first.allowed_methods, first.max_age_in_seconds) == (["*"], ["GET"], 0)
    assert second.allowed_origins == ["http://a.example", "https://b.example"]
    assert second.allowed_methods == ["GET", "PUT", "MERGE"]
    # As recorded: literal names come back before prefixes.
    assert second.allowed_headers == ["content-type", "x-ms-*"]
    assert (second.exposed_headers, second.max_age_in_seconds) == (["*"], 500)
    client.set_service_properties(cors=[])
    properties = client.get_service_properties()
    assert properties["cors"] == []
    assert plain(properties["hour_metrics"]) == (True, True, True, 365)


def test_bad_properties_are_refused(own):
    client = own[1]
    for bad, code in (
        ({"cors": [TableCorsRule(["*"], ["GET"])] * 6}, "InvalidXmlDocument"),
        ({"cors": [TableCorsRule(["*"], ["FETCH"])]}, "InvalidXmlNodeValue"),
        (
            {"hour_metrics": TableMetrics(retention_policy=TableRetentionPolicy(enabled=True, days=366))},
            "InvalidXmlDocument",
        ),
    ):
        with pytest.raises(HttpResponseError) as caught:
            client.set_service_properties(**bad)
        assert (caught.value.status_code, code_of(caught.value)) == (400, code)
    assert client.get_service_properties()["cors"] == []


def ask(url, method, **headers):
    request = urllib.request.Request(
        url, method=method, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


def test_browsers_are_told_the_rules(own):
    server, client = own
    url = f"{server.endpoint}/Tables"
    page = {"Origin": "http://a.example", "Access_Control_Request_Method": "GET"}
    assert ask(url, "OPTIONS", **page)[0] == 403
    client.set_service_properties(
        cors=[TableCorsRule(["http://a.example"], ["GET"], allowed_headers=["x-ms-*"], max_age_in_seconds=60)]
    )
    status, headers = ask(url, "OPTIONS", Access_Control_Request_Headers="x-ms-version", **page)
    assert status == 200
    assert headers["Access-Control-Allow-Origin"] == "http://a.example"
    assert headers["Access-Control-Allow-Methods"] == "GET"
    assert headers["Access-Control-Allow-Headers"] == "x-ms-version"
    assert headers["Access-Control-Max-Age"] == "60"
    assert ask(url, "OPTIONS", **{**page, "Origin": "http://c.example"})[0] == 403
    assert ask(url, "OPTIONS", **{**page, "Access_Control_Request_Method": "PUT"})[0] == 403
    assert ask(url, "OPTIONS", Access_Control_Request_Headers="authorization", **page)[0] == 403
    assert ask(url, "OPTIONS", Origin="http://a.example")[0] == 400
    # An answer proper carries them too.
    token = generate_account_sas(
        server.credential(),
        ResourceTypes(container=True),
        AccountSasPermissions(list=True),
        datetime.now(timezone.utc) + timedelta(hours=1),
    )
    anything = {"Accept": "*/*"}
    status, headers = ask(f"{url}?{token}", "GET", Origin="http://a.example", **anything)
    assert (status, headers["Access-Control-Allow-Origin"], headers["Vary"]) == (200, "http://a.example", "Origin")
    status, headers = ask(f"{url}?{token}", "GET", Origin="http://c.example", **anything)
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, None)


def test_stats_come_from_the_secondary(server):
    # The SDK swaps the host alone, so a path-style secondary is named as the endpoint.
    host = server.origin.removeprefix("http://")
    with TableServiceClient(
        f"{server.endpoint}-secondary", credential=server.credential(), secondary_hostname=host, retry_total=0
    ) as secondary:
        stats = secondary.get_service_stats()["geo_replication"]
        assert stats["status"] == "live"
        assert abs(datetime.now(timezone.utc) - stats["last_sync_time"]) < timedelta(minutes=5)


def test_stats_by_host_name(server, monkeypatch):
    # As with DNS names for the account, which tests cannot have.
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **options: resolve("127.0.0.1", *rest, **options)
    )
    port = server.origin.rpartition(":")[2]
    with TableServiceClient(
        f"http://{server.account}.table.localhost:{port}",
        credential=server.credential(),
        secondary_hostname=f"{server.account}-secondary.table.localhost:{port}",
        retry_total=0,
    ) as service:
        assert service.get_service_stats()["geo_replication"]["status"] == "live"
        list(service.list_tables())


def test_the_primary_has_no_stats(server):
    host = server.origin.removeprefix("http://")
    with TableServiceClient(
        server.endpoint, credential=server.credential(), secondary_hostname=host, retry_total=0
    ) as primary:
        with pytest.raises(HttpResponseError) as caught:
            primary.get_service_stats()
        assert (caught.value.status_code, code_of(caught.value)) == (400, "InvalidQueryParameterValue")


def test_the_secondary_reads_and_never_writes(server, table):
    table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    with TableServiceClient(
        f"{server.endpoint}-secondary", credential=server.credential(), retry_total=0
    ) as secondary:
        assert table.table_name in [t.name for t in secondary.list_tables()]
        copy = secondary.get_table_client(table.table_name)
        assert copy.get_entity("p", "r")["RowKey"] == "r"
        for write in (
            lambda: copy.create_entity({"PartitionKey": "p", "RowKey": "s"}),
            lambda: copy.submit_transaction([("delete", {"PartitionKey": "p", "RowKey": "r"})]),
            copy.delete_table,
        ):
            with pytest.raises(HttpResponseError) as caught:
                write()
            assert (caught.value.status_code, code_of(caught.value)) == (403, "InsufficientAccountPermissions")
    assert len(list(table.list_entities())) == 1
