"""Properties and statistics of the service."""

from azure.cosmosdb.table.common.models import CorsRule, Metrics, RetentionPolicy


def test_logging_is_kept(sdk):
    for days in (3, 5):
        sdk.set_logging(days)
        found = sdk.get_table_service_properties()
        assert (found.logging.read, found.logging.write, found.logging.delete) == (True, False, False)
        assert (found.logging.retention_policy.enabled, found.logging.retention_policy.days) == (True, days)
        assert found.hour_metrics.enabled is False


def test_what_was_read_can_be_set(storage):
    storage.set_logging(3)
    found = storage.get_table_service_properties()
    found.logging.write = True
    storage.set_table_service_properties(found)
    assert storage.get_table_service_properties().logging.write is True


def test_metrics_and_rules_for_origins_are_kept(cosmos):
    rule = CorsRule(["http://a.example"], ["GET", "PUT"], 5, ["x-ms-*"], ["*"])
    cosmos.set_table_service_properties(
        hour_metrics=Metrics(enabled=True, include_apis=False, retention_policy=RetentionPolicy(True, 7)), cors=[rule]
    )
    found = cosmos.get_table_service_properties()
    assert (found.hour_metrics.enabled, found.hour_metrics.include_apis) == (True, False)
    assert found.hour_metrics.retention_policy.days == 7
    assert [vars(kept) for kept in found.cors] == [vars(rule)]
    cosmos.set_table_service_properties(hour_metrics=Metrics(), cors=[])
    assert cosmos.get_table_service_properties().cors == []


def test_statistics_come_from_the_secondary(cosmos):
    stats = cosmos.get_table_service_stats().geo_replication
    assert stats.status == "live"
    assert stats.last_sync_time is not None


def test_a_connection_string_with_a_path_works(cosmos, server, table):
    connected = type(cosmos.raw)(
        connection_string=f"DefaultEndpointsProtocol=http;AccountName={server.account};"
        f"AccountKey={server.keys[0]};TableEndpoint={server.endpoint};"
    )
    assert table in [found.name for found in connected.list_tables()]
