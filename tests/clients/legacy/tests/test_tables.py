"""Creating, listing and deleting tables."""

import pytest
from sdks import refusal


def test_a_table_is_created_once_and_deleted_once(sdk, new_name):
    name = new_name()
    assert sdk.create_table(name) is True
    assert sdk.create_table(name) is False
    assert refusal(sdk.create_table, name, fail_on_exist=True) == (409, "TableAlreadyExists")
    assert refusal(sdk.create_table, name.swapcase(), fail_on_exist=True) == (409, "TableAlreadyExists")
    assert name in sdk.tables()[0]
    assert sdk.delete_table(name) is True
    assert sdk.delete_table(name) is False
    assert refusal(sdk.delete_table, name, fail_not_exist=True) == (404, "ResourceNotFound")
    assert name not in sdk.tables()[0]


def test_lists_come_in_pages(sdk, new_name):
    created = [new_name("Paged") for _ in range(7)]
    for name in created:
        sdk.create_table(name, fail_on_exist=True)
    pages, token = [], None
    while not pages or token:
        names, token = sdk.tables(top=3, token=token)
        assert len(names) == 3 or token is None
        pages.append(names)
    listed = [name for names in pages for name in names]
    assert len(pages) >= 3
    assert len(listed) == len(set(listed))
    assert [name for name in listed if name.startswith("Paged")] == created
    for name in created:
        sdk.delete_table(name, fail_not_exist=True)


@pytest.mark.parametrize(
    "name, code", [("my_table", "InvalidResourceName"), ("ab", "OutOfRangeInput"), ("tables", "InvalidInput")]
)
def test_bad_names_are_refused(sdk, name, code):
    assert refusal(sdk.create_table, name, fail_on_exist=True) == (400, code)


def test_a_table_exists_or_not(cosmos, new_name, table):
    assert cosmos.exists(table) is True
    assert cosmos.exists(new_name()) is False


def test_a_missing_table_is_reported(sdk, new_name):
    missing = new_name()
    entity = {"PartitionKey": "p", "RowKey": "r"}
    for call in (sdk.insert, sdk.insert_or_merge, sdk.insert_or_replace):
        assert refusal(call, missing, entity) == (404, "TableNotFound")
    assert refusal(sdk.page, missing) == (404, "TableNotFound")
    assert refusal(sdk.batch, missing, [("insert", entity)]) == (404, "TableNotFound")
