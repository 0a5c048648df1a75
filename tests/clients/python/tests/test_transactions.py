"""Entity group transactions: all or nothing."""

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.data.tables import RequestTooLargeError, TableTransactionError, UpdateMode
from rowhouse import code_of


def entity(row, **properties):
    return {"PartitionKey": "p", "RowKey": row, **properties}


def state(table):
    return {e["RowKey"]: {k: v for k, v in e.items() if not k.endswith("Key")} for e in table.list_entities()}


def refused(table, operations):
    """Submits what must fail, sees that nothing changed, and returns the error."""
    before = [(dict(e), e.metadata["etag"]) for e in table.list_entities()]
    with pytest.raises(TableTransactionError) as caught:
        table.submit_transaction(operations)
    assert [(dict(e), e.metadata["etag"]) for e in table.list_entities()] == before
    return caught.value.index, code_of(caught.value)


def test_a_hundred_mixed_operations(table):
    etags = {}
    for kind in ("delete", "stale", "merge", "replace", "upmerge", "upreplace"):
        operations = [("create", entity(f"{kind}{n:02}", Old=n, Keep=True)) for n in range(10)]
        for (_, e), written in zip(operations, table.submit_transaction(operations), strict=True):
            etags[e["RowKey"]] = written["etag"]
    operations = []
    for n in range(10):
        checked = {"etag": etags[f"stale{n:02}"], "match_condition": MatchConditions.IfNotModified}
        operations += [
            ("create", entity(f"new{n:02}", Old=n)),
            ("delete", entity(f"delete{n:02}")),
            ("update", entity(f"merge{n:02}", Old=-n), {"mode": UpdateMode.MERGE}),
            ("update", entity(f"replace{n:02}", Old=-n), {"mode": UpdateMode.REPLACE}),
            ("update", entity(f"stale{n:02}", Old=-n), {"mode": UpdateMode.MERGE, **checked}),
            ("upsert", entity(f"upmerge{n:02}", Old=-n), {"mode": UpdateMode.MERGE}),
            ("upsert", entity(f"upreplace{n:02}", Old=-n), {"mode": UpdateMode.REPLACE}),
            ("upsert", entity(f"fresh{n:02}", Old=n), {"mode": UpdateMode.MERGE}),
            ("upsert", entity(f"fresher{n:02}", Old=n), {"mode": UpdateMode.REPLACE}),
            ("create", entity(f"newer{n:02}", Text="it's 100% <&> ü")),
        ]
    results = table.submit_transaction(operations)
    assert len(results) == 100
    for operation, result in zip(operations, results, strict=True):
        assert ("etag" in result and result["etag"] is not None) == (operation[0] != "delete")
    expected = {}
    for n in range(10):
        expected |= {
            f"new{n:02}": {"Old": n},
            f"merge{n:02}": {"Old": -n, "Keep": True},
            f"replace{n:02}": {"Old": -n},
            f"stale{n:02}": {"Old": -n, "Keep": True},
            f"upmerge{n:02}": {"Old": -n, "Keep": True},
            f"upreplace{n:02}": {"Old": -n},
            f"fresh{n:02}": {"Old": n},
            f"fresher{n:02}": {"Old": n},
            f"newer{n:02}": {"Text": "it's 100% <&> ü"},
        }
    assert state(table) == expected
    etags = {e["RowKey"]: e.metadata["etag"] for e in table.list_entities()}
    answered = {o[1]["RowKey"]: r["etag"] for o, r in zip(operations, results, strict=True) if o[0] != "delete"}
    assert answered == etags


@pytest.mark.parametrize("index", [1, 5, 98])
def test_a_conflict_names_its_operation_and_undoes_the_rest(table, index):
    table.create_entity(entity("taken", A=1))
    operations = [("create", entity(f"{n:03}")) for n in range(99)]
    operations[index] = ("create", entity("taken", A=2))
    assert refused(table, operations) == (index, "EntityAlreadyExists")


def test_a_missing_entity_undoes_everything(table):
    table.create_entity(entity("a", A=1))
    operations = [
        ("update", entity("a", A=2)),
        ("delete", entity("a2")),
    ]
    assert refused(table, operations) == (1, "ResourceNotFound")
    operations = [("upsert", entity("b")), ("update", entity("missing")), ("delete", entity("a"))]
    assert refused(table, operations) == (1, "ResourceNotFound")


def test_a_stale_etag_undoes_everything(table):
    stale = table.create_entity(entity("a", A=1))["etag"]
    table.update_entity(entity("a", A=2))
    checked = {"etag": stale, "match_condition": MatchConditions.IfNotModified}
    for failing in (
        ("update", entity("a", A=3), {"mode": UpdateMode.REPLACE, **checked}),
        ("delete", entity("a"), checked),
    ):
        operations = [("create", entity("b")), ("upsert", entity("c")), failing]
        assert refused(table, operations) == (2, "UpdateConditionNotSatisfied")


def test_the_first_failure_is_the_one_that_counts(table):
    table.create_entity(entity("taken"))
    operations = [("create", entity("x")), ("update", entity("missing")), ("create", entity("taken"))]
    assert refused(table, operations) == (1, "ResourceNotFound")


def test_a_row_may_appear_once(table):
    operations = [("create", entity("a")), ("create", entity("b")), ("upsert", entity("a"))]
    assert refused(table, operations) == (2, "InvalidDuplicateRow")


def test_a_hundred_and_one_operations_are_too_many(table):
    operations = [("upsert", entity(f"{n:03}")) for n in range(101)]
    assert refused(table, operations) == (99, "InvalidInput")


def test_more_than_four_mebibytes_are_too_many(table):
    operations = [("upsert", entity(f"{n:03}", B=b"x" * 60_000)) for n in range(60)]
    with pytest.raises(RequestTooLargeError):
        table.submit_transaction(operations)
    assert state(table) == {}
    # Close to the limit is fine.
    operations = [("upsert", entity(f"{n:03}", B=b"x" * 60_000)) for n in range(50)]
    assert len(table.submit_transaction(operations)) == 50


def test_an_operation_that_is_refused_for_itself_names_its_index(table):
    operations = [("create", entity("a")), ("create", entity("b/c"))]
    assert refused(table, operations) == (1, "OutOfRangeInput")
    operations = [("create", entity("a")), ("create", entity("b", S="x" * 32769))]
    assert refused(table, operations) == (1, "PropertyValueTooLarge")


def test_a_single_operation_reports_its_failure(table):
    table.create_entity(entity("a"))
    assert refused(table, [("create", entity("a"))]) == (0, "EntityAlreadyExists")


def test_two_partitions_are_refused(table, service):
    with pytest.raises(ValueError, match="Partition Keys"):
        table.submit_transaction([("create", entity("a")), ("create", {**entity("b"), "PartitionKey": "q"})])
    assert state(table) == {}


def test_a_batch_for_a_missing_table(service, new_name):
    missing = service.get_table_client(new_name("Missing"))
    with pytest.raises(HttpResponseError) as caught:
        missing.submit_transaction([("create", entity("a")), ("create", entity("b"))])
    assert code_of(caught.value) == "TableNotFound"
