"""What was acknowledged is there after a crash."""

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import EdmType, EntityProperty, TableServiceClient
from rowhouse import Server


def connect(server):
    return TableServiceClient(server.endpoint, credential=server.credential(), retry_total=0)


def snapshot(table):
    return [(dict(entity), entity.metadata["etag"]) for entity in table.list_entities()]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_acknowledged_writes_survive(tmp_path, database_url, end):
    server = Server(tmp_path, database_url).start()
    try:
        with connect(server) as service:
            service.create_table("Gone").create_entity({"PartitionKey": "p", "RowKey": "r"})
            table = service.create_table("Kept")
            for n in range(20):
                value = EntityProperty(2**40 + n, EdmType.INT64)
                table.create_entity({"PartitionKey": "p", "RowKey": f"{n:02}", "N": value, "S": "ü'\x00"})
            table.submit_transaction(
                [("upsert", {"PartitionKey": "p", "RowKey": f"{n:02}", "Batch": True}) for n in range(5, 50)]
            )
            table.delete_entity("p", "00")
            table.update_entity({"PartitionKey": "p", "RowKey": "01", "Last": "word"}, mode="replace")
            service.delete_table("Gone")
            before = snapshot(table)
        getattr(server, end)()
        server.start()
        with connect(server) as service:
            assert [table.name for table in service.list_tables()] == ["Kept"]
            table = service.get_table_client("Kept")
            assert snapshot(table) == before
            assert len(before) == 49
            assert dict(table.get_entity("p", "01")) == {"PartitionKey": "p", "RowKey": "01", "Last": "word"}
            with pytest.raises(ResourceNotFoundError):
                table.get_entity("p", "00")
            # It goes on: no ETag is used twice.
            etag = table.update_entity({"PartitionKey": "p", "RowKey": "01"}, mode="replace")["etag"]
            assert etag not in [etag for _, etag in before]
            service.delete_table("Kept")
    finally:
        server.kill()
