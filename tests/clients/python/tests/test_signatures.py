"""Shared access signatures, made by the SDK. Over http it takes them without a word."""

from datetime import datetime, timedelta, timezone

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    SASProtocol,
    TableAccessPolicy,
    TableClient,
    TableSasPermissions,
    TableServiceClient,
    TableTransactionError,
    generate_account_sas,
    generate_table_sas,
)
from rowhouse import code_of, new_key

MISMATCH = (403, "AuthorizationPermissionMismatch")
# No table signature opens it, whatever its permissions.
FAILURE = (403, "AuthorizationFailure")
OUTSIDE = (403, "AuthorizationFailure")
UNKNOWN = (403, "AuthenticationFailed")
TYPES = (403, "AuthorizationResourceTypeMismatch")
ALL = "raud"


def ahead(**delta):
    return datetime.now(timezone.utc) + timedelta(**delta)


def refusal(call, *arguments, **options):
    with pytest.raises(HttpResponseError) as caught:
        call(*arguments, **options)
    return caught.value.status_code, code_of(caught.value)


def entity(row, partition="p", **properties):
    return {"PartitionKey": partition, "RowKey": row, **properties}


@pytest.fixture
def signed(server, table):
    """Makes clients of the table that hold nothing but a signature."""
    clients = []

    def signed(permission=ALL, expiry=None, key=0, table_name=None, **options):
        if expiry is None and "policy_id" not in options:
            expiry = ahead(hours=1)
        token = generate_table_sas(
            server.credential(key), table_name or table.table_name, permission=permission, expiry=expiry, **options
        )
        client = TableClient(server.endpoint, table.table_name, credential=AzureSasCredential(token), retry_total=0)
        clients.append(client)
        return client

    yield signed
    for client in clients:
        client.close()


@pytest.fixture
def account(server):
    """Makes clients of the account that hold nothing but a signature."""
    clients = []

    def account(permission, *, service=False, container=False, item=False, **options):
        token = generate_account_sas(
            server.credential(),
            ResourceTypes(service=service, object=item, container=container),
            AccountSasPermissions.from_string(permission),
            options.pop("expiry", ahead(hours=1)),
            **options,
        )
        client = TableServiceClient(server.endpoint, credential=AzureSasCredential(token), retry_total=0)
        clients.append(client)
        return client

    yield account
    for client in clients:
        client.close()


def outcomes(client):
    """What each operation of a table's entities comes to. `old` and `older` must exist."""
    attempts = {
        "get": lambda: client.get_entity("p", "old"),
        "list": lambda: list(client.list_entities()),
        "query": lambda: list(client.query_entities("RowKey eq 'old'")),
        "create": lambda: client.create_entity(entity("new")),
        "merge": lambda: client.update_entity(entity("old", A=1), mode="merge"),
        "replace": lambda: client.update_entity(entity("old", A=2), mode="replace"),
        "upsert": lambda: client.upsert_entity(entity("newer"), mode="merge"),
        "overwrite": lambda: client.upsert_entity(entity("newer"), mode="replace"),
        "batch": lambda: client.submit_transaction([("upsert", entity("b1")), ("delete", entity("older"))]),
        "delete": lambda: client.delete_entity("p", "old"),
    }
    allowed = set()
    for name, attempt in attempts.items():
        try:
            attempt()
            allowed.add(name)
        except HttpResponseError as error:
            assert (error.status_code, code_of(error)) == MISMATCH, name
    return allowed


@pytest.mark.parametrize(
    ("permission", "expected"),
    [
        ("r", {"get", "list", "query"}),
        ("a", {"create"}),
        ("u", {"merge", "replace"}),
        ("d", {"delete"}),
        ("ra", {"get", "list", "query", "create"}),
        ("au", {"create", "merge", "replace", "upsert", "overwrite"}),
        ("rd", {"get", "list", "query", "delete"}),
        (
            "raud",
            {"get", "list", "query", "create", "merge", "replace", "upsert", "overwrite", "batch", "delete"},
        ),
    ],
)
def test_each_permission_opens_its_operations(table, signed, permission, expected):
    for row in ("old", "older"):
        table.create_entity(entity(row))
    assert outcomes(signed(TableSasPermissions.from_string(permission))) == expected


