"""Creating, listing, querying and deleting tables."""

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from rowhouse import code_of


def names(tables):
    return [table.name for table in tables]


def test_a_table_is_created_listed_and_deleted(service, new_name, statuses):
    name = new_name()
    client = service.create_table(name, raw_response_hook=statuses)
    assert client.table_name == name
    assert statuses == [201]
    assert name in names(service.list_tables())
    service.delete_table(name, raw_response_hook=statuses)
    assert statuses == [201, 204]
    assert name not in names(service.list_tables())


def test_a_table_exists_once_in_any_casing(service, new_name):
    name = new_name("MixedCase")
    service.create_table(name)
    for other in (name, name.lower(), name.upper()):
        with pytest.raises(ResourceExistsError) as caught:
            service.create_table(other)
        assert caught.value.status_code == 409
        assert code_of(caught.value) == "TableAlreadyExists"
        assert service.create_table_if_not_exists(other).table_name == other
    # It is listed as it was created, and answers to any casing.
    assert names(service.query_tables(f"TableName eq '{name}'")) == [name]
    service.get_table_client(name.lower()).create_entity({"PartitionKey": "p", "RowKey": "r"})
    assert service.get_table_client(name.upper()).get_entity("p", "r")["RowKey"] == "r"
    service.delete_table(name.swapcase())
    assert names(service.query_tables(f"TableName eq '{name}'")) == []


def test_a_deleted_table_comes_back_empty(service, new_name):
    name = new_name()
    service.create_table(name).create_entity({"PartitionKey": "p", "RowKey": "r"})
    service.delete_table(name)
    again = service.create_table(name)
    assert list(again.list_entities()) == []
    with pytest.raises(ResourceNotFoundError):
        again.get_entity("p", "r")


def test_a_missing_table_is_reported(service, new_name, statuses):
    missing = service.get_table_client(new_name("Missing"))
    # The SDK hides this one.
    service.delete_table(missing.table_name, raw_response_hook=statuses)
    assert statuses == [404]
    entity = {"PartitionKey": "p", "RowKey": "r"}
    for attempt in (
        lambda: missing.create_entity(entity),
        lambda: missing.upsert_entity(entity),
        lambda: missing.update_entity(entity),
        lambda: missing.get_entity("p", "r"),
        lambda: list(missing.list_entities()),
        lambda: missing.submit_transaction([("create", entity)]),
    ):
        with pytest.raises(HttpResponseError) as caught:
            attempt()
        assert code_of(caught.value) == "TableNotFound"


def test_lists_are_ordered_and_filtered_by_name(service, new_name):
    prefix = new_name("Filtered")
    created = [f"{prefix}{letter}" for letter in "dBaC"]
    for name in created:
        service.create_table(name)
    expected = sorted(created, key=str.lower)
    after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    assert names(service.query_tables(f"TableName ge '{prefix}' and TableName lt '{after}'")) == expected
    parameters = {"low": prefix, "high": after}
    assert names(service.query_tables("TableName ge @low and TableName lt @high", parameters=parameters)) == expected
    assert names(service.query_tables(f"TableName eq '{created[0]}' or TableName eq '{created[1]}'")) == [
        created[1],
        created[0],
    ]
    assert [name for name in names(service.list_tables()) if name.startswith(prefix)] == expected
    for name in created:
        service.delete_table(name)


def test_lists_come_in_pages(service, new_name):
    prefix = new_name("Paged")
    created = [f"{prefix}x{i}" for i in range(7)]
    for name in created:
        service.create_table(name)
    condition = f"TableName ge '{prefix}x' and TableName lt '{prefix}y'"

    def pages(token=None):
        return service.query_tables(condition, results_per_page=3).by_page(continuation_token=token)

    assert [names(page) for page in pages()] == [created[:3], created[3:6], created[6:]]
    first = pages()
    assert names(next(first)) == created[:3]
    # A new walk goes on where the token says.
    assert [names(page) for page in pages(first.continuation_token)] == [created[3:6], created[6:]]
    # A full last page promises nothing.
    assert [len(list(p)) for p in service.query_tables(condition, results_per_page=7).by_page()] == [7]
    for name in created:
        service.delete_table(name)


@pytest.mark.parametrize("name", ["my_table", "1table", "täble", "a-b-c", "my table", "ab", "a" * 64])
def test_bad_names_are_refused(service, name, statuses):
    # The SDK turns the service's refusal into its own error.
    with pytest.raises(ValueError, match="Storage table names"):
        service.create_table(name, raw_response_hook=statuses)
    assert statuses == [400]


@pytest.mark.parametrize("name", ["tables", "Tables"])
def test_the_reserved_name_is_refused(service, name):
    with pytest.raises(HttpResponseError) as caught:
        service.create_table(name)
    assert (caught.value.status_code, code_of(caught.value)) == (400, "InvalidInput")


def test_the_shortest_and_the_longest_name_are_fine(service):
    for name in ("abc", "a" * 63):
        service.create_table(name)
        assert names(service.query_tables(f"TableName eq '{name}'")) == [name]
        service.delete_table(name)
