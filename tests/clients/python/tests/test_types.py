"""Values of every type survive, bit for bit."""

import math
import uuid
from datetime import datetime, timedelta, timezone

import pytest
from azure.data.tables import EdmType, EntityProperty

KEY = {"PartitionKey": "p", "RowKey": "r"}
GUID = uuid.UUID("c9da6455-213d-42c9-9a79-3e9149a57833")


def echo(table, value):
    """Writes a value, and reads it by its key and by a query."""
    table.upsert_entity({**KEY, "V": value}, mode="replace")
    by_key = table.get_entity("p", "r")["V"]
    [by_query] = [entity["V"] for entity in table.list_entities()]
    assert repr(by_key) == repr(by_query)
    return by_key


@pytest.mark.parametrize("value", [True, False])
def test_booleans(table, value):
    assert echo(table, value) is value


@pytest.mark.parametrize("value", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_32_bit_integers(table, value):
    read = echo(table, value)
    assert read == value and type(read) is int


@pytest.mark.parametrize("value", [0, 5, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_64_bit_integers(table, value):
    assert echo(table, EntityProperty(value, EdmType.INT64)) == EntityProperty(value, EdmType.INT64)


@pytest.mark.parametrize(
    "value",
    [0.0, 1.0, -3.0, 0.1, 1 / 3, 1e15, 1e16, 123456789012345.67, 1e300, -1e-300, 1.7976931348623157e308, 5e-324],
)
def test_doubles(table, value):
    read = echo(table, value)
    assert type(read) is float
    assert read == value


def test_doubles_that_are_no_numbers(table):
    assert math.isnan(echo(table, math.nan))
    assert echo(table, math.inf) == math.inf
    assert echo(table, -math.inf) == -math.inf
    assert math.copysign(1, echo(table, -0.0)) == -1


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2021-03-04T05:06:07.1234567Z", "2021-03-04T05:06:07.1234567Z"),
        ("2021-03-04T05:06:07.123Z", "2021-03-04T05:06:07.123Z"),
        ("2021-03-04T05:06:07Z", "2021-03-04T05:06:07Z"),
        ("1601-01-01T00:00:00Z", "1601-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z"),
    ],
)
def test_dates_to_the_tick(table, written, read):
    value = echo(table, EntityProperty(written, EdmType.DATETIME))
    assert value.tables_service_value == read


def test_dates_of_python(table):
    utc = datetime(2014, 4, 1, 12, 30, 45, 123456, tzinfo=timezone.utc)
    assert echo(table, utc) == utc
    elsewhere = utc.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert echo(table, elsewhere) == utc


def test_dates_go_around(table):
    table.upsert_entity({**KEY, "V": EntityProperty("2021-03-04T05:06:07.1234567Z", EdmType.DATETIME)})
    table.update_entity(table.get_entity("p", "r"), mode="replace")
    assert table.get_entity("p", "r")["V"].tables_service_value == "2021-03-04T05:06:07.1234567Z"


def test_guids(table):
    assert echo(table, GUID) == GUID
    assert echo(table, EntityProperty(str(GUID).upper(), EdmType.GUID)) == GUID


@pytest.mark.parametrize("value", [b"", b"\x00", b"binary\xff\xfe", bytes(range(256)), b"x" * 65536])
def test_binary(table, value):
    assert echo(table, value) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        " leading and trailing ",
        "it's 'quoted' \"twice\" \\ / back",
        "line\r\nbreaks\tand tabs",
        "control \x01\x1f",
        "nul \x00 inside",
        "ünïcödé 日本語 😀 \u2028",
        "true",
        "5",
        '{"json": [1, 2]}',
        "\\u0041",
        "x" * 32768,
    ],
    ids=lambda value: repr(value[:12]),
)
def test_strings(table, value):
    read = echo(table, value)
    assert read == value and type(read) is str


def test_a_named_type_is_kept(table):
    entity = {
        **KEY,
        "S": EntityProperty("text", EdmType.STRING),
        "B": EntityProperty(True, EdmType.BOOLEAN),
        "I": EntityProperty(7, EdmType.INT32),
        "D": EntityProperty(7.0, EdmType.DOUBLE),
    }
    table.create_entity(entity)
    read = table.get_entity("p", "r")
    assert (read["S"], read["B"], read["I"], read["D"]) == ("text", True, 7, 7.0)
    assert [type(read[name]) for name in "SBID"] == [str, bool, int, float]


def test_an_entity_of_every_type_at_once(table):
    entity = {
        **KEY,
        "String": "text",
        "Boolean": True,
        "Int32": -5,
        "Int64": EntityProperty(2**40, EdmType.INT64),
        "Double": 2.5,
        "DateTime": datetime(2020, 2, 29, tzinfo=timezone.utc),
        "Guid": GUID,
        "Binary": b"\x00\x01",
        "ümlaut_ß": "unicode name",
        "_underscore": 1,
    }
    table.create_entity(entity)
    assert dict(table.get_entity("p", "r")) == entity


def test_null_is_absent(table):
    table.create_entity({**KEY, "A": None, "B": 1})
    assert dict(table.get_entity("p", "r")) == {**KEY, "B": 1}