def test_a_table_signature_never_reaches_tables_policies_or_the_service(server, table, signed, service, new_name):
    client = signed()
    assert refusal(client.get_table_access_policy) == FAILURE
    assert refusal(client.set_table_access_policy, {}) == FAILURE
    assert refusal(client.delete_table) == FAILURE
    assert refusal(client.create_table) == FAILURE
    token = generate_table_sas(server.credential(), table.table_name, permission=ALL, expiry=ahead(hours=1))
    with TableServiceClient(server.endpoint, credential=AzureSasCredential(token), retry_total=0) as holder:
        assert refusal(lambda: list(holder.list_tables())) == FAILURE
        assert refusal(holder.get_service_properties) == FAILURE
        other = new_name("Other")
        service.create_table(other).create_entity(entity("r"))
        stranger = holder.get_table_client(other)
        assert refusal(stranger.get_entity, "p", "r") == UNKNOWN
        assert refusal(stranger.create_entity, entity("s")) == UNKNOWN
        assert refusal(lambda: list(stranger.list_entities())) == UNKNOWN
        service.delete_table(other)


def test_both_keys_sign_and_any_casing_of_the_name(table, signed):
    table.create_entity(entity("r"))
    for key in (0, 1):
        assert len(list(signed("r", key=key).list_entities())) == 1
    assert len(list(signed("r", table_name=table.table_name.upper()).list_entities())) == 1


def test_a_token_may_stand_in_the_address_or_in_a_connection_string(server, table):
    table.create_entity(entity("r"))
    token = generate_table_sas(server.credential(), table.table_name, permission="r", expiry=ahead(hours=1))
    with TableClient.from_table_url(f"{server.endpoint}/{table.table_name}?{token}", retry_total=0) as client:
        assert client.get_entity("p", "r")["RowKey"] == "r"
        assert len(list(client.list_entities())) == 1
        assert refusal(client.create_entity, entity("s")) == MISMATCH
    connection_string = f"TableEndpoint={server.endpoint};SharedAccessSignature={token}"
    with TableClient.from_connection_string(connection_string, table.table_name, retry_total=0) as client:
        assert client.get_entity("p", "r")["RowKey"] == "r"


def test_a_range_of_keys(table, signed):
    rows = [(p, r) for p in "abc" for r in "123"]
    for p, r in rows:
        table.create_entity(entity(r, p))

    def seen(**bounds):
        return [(e["PartitionKey"], e["RowKey"]) for e in signed(ALL, **bounds).list_entities()]

    assert seen(start_pk="b") == rows[3:]
    assert seen(end_pk="b") == rows[:6]
    assert seen(start_pk="b", end_pk="b") == rows[3:6]
    assert seen(start_pk="a", start_rk="2", end_pk="c", end_rk="1") == rows[1:7]
    assert seen(start_pk="b", start_rk="2", end_pk="b", end_rk="2") == [("b", "2")]
    assert seen(start_pk="x") == []

    inside = signed(ALL, start_pk="b", start_rk="1", end_pk="b", end_rk="2")
    assert inside.get_entity("b", "2")["RowKey"] == "2"
    assert [e["RowKey"] for e in inside.query_entities("RowKey ge '2'")] == ["2"]
    assert [len(list(page)) for page in inside.list_entities(results_per_page=1).by_page()] == [1, 1]
    # What is out of reach is as if it were not there; a write to it is refused.
    with pytest.raises(ResourceNotFoundError):
        inside.get_entity("b", "3")
    assert refusal(inside.create_entity, entity("4", "b")) == OUTSIDE
    assert refusal(inside.update_entity, entity("3", "b", A=1)) == OUTSIDE
    assert refusal(inside.upsert_entity, entity("3", "b", A=1)) == OUTSIDE
    assert refusal(inside.delete_entity, "a", "1") == OUTSIDE
    inside.upsert_entity(entity("1", "b", A=1))
    with pytest.raises(TableTransactionError) as caught:
        inside.submit_transaction([("upsert", entity("1", "b", A=2)), ("upsert", entity("3", "b", A=2))])
    assert (caught.value.index, code_of(caught.value)) == (1, "AuthorizationFailure")
    assert [e.get("A") for e in table.query_entities("PartitionKey eq 'b'")] == [1, None, None]


