"""Reading and writing single entities."""

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.data.tables import UpdateMode
from rowhouse import code_of

KEY = {"PartitionKey": "p", "RowKey": "r"}


def stored(table):
    return dict(table.get_entity("p", "r"))


def test_insert_and_read(table, statuses):
    written = table.create_entity({**KEY, "Name": "Marie", "Age": 33}, raw_response_hook=statuses)
    read = table.get_entity("p", "r")
    assert dict(read) == {**KEY, "Name": "Marie", "Age": 33}
    assert read.metadata["etag"] == written["etag"]
    assert read.metadata["timestamp"] is not None
    assert statuses == [201]


def test_a_second_insert_conflicts_and_changes_nothing(table):
    table.create_entity({**KEY, "A": 1})
    with pytest.raises(ResourceExistsError) as caught:
        table.create_entity({**KEY, "A": 2})
    assert (caught.value.status_code, code_of(caught.value)) == (409, "EntityAlreadyExists")
    assert stored(table) == {**KEY, "A": 1}


def test_update_replaces_or_merges(table):
    table.create_entity({**KEY, "A": 1, "B": "old"})
    table.update_entity({**KEY, "B": 2.5, "C": True}, mode=UpdateMode.MERGE)
    assert stored(table) == {**KEY, "A": 1, "B": 2.5, "C": True}
    table.update_entity({**KEY, "D": "only"}, mode=UpdateMode.REPLACE)
    assert stored(table) == {**KEY, "D": "only"}
    table.update_entity(KEY, mode=UpdateMode.REPLACE)
    assert stored(table) == KEY


def test_merge_ignores_null(table):
    table.create_entity({**KEY, "A": 1})
    table.update_entity({**KEY, "A": None, "B": None}, mode=UpdateMode.MERGE)
    assert stored(table) == {**KEY, "A": 1}


@pytest.mark.parametrize("mode", list(UpdateMode))
def test_update_needs_an_entity(table, mode):
    with pytest.raises(ResourceNotFoundError) as caught:
        table.update_entity({**KEY, "A": 1}, mode=mode)
    assert code_of(caught.value) == "ResourceNotFound"


def test_upsert_inserts_then_replaces_or_merges(table):
    table.upsert_entity({**KEY, "A": 1}, mode=UpdateMode.REPLACE)
    assert stored(table) == {**KEY, "A": 1}
    table.upsert_entity({**KEY, "B": 2}, mode=UpdateMode.MERGE)
    assert stored(table) == {**KEY, "A": 1, "B": 2}
    table.upsert_entity({**KEY, "C": 3}, mode=UpdateMode.REPLACE)
    assert stored(table) == {**KEY, "C": 3}
    table.upsert_entity({"PartitionKey": "p", "RowKey": "new", "D": 4}, mode=UpdateMode.MERGE)
    assert table.get_entity("p", "new")["D"] == 4


def test_delete(table, statuses):
    table.create_entity(KEY)
    table.delete_entity("p", "r", raw_response_hook=statuses)
    with pytest.raises(ResourceNotFoundError) as caught:
        table.get_entity("p", "r")
    assert (caught.value.status_code, code_of(caught.value)) == (404, "ResourceNotFound")
    # The SDK hides that there is nothing left to delete.
    table.delete_entity("p", "r", raw_response_hook=statuses)
    assert statuses == [204, 404]


def test_every_write_makes_a_new_etag(table):
    etags = [table.create_entity({**KEY, "A": 1})["etag"]]
    for _ in range(5):
        etags.append(table.update_entity({**KEY, "A": 1})["etag"])
        etags.append(table.upsert_entity({**KEY, "A": 1}, mode=UpdateMode.REPLACE)["etag"])
    assert len(set(etags)) == len(etags)
    assert table.get_entity("p", "r").metadata["etag"] == etags[-1]


