"""Keys, signatures and stored policies."""

import pytest
from azure.cosmosdb.table.common.models import AccountPermissions, ResourceTypes
from sdks import AzureCosmosdbTable, plain, refusal

MISMATCH = (403, "AuthorizationPermissionMismatch")


def entity(partition="p", row="r", **properties):
    return {"PartitionKey": partition, "RowKey": row, **properties}


def test_both_keys_work_and_others_do_not(sdk, server, table):
    assert table in type(sdk)(server, key=1).tables()[0]
    forged = type(sdk)(server)
    forged.raw.authentication.account_key = "AAAA" + server.keys[0][4:]
    assert refusal(forged.tables) == (403, "AuthenticationFailed")


def test_a_signature_grants_what_it_says(sdk, table):
    sdk.insert(table, entity(A="a"))
    reader = sdk.signed(table, "r")
    assert plain(reader.get_entity(table, "p", "r")) == entity(A="a")
    assert reader.rows(table) == ["r"]
    assert refusal(reader.insert, table, entity(row="2")) == MISMATCH
    assert refusal(reader.delete_entity, table, "p", "r") == MISMATCH
    writer = sdk.signed(table, "raud")
    writer.insert(table, entity(row="2"))
    writer.merge(table, entity(row="2", B="b"))
    writer.insert_or_replace(table, entity(row="2", B="c"))
    writer.delete_entity(table, "p", "2")
    expired = sdk.signed(table, "r", expiry="2020-01-01")
    assert refusal(expired.get_entity, table, "p", "r") == (403, "AuthenticationFailed")


def test_a_signature_is_held_to_its_range(sdk, table):
    for partition in "abc":
        sdk.insert(table, entity(partition))
    ranged = sdk.signed(table, "ra", start_pk="b", end_pk="b")
    assert [plain(e)["PartitionKey"] for page in ranged.walk(table) for e in page] == ["b"]
    ranged.insert(table, entity("b", "2"))
    assert refusal(ranged.insert, table, entity("c", "2")) == (403, "AuthorizationFailure")


def test_policies_are_stored_and_signatures_name_them(sdk, table):
    assert sdk.acl(table) == {}
    sdk.set_acl(table, {"read": ("r", "2020-01-01", "2099-12-31"), "write": ("au", "2020-01-01", "2098-12-31")})
    assert sdk.acl(table) == {"read": ("r", "2099-12-31"), "write": ("au", "2098-12-31")}
    sdk.insert(table, entity())
    reader = sdk.signed(table, policy="read")
    assert reader.rows(table) == ["r"]
    assert refusal(reader.insert, table, entity(row="2")) == MISMATCH
    sdk.set_acl(table, {})
    assert refusal(reader.page, table) == (403, "AuthenticationFailed")


def test_policies_of_a_missing_table(sdk, new_name):
    assert refusal(sdk.get_table_acl, new_name()) == (404, "TableNotFound")


@pytest.mark.parametrize("permission, granted", [("rl", True), ("w", False)])
def test_a_signature_for_the_account(cosmos, server, table, permission, granted):
    token = cosmos.generate_account_shared_access_signature(
        ResourceTypes(service=True, container=True, object=True), AccountPermissions(_str=permission), "2099-01-01"
    )
    signed = AzureCosmosdbTable(server, sas=token)
    if granted:
        assert table in signed.tables()[0]
    else:
        assert refusal(signed.tables) == MISMATCH
