"""Stored access policies."""

from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.data.tables import TableAccessPolicy, TableSasPermissions
from rowhouse import code_of

START = datetime(2021, 3, 4, 5, 6, 7, tzinfo=timezone.utc)
EXPIRY = START + timedelta(days=3650)


def test_a_new_table_has_none(table):
    assert table.get_table_access_policy() == {}


def test_they_come_back_as_they_were_set(table):
    table.set_table_access_policy(
        {
            "whole": TableAccessPolicy(start=START, expiry=EXPIRY, permission="raud"),
            "half": TableAccessPolicy(permission=TableSasPermissions(read=True, update=True)),
            "bare": None,
            "it's <&> ü": TableAccessPolicy(expiry=EXPIRY),
        }
    )
    read = table.get_table_access_policy()
    assert list(read) == ["whole", "half", "bare", "it's <&> ü"]
    whole = read["whole"]
    assert (whole.start, whole.expiry, whole.permission) == (START, EXPIRY, "raud")
    assert read["half"].permission == "ru"
    assert read["half"].start is None
    assert read["half"].expiry is None
    assert read["bare"] is None
    assert read["it's <&> ü"].expiry == EXPIRY


def test_setting_replaces_all_of_them(table):
    table.set_table_access_policy({"a": TableAccessPolicy(permission="r"), "b": TableAccessPolicy(permission="a")})
    table.set_table_access_policy({"c": TableAccessPolicy(permission="d")})
    assert list(table.get_table_access_policy()) == ["c"]
    table.set_table_access_policy({})
    assert table.get_table_access_policy() == {}


def test_five_are_the_most(table):
    five = {f"p{n}": TableAccessPolicy(permission="r", expiry=EXPIRY) for n in range(5)}
    table.set_table_access_policy(five)
    assert len(table.get_table_access_policy()) == 5
    # The SDK refuses the sixth itself.
    with pytest.raises(ValueError, match="Too many access policies"):
        table.set_table_access_policy({**five, "p5": TableAccessPolicy(permission="r")})


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("n" * 65, TableAccessPolicy(permission="r")),
        ("order", TableAccessPolicy(permission="dr")),
        ("letter", TableAccessPolicy(permission="rx")),
        ("time", TableAccessPolicy(expiry="tomorrow")),
    ],
)
def test_bad_ones_are_refused_and_nothing_changes(table, name, policy):
    table.set_table_access_policy({"kept": TableAccessPolicy(permission="r")})
    with pytest.raises(HttpResponseError) as caught:
        table.set_table_access_policy({name: policy})
    assert (caught.value.status_code, code_of(caught.value)) == (400, "InvalidXmlNodeValue")
    assert list(table.get_table_access_policy()) == ["kept"]


def test_they_go_with_their_table(service, new_name):
    missing = service.get_table_client(new_name("Missing"))
    for attempt in (missing.get_table_access_policy, lambda: missing.set_table_access_policy({})):
        with pytest.raises(ResourceNotFoundError) as caught:
            attempt()
        assert code_of(caught.value) == "TableNotFound"
    table = service.create_table(new_name())
    table.set_table_access_policy({"a": TableAccessPolicy(permission="r")})
    table.delete_table()
    table.create_table()
    assert table.get_table_access_policy() == {}
    table.delete_table()