@pytest.mark.parametrize("mode", list(UpdateMode))
def test_a_stale_etag_loses(table, mode):
    stale = table.create_entity({**KEY, "A": 1})["etag"]
    fresh = table.update_entity({**KEY, "A": 2})["etag"]
    unmodified = MatchConditions.IfNotModified
    with pytest.raises(ResourceModifiedError) as caught:
        table.update_entity({**KEY, "A": 3}, mode=mode, etag=stale, match_condition=unmodified)
    assert (caught.value.status_code, code_of(caught.value)) == (412, "UpdateConditionNotSatisfied")
    with pytest.raises(ResourceModifiedError):
        table.delete_entity("p", "r", etag=stale, match_condition=unmodified)
    assert stored(table)["A"] == 2
    table.update_entity({**KEY, "A": 3}, mode=mode, etag=fresh, match_condition=unmodified)
    read = table.get_entity("p", "r")
    assert read["A"] == 3
    table.delete_entity(read, etag=read.metadata["etag"], match_condition=unmodified)
    with pytest.raises(ResourceNotFoundError):
        table.get_entity("p", "r")


def test_unconditional_writes_ignore_versions(table):
    table.create_entity({**KEY, "A": 1})
    table.update_entity({**KEY, "A": 2}, match_condition=MatchConditions.Unconditionally)
    table.delete_entity("p", "r", match_condition=MatchConditions.Unconditionally)
    assert list(table.list_entities()) == []


def test_a_missing_entity_wins_over_its_etag(table):
    etag = table.create_entity(KEY)["etag"]
    table.delete_entity("p", "r")
    with pytest.raises(ResourceNotFoundError):
        table.update_entity(KEY, etag=etag, match_condition=MatchConditions.IfNotModified)


def test_select_names_what_comes_back(table):
    table.create_entity({**KEY, "A": 1, "B": 2, "C": 3})
    assert dict(table.get_entity("p", "r", select=["A", "C"])) == {"A": 1, "C": 3}
    assert dict(table.get_entity("p", "r", select=["PartitionKey", "B"])) == {"PartitionKey": "p", "B": 2}
    assert dict(table.get_entity("p", "r", select="A")) == {"A": 1}
    # What the entity lacks comes back as null.
    assert dict(table.get_entity("p", "r", select=["A", "Missing"])) == {"A": 1, "Missing": None}
    assert [dict(e) for e in table.list_entities(select=["B"])] == [{"B": 2}]


KEYS = [
    "",
    " ",
    "it's",
    "''",
    "'quoted'",
    'double "quotes"',
    "a b  c",
    "100%",
    "%20",
    "%2520",
    "%27",
    "a+b",
    "a&b=c",
    "a,b;c",
    "(RowKey='x')",
    "user@example.com:80",
    "<tag>",
    "$filter",
    "[]{}|^`~!*",
    "tab-less",
    "ümläut",
    "日本語",
    "😀 emoji",
    "e\u0301 combining",
    "\u00a0nbsp",
    "x" * 1024,
    "ü" * 1024,
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: repr(key[:16]))
def test_keys_hold_what_they_may(table, key):
    entity = {"PartitionKey": key, "RowKey": key, "A": 1}
    table.create_entity(entity)
    assert dict(table.get_entity(key, key)) == entity
    table.update_entity({**entity, "A": 2}, mode=UpdateMode.REPLACE)
    table.upsert_entity({**entity, "B": 3}, mode=UpdateMode.MERGE)
    both = {"key": key}
    found = list(table.query_entities("PartitionKey eq @key and RowKey eq @key", parameters=both))
    assert [dict(e) for e in found] == [{**entity, "B": 3}]
    table.submit_transaction([("upsert", {**entity, "A": 4}), ("create", {**entity, "RowKey": "other"})])
    assert table.get_entity(key, key)["A"] == 4
    table.submit_transaction([("delete", entity), ("delete", {**entity, "RowKey": "other"})])
    assert list(table.list_entities()) == []


@pytest.mark.parametrize("bad", ["a/b", "a\\b", "a#b", "a?b", "a\tb", "a\nb", "a\u007fb", "a\u0085b"])
def test_keys_refuse_what_they_may_not_hold(table, bad):
    for entity in ({"PartitionKey": bad, "RowKey": "r"}, {"PartitionKey": "p", "RowKey": bad}):
        with pytest.raises(HttpResponseError) as caught:
            table.create_entity(entity)
        assert (caught.value.status_code, code_of(caught.value)) == (400, "OutOfRangeInput")
        with pytest.raises(HttpResponseError) as caught:
            table.upsert_entity(entity)
        assert caught.value.status_code == 400
    assert list(table.list_entities()) == []