def test_times(signed):
    assert list(signed("r", expiry=ahead(minutes=5)).list_entities()) == []
    assert refusal(lambda: list(signed("r", expiry=ahead(minutes=-5)).list_entities())) == UNKNOWN
    assert list(signed("r", start=ahead(minutes=-5)).list_entities()) == []
    assert refusal(lambda: list(signed("r", start=ahead(minutes=5)).list_entities())) == UNKNOWN


def test_addresses_and_protocols(signed):
    assert list(signed("r", ip_address_or_range="127.0.0.1").list_entities()) == []
    assert list(signed("r", ip_address_or_range="127.0.0.0-127.0.0.9").list_entities()) == []
    elsewhere = signed("r", ip_address_or_range="192.0.2.1-192.0.2.9")
    assert refusal(lambda: list(elsewhere.list_entities())) == (403, "AuthorizationSourceIPMismatch")
    assert list(signed("r", protocol="https,http").list_entities()) == []
    secure = signed("r", protocol="https")
    assert refusal(lambda: list(secure.list_entities())) == (403, "AuthorizationProtocolMismatch")
    # The SDK writes its own enumeration as "SASProtocol.HTTPS", which no service knows.
    assert refusal(lambda: list(signed("r", protocol=SASProtocol.HTTPS).list_entities())) == UNKNOWN


def test_a_signature_that_is_not_ours(server, table):
    stranger = AzureNamedKeyCredential(server.account, new_key())
    good = generate_table_sas(server.credential(), table.table_name, permission="r", expiry=ahead(hours=1))
    for token in (
        generate_table_sas(stranger, table.table_name, permission="r", expiry=ahead(hours=1)),
        good.replace("sp=r", "sp=raud"),
        good[:-6],
    ):
        with TableClient(
            server.endpoint, table.table_name, credential=AzureSasCredential(token), retry_total=0
        ) as client:
            with pytest.raises(ClientAuthenticationError) as caught:
                list(client.list_entities())
            assert (caught.value.status_code, code_of(caught.value)) == UNKNOWN


def test_a_credential_may_be_renewed_in_place(server, table):
    old = generate_table_sas(server.credential(), table.table_name, permission="r", expiry=ahead(hours=-1))
    new = generate_table_sas(server.credential(), table.table_name, permission="r", expiry=ahead(hours=1))
    credential = AzureSasCredential(old)
    with TableClient(server.endpoint, table.table_name, credential=credential, retry_total=0) as client:
        assert refusal(lambda: list(client.list_entities())) == UNKNOWN
        credential.update(new)
        assert list(client.list_entities()) == []


