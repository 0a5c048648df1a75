"""Extended queries, as docs/how-to/operator-features.md describes them: with the switch they are answered, without
it they are refused as the service refuses them."""

import re
import subprocess
import time
from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient
from rowhouse import REPOSITORY, Server, binary, code_of, surroundings

PAGE = (REPOSITORY / "docs" / "how-to" / "operator-features.md").read_text()
EXAMPLE = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1)
INDEX_SECONDS = 60
NAMES = ["Smith", "smart", "Jones", "O'Neil", "Smirnow"]


def rows(entities):
    return [entity["RowKey"] for entity in entities]


def fill(table):
    for at, name in enumerate(NAMES):
        table.create_entity({"PartitionKey": "p", "RowKey": str(at), "Name": name})
    table.create_entity({"PartitionKey": "q", "RowKey": "5", "Number": 5})
    return table


@pytest.fixture(scope="module")
def extended_server(tmp_path_factory, database_url):
    server = Server(tmp_path_factory.mktemp("extended"), database_url)
    server.settings["ROWHOUSE_EXTENDED_QUERIES"] = server.account
    yield server.start()
    assert server.stop() == 0


@pytest.fixture
def extended(extended_server):
    credential = extended_server.credential()
    with TableServiceClient(extended_server.endpoint, credential=credential, retry_total=0) as client:
        yield client


def make_index(server, table, name):
    """Makes an index over a property, and waits until the server uses it."""
    command = [binary(), "index", "create", table.table_name, name, "--account", server.account, "--yes"]
    settings = surroundings() | {"DATABASE_URL": server.database_url}
    subprocess.run(command, env=settings, check=True, capture_output=True, timeout=INDEX_SECONDS)
    end = time.monotonic() + INDEX_SECONDS
    while True:
        try:
            return list(table.list_entities(params={"$orderby": name}))
        except HttpResponseError as refused:
            if refused.status_code != 501 or time.monotonic() > end:
                raise
        time.sleep(0.1)


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


def test_pages_by_a_property_that_has_an_index(extended_server, extended):
    table = extended.create_table("Logs")
    start = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
    for at in range(120):
        created = start + timedelta(minutes=at * 7 % 120)
        table.create_entity({"PartitionKey": f"p{at % 3}", "RowKey": f"{at:03}", "Created": created})
    make_index(extended_server, table, "Created")
    names = {"table": table}
    exec(EXAMPLE, names)
    pages = [[entity["Created"] for entity in page] for page in names["pages"]]
    assert pages == [
        [start + timedelta(minutes=minute) for minute in range(119, 19, -1)],
        [start + timedelta(minutes=minute) for minute in range(19, -1, -1)],
    ]


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
