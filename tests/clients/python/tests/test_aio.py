"""The asynchronous client, alone and against itself."""

import asyncio
from datetime import datetime, timedelta, timezone

import pytest
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    TableAccessPolicy,
    TableCorsRule,
    TableTransactionError,
    UpdateMode,
    generate_account_sas,
    generate_table_sas,
)
from azure.data.tables.aio import TableClient, TableServiceClient
from rowhouse import code_of, new_key


@pytest.fixture
def run(server, new_name):
    """Runs a coroutine function with a client of the account and a fresh table."""

    def run(test):
        async def with_table():
            async with TableServiceClient(server.endpoint, credential=server.credential(), retry_total=0) as service:
                table = await service.create_table(new_name("Aio"))
                async with table:
                    await test(service, table)
                await service.delete_table(table.table_name)

        asyncio.run(with_table())

    return run


async def everything(items):
    return [item async for item in items]


def test_tables(run):
    async def test(service, table):
        with pytest.raises(ResourceExistsError):
            await service.create_table(table.table_name.lower())
        condition = f"TableName eq '{table.table_name}'"
        assert [t.name for t in await everything(service.query_tables(condition))] == [table.table_name]
        assert table.table_name in [t.name async for t in service.list_tables(results_per_page=2)]

    run(test)


def test_entities(run):
    async def test(service, table):
        entity = {"PartitionKey": "it's", "RowKey": "ü", "A": 1, "S": "x"}
        key = entity["PartitionKey"], entity["RowKey"]
        written = await table.create_entity(entity)
        read = await table.get_entity(*key)
        assert dict(read) == entity and read.metadata["etag"] == written["etag"]
        with pytest.raises(ResourceExistsError):
            await table.create_entity(entity)
        await table.update_entity({**entity, "A": 2, "S": None}, mode=UpdateMode.MERGE)
        assert dict(await table.get_entity(*key)) == {**entity, "A": 2}
        await table.upsert_entity({**entity, "S": "y"}, mode=UpdateMode.REPLACE)
        with pytest.raises(ResourceModifiedError):
            await table.update_entity(entity, etag=written["etag"], match_condition=MatchConditions.IfNotModified)
        assert dict(await table.get_entity(*key, select=["S"])) == {"S": "y"}
        await table.delete_entity(*key)
        with pytest.raises(ResourceNotFoundError):
            await table.get_entity(*key)

    run(test)


def test_queries_and_pages(run):
    async def test(service, table):
        entities = [{"PartitionKey": "p", "RowKey": f"{n:03}", "N": n} for n in range(100)]
        await table.submit_transaction([("create", entity) for entity in entities])
        found = await everything(table.query_entities("N ge @low", parameters={"low": 90}))
        assert [dict(e) for e in found] == entities[90:]
        pages = table.list_entities(results_per_page=30).by_page()
        first = await everything(await pages.__anext__())
        rest = [
            dict(e)
            async for page in table.list_entities(results_per_page=30).by_page(pages.continuation_token)
            async for e in page
        ]
        assert [dict(e) for e in first] + rest == entities

    run(test)


def test_transactions(run):
    async def test(service, table):
        await table.create_entity({"PartitionKey": "p", "RowKey": "2"})
        operations = [("create", {"PartitionKey": "p", "RowKey": str(n)}) for n in range(5)]
        with pytest.raises(TableTransactionError) as caught:
            await table.submit_transaction(operations)
        assert (caught.value.index, code_of(caught.value)) == (2, "EntityAlreadyExists")
        assert len(await everything(table.list_entities())) == 1
        operations[2] = ("delete", {"PartitionKey": "p", "RowKey": "2"})
        assert len(await table.submit_transaction(operations)) == 5
        assert [e["RowKey"] for e in await everything(table.list_entities())] == ["0", "1", "3", "4"]

    run(test)


def test_a_wrong_key(server):
    async def test():
        credential = AzureNamedKeyCredential(server.account, new_key())
        async with TableServiceClient(server.endpoint, credential=credential, retry_total=0) as service:
            with pytest.raises(ClientAuthenticationError):
                await everything(service.list_tables())

    asyncio.run(test())