def test_a_stored_policy_gives_what_the_signature_leaves_out(table, signed):
    table.create_entity(entity("r"))
    table.set_table_access_policy(
        {
            "read": TableAccessPolicy(permission="r", expiry=ahead(hours=1)),
            "whole": TableAccessPolicy(permission=ALL, start=ahead(hours=-1), expiry=ahead(hours=1)),
            "past": TableAccessPolicy(permission=ALL, expiry=ahead(hours=-1)),
            "open": TableAccessPolicy(expiry=ahead(hours=1)),
        }
    )
    reader = signed(None, policy_id="read")
    assert len(list(reader.list_entities())) == 1
    assert refusal(reader.create_entity, entity("s")) == MISMATCH
    writer = signed(None, policy_id="whole")
    writer.create_entity(entity("s"))
    writer.submit_transaction([("upsert", entity("t")), ("delete", entity("s"))])
    assert [e["RowKey"] for e in writer.list_entities()] == ["r", "t"]
    assert refusal(lambda: list(signed(None, policy_id="past").list_entities())) == UNKNOWN
    assert len(list(signed("r", policy_id="open").list_entities())) == 2
    assert refusal(lambda: list(signed(None, policy_id="missing").list_entities())) == UNKNOWN
    # One place may say it, not both.
    assert refusal(lambda: list(signed("r", policy_id="read").list_entities())) == UNKNOWN
    # Within a policy, a range is the signature's.
    narrow = signed(None, policy_id="whole", start_pk="p", start_rk="t")
    assert [e["RowKey"] for e in narrow.list_entities()] == ["t"]
    # A policy that is changed or gone takes its signatures with it.
    table.set_table_access_policy({"whole": TableAccessPolicy(permission="r", expiry=ahead(hours=1))})
    assert refusal(writer.create_entity, entity("u")) == MISMATCH
    assert refusal(lambda: list(reader.list_entities())) == UNKNOWN
    table.set_table_access_policy({})
    assert refusal(lambda: list(writer.list_entities())) == UNKNOWN


def test_an_account_signature_for_everything(account, new_name):
    service = account("rwdlacu", service=True, container=True, item=True)
    name = new_name("Signed")
    table = service.create_table(name)
    assert [t.name for t in service.query_tables(f"TableName eq '{name}'")] == [name]
    for row in ("old", "older"):
        table.create_entity(entity(row))
    assert len(outcomes(table)) == 10
    assert "cors" in service.get_service_properties()
    # Policies are for holders of a key.
    assert refusal(table.get_table_access_policy) == MISMATCH
    assert refusal(table.set_table_access_policy, {}) == MISMATCH
    service.delete_table(name)


@pytest.mark.parametrize(
    ("permission", "expected"),
    [
        ("r", {"get", "list", "query"}),
        ("a", {"create"}),
        ("u", {"merge", "replace"}),
        ("d", {"delete"}),
        ("au", {"create", "merge", "replace", "upsert", "overwrite"}),
        ("wlc", set()),
    ],
)
def test_each_account_permission_opens_its_operations(table, account, permission, expected):
    for row in ("old", "older"):
        table.create_entity(entity(row))
    assert outcomes(account(permission, item=True).get_table_client(table.table_name)) == expected


def test_resource_types_hold_an_account_signature(table, account, new_name):
    name = new_name()
    only_tables = account("rwdlacu", container=True)
    created = only_tables.create_table(name)
    assert name in [t.name for t in only_tables.list_tables()]
    assert refusal(created.create_entity, entity("r")) == TYPES
    assert refusal(only_tables.get_service_properties) == TYPES
    only_tables.delete_table(name)
    only_entities = account("rwdlacu", item=True)
    only_entities.get_table_client(table.table_name).create_entity(entity("r"))
    assert refusal(only_entities.create_table, name) == TYPES
    assert refusal(lambda: list(only_entities.list_tables())) == TYPES
    only_service = account("rwdlacu", service=True)
    assert "cors" in only_service.get_service_properties()
    assert refusal(only_service.get_table_client(table.table_name).get_entity, "p", "r") == TYPES


def test_permissions_of_tables_in_an_account_signature(account, new_name):
    name = new_name()
    lister = account("l", container=True)
    list(lister.list_tables())
    assert refusal(lister.create_table, name) == MISMATCH
    creator = account("c", container=True)
    creator.create_table(name)
    assert refusal(lambda: list(creator.list_tables())) == MISMATCH
    assert refusal(creator.delete_table, name) == MISMATCH
    account("d", container=True).delete_table(name)


def test_an_account_signature_ends(account):
    gone = account("rl", container=True, expiry=ahead(minutes=-1))
    assert refusal(lambda: list(gone.list_tables())) == UNKNOWN
    early = account("rl", container=True, start=ahead(minutes=10))
    assert refusal(lambda: list(early.list_tables())) == UNKNOWN
    secure = account("rl", container=True, protocol="https")
    assert refusal(lambda: list(secure.list_tables())) == (403, "AuthorizationProtocolMismatch")
