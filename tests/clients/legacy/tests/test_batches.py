"""Entity group transactions: all or nothing."""

from sdks import plain, refusal


def entity(row, **properties):
    return {"PartitionKey": "p", "RowKey": row, **properties}


def state(sdk, table):
    return {plain(e)["RowKey"]: plain(e).get("V") for page in sdk.walk(table) for e in page}


def test_every_kind_of_operation(sdk, table):
    for row in ("update", "merge", "delete", "replace_old", "merge_old"):
        sdk.insert(table, entity(row, V="old", Kept="yes"))
    sdk.batch(
        table,
        [
            ("insert", entity("insert", V="it's <new> & ü")),
            ("update", entity("update", V="new")),
            ("merge", entity("merge", V="new")),
            ("delete", entity("delete")),
            ("insert_or_replace", entity("replace_old", V="new")),
            ("insert_or_replace", entity("replace_new", V="new")),
            ("insert_or_merge", entity("merge_old", V="new")),
            ("insert_or_merge", entity("merge_new", V="new")),
        ],
    )
    new = ("update", "merge", "replace_old", "replace_new", "merge_old", "merge_new")
    assert state(sdk, table) == {"insert": "it's <new> & ü", **{row: "new" for row in new}}
    kept = {row for row in new if "Kept" in plain(sdk.get_entity(table, "p", row))}
    assert kept == {"merge", "merge_old"}


def test_a_hundred_operations(sdk, table):
    sdk.batch(table, [("insert", entity(f"{n:03}", V="v")) for n in range(100)])
    assert len(state(sdk, table)) == 100


def test_a_failure_undoes_everything(sdk, table):
    sdk.insert(table, entity("taken", V="old"))
    for failing, expected in (
        (("insert", entity("taken", V="new")), (409, "EntityAlreadyExists")),
        (("update", entity("gone", V="new")), (404, "ResourceNotFound")),
        (("delete", entity("gone")), (404, "ResourceNotFound")),
    ):
        assert refusal(sdk.batch, table, [("insert", entity("fresh")), failing]) == expected
        assert state(sdk, table) == {"taken": "old"}
