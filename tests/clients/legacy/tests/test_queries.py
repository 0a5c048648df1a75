"""Filters, selections and pages."""

import pytest
from sdks import plain, refusal


def fill(sdk, table, count):
    for start in range(0, count, 100):
        rows = range(start, min(start + 100, count))
        sdk.batch(table, [("insert", {"PartitionKey": "p", "RowKey": f"{n:05}", "N": n}) for n in rows])


def test_more_than_a_thousand_come_in_pages(sdk, table):
    fill(sdk, table, 2150)
    pages = [[plain(entity)["RowKey"] for entity in page] for page in sdk.walk(table)]
    assert [len(page) for page in pages] == [1000, 1000, 150]
    assert [row for page in pages for row in page] == [f"{n:05}" for n in range(2150)]
    # The SDK's own walk.
    if sdk.name == "azure-cosmosdb-table":
        assert len(list(sdk.query_entities(table))) == 2150
        assert len(list(sdk.query_entities(table, num_results=700))) == 700


def test_pages_keep_filter_and_select(sdk, table):
    fill(sdk, table, 30)
    pages = list(sdk.walk(table, filter="N ge 10", select="RowKey", top=8))
    assert [len(page) for page in pages] == [8, 8, 4]
    assert all(plain(entity).keys() == {"RowKey"} for page in pages for entity in page)


def test_tokens_lead_over_partitions(sdk, table):
    for partition in "abc":
        for row in "12":
            sdk.insert(table, {"PartitionKey": partition, "RowKey": row})
    walked = [(plain(e)["PartitionKey"], plain(e)["RowKey"]) for page in sdk.walk(table, top=1) for e in page]
    assert walked == [(partition, row) for partition in "abc" for row in "12"]


@pytest.mark.parametrize(
    "condition, rows",
    [
        ("PartitionKey eq 'p' and RowKey eq '00003'", [3]),
        ("RowKey gt '00001' and RowKey le '00004'", [2, 3, 4]),
        ("N lt 2 or N gt 7", [0, 1, 8, 9]),
        ("not (N ge 2)", [0, 1]),
        ("N eq 5 and PartitionKey eq 'q'", []),
        ("Missing ne 1", []),
    ],
)
def test_filters(sdk, table, condition, rows):
    fill(sdk, table, 10)
    assert sdk.rows(table, filter=condition) == [f"{n:05}" for n in rows]


def test_a_bad_filter_is_refused(sdk, table):
    assert refusal(sdk.page, table, filter="N eq")[0] == 400
    assert refusal(sdk.page, table, filter="startswith(N, 'a')") == (501, "NotImplemented")
