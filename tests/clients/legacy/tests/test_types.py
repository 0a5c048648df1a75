"""Every type there and back: in Atom and in JSON."""

from datetime import datetime, timezone
from math import isnan

import pytest
from azure.cosmosdb.table import EdmType
from azure.cosmosdb.table import EntityProperty as CosmosProperty
from azure.storage.table import EntityProperty as StorageProperty
from sdks import plain

GUID = "c9da6455-213d-42c9-9a79-3e9149a57833"
TEXTS = ["", " spaces ", "it's", "<tag> & \"quote\"", "ü€😀", "a\nb\tc", "x" * 32768]


def typed(sdk, kind, value):
    return (StorageProperty if sdk.name == "azure-storage" else CosmosProperty)(kind, value)


def there_and_back(sdk, table, **properties):
    sdk.insert(table, {"PartitionKey": "p", "RowKey": "r", **properties})
    found = plain(sdk.get_entity(table, "p", "r"))
    assert [plain(e) for page in sdk.walk(table) for e in page] == [found]
    return {name: value for name, value in found.items() if name not in ("PartitionKey", "RowKey")}


def test_values_that_python_has_types_for(sdk, table):
    values = {
        "Small": 7,
        "Negative": -(2**31),
        "Large": 2**63 - 1,
        "Double": 0.1,
        "Tiny": 5e-324,
        "True": True,
        "False": False,
        "Time": datetime(2020, 2, 29, 23, 59, 58, tzinfo=timezone.utc),
    }
    expected = dict(values)
    if sdk.name == "azure-cosmosdb-table":
        # It sends every int as an Int64 and marks an Int32 that it reads.
        assert there_and_back(sdk, table, **values, Int32=CosmosProperty(EdmType.INT32, 7)) == {
            **expected,
            "Int32": ("Edm.Int32", 7),
        }
    else:
        assert there_and_back(sdk, table, **values) == expected


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts(sdk, table, text):
    assert there_and_back(sdk, table, Text=text) == {"Text": text}


def test_values_with_a_type_of_their_own(sdk, table):
    data = bytes(range(256))
    found = there_and_back(
        sdk,
        table,
        Guid=typed(sdk, "Edm.Guid", GUID),
        Binary=typed(sdk, "Edm.Binary", data),
        Int64=typed(sdk, "Edm.Int64", 7),
    )
    assert found.pop("Binary") in (data, ("Edm.Binary", data))
    assert found == {"Guid": ("Edm.Guid", GUID), "Int64": 7}


def test_doubles_that_are_no_numbers(sdk, table):
    values = {"High": float("inf"), "Low": float("-inf"), "None": float("nan")}
    if sdk.name == "azure-storage":
        # It sends Python's words for them, so its callers had to use those of XML.
        words = {"High": "INF", "Low": "-INF", "None": "NaN"}
        values = {name: typed(sdk, "Edm.Double", word) for name, word in words.items()}
    sdk.insert(table, {"PartitionKey": "p", "RowKey": "r", **values})
    found = plain(sdk.get_entity(table, "p", "r"))
    assert (found["High"], found["Low"]) == (float("inf"), float("-inf"))
    assert isnan(found["None"])


def test_nulls_are_absent(sdk, table):
    assert there_and_back(sdk, table, Null=None, There="yes") == {"There": "yes"}


def test_the_timestamp_is_now(sdk, table):
    sdk.insert(table, {"PartitionKey": "p", "RowKey": "r"})
    found = sdk.get_entity(table, "p", "r").Timestamp
    assert abs((datetime.now(timezone.utc) - found).total_seconds()) < 60