def test_one_of_many_inserts_wins(run):
    async def test(service, table):
        entity = {"PartitionKey": "p", "RowKey": "r"}
        attempts = [table.create_entity({**entity, "N": n}) for n in range(20)]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        winners = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, Exception)]
        assert len(winners) == 1
        assert all(isinstance(o, (dict, ResourceExistsError)) for o in outcomes)
        assert (await table.get_entity("p", "r"))["N"] == winners[0]

    run(test)


def test_no_increment_is_lost(run):
    async def test(service, table):
        await table.create_entity({"PartitionKey": "p", "RowKey": "r", "N": 0})

        async def increment():
            while True:
                entity = await table.get_entity("p", "r")
                entity["N"] += 1
                try:
                    return await table.update_entity(
                        entity,
                        mode=UpdateMode.REPLACE,
                        etag=entity.metadata["etag"],
                        match_condition=MatchConditions.IfNotModified,
                    )
                except ResourceModifiedError:
                    continue

        etags = [result["etag"] for result in await asyncio.gather(*(increment() for _ in range(16)))]
        assert (await table.get_entity("p", "r"))["N"] == 16
        assert len(set(etags)) == 16

    run(test)


def test_parallel_merges_keep_each_others_properties(run):
    async def test(service, table):
        names = [f"P{n}" for n in range(32)]
        merges = [table.upsert_entity({"PartitionKey": "p", "RowKey": "r", name: 1}) for name in names]
        await asyncio.gather(*merges)
        assert set(await table.get_entity("p", "r")) == {"PartitionKey", "RowKey", *names}

    run(test)


def test_parallel_transactions_never_mix(run):
    async def test(service, table):
        def batch(writer):
            rows = [f"{n:02}" for n in range(20)]
            if writer % 2:
                rows.reverse()
            return [("upsert", {"PartitionKey": "p", "RowKey": row, "Writer": writer}) for row in rows]

        await asyncio.gather(*(table.submit_transaction(batch(writer)) for writer in range(12)))
        assert len({e["Writer"] for e in await everything(table.list_entities())}) == 1

    run(test)


def test_signatures_and_policies(server, run):
    async def test(service, table):
        entity = {"PartitionKey": "p", "RowKey": "r"}
        await table.create_entity(entity)
        soon = datetime.now(timezone.utc) + timedelta(hours=1)
        await table.set_table_access_policy({"read": TableAccessPolicy(permission="r", expiry=soon)})
        assert (await table.get_table_access_policy())["read"].permission == "r"
        token = generate_table_sas(server.credential(), table.table_name, policy_id="read")
        async with TableClient(
            server.endpoint, table.table_name, credential=AzureSasCredential(token), retry_total=0
        ) as reader:
            assert [dict(e) for e in await everything(reader.list_entities())] == [entity]
            with pytest.raises(HttpResponseError) as caught:
                await reader.create_entity({"PartitionKey": "p", "RowKey": "s"})
            assert code_of(caught.value) == "AuthorizationPermissionMismatch"
        token = generate_account_sas(
            server.credential(), ResourceTypes(object=True, container=True), AccountSasPermissions(list=True), soon
        )
        async with TableServiceClient(
            server.endpoint, credential=AzureSasCredential(token), retry_total=0
        ) as holder:
            assert table.table_name in [t.name async for t in holder.list_tables()]
            with pytest.raises(HttpResponseError):
                await holder.get_table_client(table.table_name).get_entity("p", "r")
        await table.set_table_access_policy({})

    run(test)


def test_properties_and_stats(server, run):
    async def test(service, table):
        assert (await service.get_service_properties())["cors"] == []
        rule = TableCorsRule(["http://a.example"], ["GET"], max_age_in_seconds=5)
        await service.set_service_properties(cors=[rule])
        [read] = (await service.get_service_properties())["cors"]
        assert (read.allowed_origins, read.max_age_in_seconds) == (["http://a.example"], 5)
        await service.set_service_properties(cors=[])
        async with TableServiceClient(
            f"{server.endpoint}-secondary",
            credential=server.credential(),
            secondary_hostname=server.origin.removeprefix("http://"),
            retry_total=0,
        ) as secondary:
            assert (await secondary.get_service_stats())["geo_replication"]["status"] == "live"

    run(test)
