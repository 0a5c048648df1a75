"""What is too long, too large or incomplete, and what just fits."""

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import EdmType, EntityProperty
from rowhouse import code_of

KEY = {"PartitionKey": "p", "RowKey": "r"}


def refusal(call, *arguments, **options):
    with pytest.raises(HttpResponseError) as caught:
        call(*arguments, **options)
    return caught.value.status_code, code_of(caught.value)


@pytest.mark.parametrize("entity", [{"PartitionKey": "p"}, {"RowKey": "r"}, {}])
def test_both_keys_are_needed(table, entity, statuses):
    with pytest.raises(ValueError, match="must be present in an entity"):
        table.create_entity({**entity, "A": 1}, raw_response_hook=statuses)
    assert statuses == [400]


def test_keys_are_strings(table):
    for entity in ({"PartitionKey": 1, "RowKey": "r"}, {"PartitionKey": "p", "RowKey": 2.5}):
        assert refusal(table.create_entity, entity) == (400, "InvalidInput")


def test_keys_have_a_longest_length(table):
    long = "k" * 1025
    for entity in ({"PartitionKey": long, "RowKey": "r"}, {"PartitionKey": "p", "RowKey": long}):
        assert refusal(table.create_entity, entity) == (400, "PropertyValueTooLarge")
        assert refusal(table.upsert_entity, entity) == (400, "PropertyValueTooLarge")
    # An astral character counts twice.
    assert refusal(table.create_entity, {"PartitionKey": "😀" * 513, "RowKey": "r"})[0] == 400
    table.create_entity({"PartitionKey": "😀" * 512, "RowKey": "k" * 1024})


def test_properties_have_a_highest_number(table):
    table.create_entity({**KEY, **{f"P{n}": n for n in range(252)}})
    assert len(table.get_entity("p", "r")) == 254
    one_more = {"PartitionKey": "p", "RowKey": "r2", **{f"P{n}": n for n in range(253)}}
    assert refusal(table.create_entity, one_more) == (400, "TooManyProperties")
    # A merge is held to the sum.
    assert refusal(table.update_entity, {**KEY, "Another": 1}, mode="merge") == (400, "TooManyProperties")
    table.update_entity({**KEY, "P0": "same name"}, mode="merge")


def test_property_names_have_a_longest_length(table):
    table.create_entity({**KEY, "n" * 255: 1})
    assert refusal(table.upsert_entity, {**KEY, "n" * 256: 1}) == (400, "PropertyNameTooLong")


@pytest.mark.parametrize("name", ["1digit", "a-b", "a b", "a.b"])
def test_property_names_are_identifiers(table, name):
    assert refusal(table.create_entity, {**KEY, name: 1})[0] == 400


def test_values_have_a_largest_size(table):
    table.create_entity({**KEY, "S": "x" * 32768, "B": b"x" * 65536})
    assert refusal(table.upsert_entity, {**KEY, "S": "x" * 32769}) == (400, "PropertyValueTooLarge")
    assert refusal(table.upsert_entity, {**KEY, "B": b"x" * 65537}) == (400, "PropertyValueTooLarge")
    assert len(table.get_entity("p", "r")["S"]) == 32768


def test_entities_have_a_largest_size(table):
    table.create_entity({**KEY, **{f"B{n}": b"x" * 65536 for n in range(15)}})
    assert refusal(table.upsert_entity, {**KEY, **{f"B{n}": b"x" * 65536 for n in range(17)}}, mode="replace") == (
        400,
        "EntityTooLarge",
    )
    # A merge is held to the sum.
    assert refusal(table.update_entity, {**KEY, "C": b"x" * 65536, "D": b"x" * 65536}, mode="merge") == (
        400,
        "EntityTooLarge",
    )
    assert len(table.get_entity("p", "r")) == 17


def test_bodies_have_a_largest_size(table):
    huge = {**KEY, **{f"B{n}": b"x" * 65000 for n in range(60)}}
    assert refusal(table.create_entity, huge) == (413, "RequestBodyTooLarge")


@pytest.mark.parametrize(
    ("value", "edm_type"),
    [
        ("not a date", EdmType.DATETIME),
        ("2020-13-01T00:00:00Z", EdmType.DATETIME),
        ("not-a-guid", EdmType.GUID),
        ("not a number", EdmType.DOUBLE),
    ],
)
def test_values_are_of_their_type(table, value, edm_type):
    assert refusal(table.create_entity, {**KEY, "V": EntityProperty(value, edm_type)})[0] == 400
    assert list(table.list_entities()) == []


@pytest.mark.parametrize("size", [0, 1001])
def test_page_sizes_have_a_range(table, size):
    table.create_entity(KEY)
    if size == 0:
        assert list(table.list_entities(results_per_page=0)) in ([], [KEY])
    else:
        assert refusal(list, table.list_entities(results_per_page=size)) == (400, "InvalidInput")
