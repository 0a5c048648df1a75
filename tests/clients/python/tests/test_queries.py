"""Filters over every type, order, and pages."""

import uuid
from datetime import datetime, timezone

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import EdmType, EntityProperty
from rowhouse import code_of

DAY = [datetime(2020, 1, day, 12, tzinfo=timezone.utc) for day in (1, 2, 3)]
GUID = [uuid.UUID(int=n << 96) for n in (1, 2, 3)]


@pytest.fixture(scope="module")
def people(server):
    """Three entities, a, b and c, whose values of each type rise."""
    from azure.data.tables import TableServiceClient

    with TableServiceClient(server.endpoint, credential=server.credential(), retry_total=0) as service:
        table = service.create_table("QueriesPeople")
        for n, row in enumerate("abc"):
            table.create_entity(
                {
                    "PartitionKey": "p",
                    "RowKey": row,
                    "S": f"it's {row}",
                    "B": n > 0,
                    "I": 10 * n - 5,
                    "L": EntityProperty(n * 2**40, EdmType.INT64),
                    "D": n + 0.5,
                    "T": DAY[n],
                    "G": GUID[n],
                    "X": bytes([n, 0xFF]),
                    **({"Only": 7} if row == "b" else {}),
                }
            )
        yield table
        service.delete_table("QueriesPeople")


def rows(table, condition, **parameters):
    found = table.query_entities(condition, parameters=parameters or None)
    return "".join(entity["RowKey"] for entity in found)


@pytest.mark.parametrize(
    ("condition", "parameters", "expected"),
    [
        ("S eq @v", {"v": "it's b"}, "b"),
        ("S ne @v", {"v": "it's b"}, "ac"),
        ("S gt @v", {"v": "it's a"}, "bc"),
        ("B eq @v", {"v": True}, "bc"),
        ("B eq @v", {"v": False}, "a"),
        ("I eq @v", {"v": 5}, "b"),
        ("I le @v", {"v": 5}, "ab"),
        ("I lt @v", {"v": -5}, ""),
        ("L eq @v", {"v": 2**40}, "b"),
        ("L ge @v", {"v": 2**40}, "bc"),
        ("L gt @v", {"v": 2**31}, "bc"),
        ("D eq @v", {"v": 1.5}, "b"),
        ("D lt @v", {"v": 2.0}, "ab"),
        ("D lt @v", {"v": 1e300}, "abc"),
        ("T eq @v", {"v": DAY[1]}, "b"),
        ("T ge @v", {"v": DAY[1]}, "bc"),
        ("G eq @v", {"v": GUID[1]}, "b"),
        ("G ne @v", {"v": GUID[1]}, "ac"),
        ("X eq @v", {"v": b"\x01\xff"}, "b"),
        ("X gt @v", {"v": b"\x00\xff"}, "bc"),
        ("RowKey ge @low and RowKey lt @high", {"low": "b", "high": "c"}, "b"),
        ("I gt @i and S eq @s", {"i": 0, "s": "it's c"}, "c"),
        ("I eq @i or D eq @d", {"i": -5, "d": 2.5}, "ac"),
    ],
)
def test_filters_with_parameters(people, condition, parameters, expected):
    if parameters.get("i") == 0:
        # The SDK prints the parameter 0 as `false`.
        condition, parameters = condition.replace("@i", "0"), {"s": parameters["s"]}
    assert rows(people, condition, **parameters) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("PartitionKey eq 'p'", "abc"),
        ("PartitionKey eq 'P'", ""),
        ("PartitionKey eq 'p' and RowKey eq 'b'", "b"),
        ("RowKey eq 'a' or RowKey eq 'c'", "ac"),
        ("not (RowKey eq 'b')", "ac"),
        ("not (I gt 0) or RowKey eq 'c'", "ac"),
        ("(I gt 0)and(B eq true)", "bc"),
        ("B", "bc"),
        ("'it''s b' eq S", "b"),
        ("0 lt I", "bc"),
        ("L eq 1099511627776L", "b"),
        ("D gt 1", "bc"),
        ("T gt datetime'2020-01-01T12:00:00.0000000Z'", "bc"),
        ("G eq guid'00000002-0000-0000-0000-000000000000'", "b"),
        ("X eq binary'01ff' or X eq X'02FF'", "bc"),
        ("Timestamp gt datetime'2020-01-01T00:00:00Z'", "abc"),
        ("Timestamp gt datetime'2999-01-01T00:00:00Z'", ""),
        # A missing property compares false, unequal included.
        ("Only eq 7", "b"),
        ("Only ne 8", "b"),
        ("Missing ne 8", ""),
        # A stored value of another type sorts below the literal.
        ("S eq 5", ""),
        ("S ne 5", "abc"),
        ("", "abc"),
    ],
)
def test_filters_as_written(people, condition, expected):
    assert rows(people, condition) == expected


