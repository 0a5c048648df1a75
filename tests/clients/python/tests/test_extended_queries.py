"""Extended queries, as docs/how-to/operator-features.md describes them: with the switch they are answered, without
it they are refused as the service refuses them."""

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient
from rowhouse import Server, code_of

NAMES = ["Smith", "smart", "Jones", "O'Neil", "Smirnow"]


def rows(entities):
    return [entity["RowKey"] for entity in entities]


def fill(table):
    for at, name in enumerate(NAMES):
        table.create_entity({"PartitionKey": "p", "RowKey": str(at), "Name": name})
    table.create_entity({"PartitionKey": "q", "RowKey": "5", "Number": 5})
    return table


@pytest.fixture(scope="module")
def extended(tmp_path_factory, database_url):
    server = Server(tmp_path_factory.mktemp("extended"), database_url)
    server.settings["ROWHOUSE_EXTENDED_QUERIES"] = server.account
    server.start()
    with TableServiceClient(server.endpoint, credential=server.credential(), retry_total=0) as client:
        yield client
    assert server.stop() == 0


def test_filters_that_the_service_lacks(extended):
    table = fill(extended.create_table("Filters"))
    for text, expected in [
        ("startswith(Name,'Sm')", ["0", "4"]),
        ("startswith(tolower(Name),'sm')", ["0", "1", "4"]),
        ("endswith(Name,'th') eq true", ["0"]),
        ("contains(Name,'''N')", ["3"]),
        ("substringof('mi',Name)", ["0", "4"]),
        ("toupper(Name) eq 'JONES'", ["2"]),
        ("not startswith(Name,'S')", ["1", "2", "3", "5"]),
        ("PartitionKey eq 'p' and RowKey in ('1','3','9')", ["1", "3"]),
        ("startswith(PartitionKey,'q')", ["5"]),
        ("Name eq null", ["5"]),
        ("Number ne null", ["5"]),
    ]:
        assert rows(table.query_entities(text)) == expected, text
    parameters = {"p": "O'"}
    # The SDK takes what stands between blanks for the name of a parameter.
    assert rows(table.query_entities("startswith(Name, @p )", parameters=parameters)) == ["3"]
    assert [found.name for found in extended.query_tables("startswith(TableName,'fil')")] == ["Filters"]


def test_pages_go_on_where_they_ended(extended):
    table = fill(extended.create_table("Pages"))
    pages = table.query_entities("contains(tolower(Name),'m')", results_per_page=1).by_page()
    found = [rows(page) for page in pages]
    assert [row for page in found for row in page] == ["0", "1", "4"]
    assert all(len(page) <= 1 for page in found)


def test_the_newest_come_first(extended):
    table = fill(extended.create_table("Newest"))
    pages = table.query_entities(
        "PartitionKey eq 'p'", params={"$orderby": "RowKey desc"}, results_per_page=2
    ).by_page()
    assert [rows(page) for page in pages] == [["4", "3"], ["2", "1"], ["0"]]
    newest = next(table.list_entities(params={"$orderby": "PartitionKey desc,RowKey desc"}, results_per_page=1).by_page())
    assert rows(newest) == ["5"]


def test_without_the_switch_the_service_answers(service, new_name):
    table = fill(service.create_table(new_name()))
    for text, status, code in [
        ("startswith(Name,'Sm')", 501, "NotImplemented"),
        ("substringof('mi',Name)", 501, "NotImplemented"),
        ("tolower(Name) eq 'jones'", 501, "NotImplemented"),
        ("Name eq null", 400, "InvalidInput"),
        ("RowKey in ('1')", 400, "InvalidInput"),
    ]:
        with pytest.raises(HttpResponseError) as refused:
            list(table.query_entities(text))
        assert (refused.value.status_code, code_of(refused.value)) == (status, code), text
    with pytest.raises(HttpResponseError) as refused:
        list(table.list_entities(params={"$orderby": "PartitionKey desc,RowKey desc"}))
    assert (refused.value.status_code, code_of(refused.value)) == (501, "NotImplemented")