@pytest.mark.parametrize(
    ("condition", "status", "code"),
    [
        ("aaa bbb ccc", 400, "InvalidInput"),
        ("I eq", 400, "InvalidInput"),
        ("(I eq 1", 400, "InvalidInput"),
        ("PartitionKey eq 1", 400, "InvalidInput"),
        ("startswith(S,'it')", 501, "NotImplemented"),
        ("I eq D", 501, "NotImplemented"),
    ],
)
def test_filters_that_make_no_sense(people, condition, status, code):
    with pytest.raises(HttpResponseError) as caught:
        rows(people, condition)
    assert (caught.value.status_code, code_of(caught.value)) == (status, code)


def test_select_with_a_filter(people):
    found = people.query_entities("I gt 0", select=["RowKey", "I", "Only"])
    assert [dict(e) for e in found] == [{"RowKey": "b", "I": 5, "Only": 7}, {"RowKey": "c", "I": 15, "Only": None}]


@pytest.fixture(scope="module")
def many(server):
    """1,050 entities in three partitions."""
    from azure.data.tables import TableServiceClient

    with TableServiceClient(server.endpoint, credential=server.credential(), retry_total=0) as service:
        table = service.create_table("QueriesMany")
        for partition in ("a", "b'ü", "c"):
            entities = [{"PartitionKey": partition, "RowKey": f"{n:04}", "N": n} for n in range(350)]
            for start in range(0, 350, 100):
                table.submit_transaction([("create", entity) for entity in entities[start : start + 100]])
        yield table
        service.delete_table("QueriesMany")


def keys(entities):
    return [(entity["PartitionKey"], entity["RowKey"]) for entity in entities]


def test_a_whole_table_comes_in_order_a_thousand_at_a_time(many):
    pages = [keys(page) for page in many.list_entities().by_page()]
    assert [len(page) for page in pages] == [1000, 50]
    everything = sum(pages, [])
    assert everything == sorted((p, f"{n:04}") for p in ("a", "b'ü", "c") for n in range(350))


@pytest.mark.parametrize("size", [7, 100, 349, 350, 351, 1000])
def test_pages_hold_what_was_asked_for(many, size):
    pages = [keys(page) for page in many.query_entities("PartitionKey eq 'b''ü'", results_per_page=size).by_page()]
    assert [len(page) for page in pages[:-1]] == [size] * (len(pages) - 1)
    assert 0 < len(pages[-1]) <= size
    assert sum(pages, []) == [("b'ü", f"{n:04}") for n in range(350)]


def test_tokens_continue_a_walk_elsewhere(many):
    condition = "N ge 300"
    pages = many.query_entities(condition, results_per_page=40).by_page()
    first = keys(next(pages))
    token = pages.continuation_token
    assert set(token) == {"PartitionKey", "RowKey"}
    rest = [keys(page) for page in many.query_entities(condition, results_per_page=40).by_page(token)]
    assert first + sum(rest, []) == sorted((p, f"{n:04}") for p in ("a", "b'ü", "c") for n in range(300, 350))


def test_walks_survive_changes_between_pages(service, new_name):
    table = service.create_table(new_name())
    for n in range(0, 20, 2):
        table.create_entity({"PartitionKey": "p", "RowKey": f"{n:02}"})
    pages = table.list_entities(results_per_page=5).by_page()
    assert [row for _, row in keys(next(pages))] == ["00", "02", "04", "06", "08"]
    table.delete_entity("p", "10")
    table.create_entity({"PartitionKey": "p", "RowKey": "13"})
    rest = [row for page in pages for _, row in keys(page)]
    assert rest == ["12", "13", "14", "16", "18"]


def test_order_is_ordinal(service, new_name):
    table = service.create_table(new_name())
    expected = ["", "!", "1", "10", "2", "A", "B", "Z", "_", "a", "b", "~", "é", "ﬀ"]
    for key in reversed(expected):
        table.create_entity({"PartitionKey": key, "RowKey": "r"})
    assert [p for p, _ in keys(table.list_entities())] == expected


def test_pages_of_large_entities_are_all_there(service, new_name):
    table = service.create_table(new_name())
    for n in range(12):
        table.create_entity({"PartitionKey": "p", "RowKey": f"{n:02}", **{f"B{i}": b"x" * 65000 for i in range(12)}})
    assert [row for _, row in keys(table.list_entities())] == [f"{n:02}" for n in range(12)]
