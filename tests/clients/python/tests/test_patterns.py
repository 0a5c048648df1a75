"""The pages under docs/how-to/patterns: each is run as it stands, prints what it says it prints, and leaves in
the tables, and asks of the server, what it promises."""

import ast
import contextlib
import inspect
import io
import re
import threading
from datetime import date, datetime, timezone

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ServiceResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.data.tables import TableServiceClient, TableTransactionError, UpdateMode
from rowhouse import REPOSITORY, Server, code_of

FOLDER = REPOSITORY / "docs" / "how-to" / "patterns"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGES = sorted(page.stem for page in FOLDER.glob("*.md") if page.stem != "README")
CHECKS = {}


def check(function):
    """Registers what has to be true after the page of the function's name was run."""
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


class Wire(RequestsTransport):
    """Counts round trips, and loses answers when it is told to."""

    def __init__(self):
        super().__init__()
        self.sent = 0
        self.lose = 0

    def send(self, request, **options):
        answer = super().send(request, **options)
        self.sent += 1
        if self.lose:
            self.lose -= 1
            raise ServiceResponseError("the answer was lost")
        return answer


class Page:
    """A page that was run."""

    def __init__(self, service, wire, names):
        self.service = service
        self.wire = wire
        self.names = names

    def __getattr__(self, name):
        return self.names[name]

    def cost(self, call, *arguments, **options):
        """The round trips of a call, and what it returns."""
        before = self.wire.sent
        returned = call(*arguments, **options)
        return self.wire.sent - before, returned

    def tables(self):
        return [table.name for table in self.service.list_tables()]

    def state(self, table):
        """Every entity by its keys, without them."""
        return {
            (e["PartitionKey"], e["RowKey"]): {n: v for n, v in e.items() if not n.endswith("Key")}
            for e in self.service.get_table_client(table).list_entities()
        }

    def keys(self, table):
        return [row for _, row in self.state(table)]


def printed(code):
    """What the comments after `print` say, in order."""
    lines = code.splitlines()
    calls = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    comments = [lines[call.end_lineno - 1][call.end_col_offset :] for call in sorted(calls, key=lambda c: c.lineno)]
    for comment in comments:
        assert comment.startswith("  # "), f"a print without what it prints: {comment!r}"
    return [comment.removeprefix("  # ") for comment in comments]


def at_once(*calls):
    """Runs all of them at the same time; an exception of one is raised here."""
    failures = []

    def attempt(call):
        try:
            call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=attempt, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def refusal(call, *arguments, **options):
    with pytest.raises(HttpResponseError) as caught:
        call(*arguments, **options)
    return caught.value.status_code, code_of(caught.value)


@pytest.fixture
def running(tmp_path, database_url):
    server = Server(tmp_path, database_url).start()
    yield server
    assert server.stop() == 0
    assert not re.search("ERROR|panicked", server.log.read_text())


def test_every_page_is_listed_and_checked():
    assert PAGES, "there are no pages"
    assert sorted(CHECKS) == PAGES
    listed = re.findall(r"\]\(([a-z-]+)\.md\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_page_has_all_its_parts(name):
    text = (FOLDER / f"{name}.md").read_text()
    parts = ("# ", "**When.**", "**Keys.**", "**What can go wrong.**", "**What it costs.**")
    positions = [text.find(part) for part in parts]
    assert -1 not in positions
    assert positions == sorted(positions)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (FOLDER / link).exists(), link


def test_the_index_makes_the_client(tmp_path, database_url):
    server = Server(tmp_path, database_url, account="devstoreaccount1").start(accounts="")
    try:
        (code,) = BLOCK.findall((FOLDER / "README.md").read_text())
        names = {}
        exec(code.replace("http://127.0.0.1:10002", server.origin), names)
        with names["table_service"] as service:
            assert service.url == server.endpoint
            list(service.list_tables())
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("name", PAGES)
def test_the_page_does_what_it_says(name, running):
    code = "\n".join(BLOCK.findall((FOLDER / f"{name}.md").read_text()))
    wire = Wire()
    with TableServiceClient(running.endpoint, credential=running.credential(), transport=wire) as service:
        names = {"table_service": service}
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, f"{name}.md", "exec"), names)
        assert output.getvalue().splitlines() == printed(code)
        CHECKS[name](Page(service, wire, names))


# What each page promises.


@check
def secondary_copies(page):
    same = {"Number": 223, "Email": "ann@example.com", "Name": "Ann Jones"}
    assert page.state("Employees") == {
        ("Sales", "email_ann@example.com"): same,
        ("Sales", "id_000223"): same,
    }
    cost, _ = page.cost(page.save, "Sales", 7, "bob@example.com", Name="Bob")
    assert cost == 1
    cost, bob = page.cost(page.employees.get_entity, "Sales", "email_bob@example.com")
    assert (cost, bob["Number"]) == (1, 7)
    # An address that is taken.
    with pytest.raises(TableTransactionError) as caught:
        page.employees.submit_transaction(
            [
                ("create", {"PartitionKey": "Sales", "RowKey": "id_000008"}),
                ("create", {"PartitionKey": "Sales", "RowKey": "email_bob@example.com"}),
            ]
        )
    assert (caught.value.index, code_of(caught.value)) == (1, "EntityAlreadyExists")
    assert len(page.keys("Employees")) == 4
    with pytest.raises(ValueError, match="Partition Keys"):
        page.employees.submit_transaction(
            [("upsert", {"PartitionKey": partition, "RowKey": "r"}) for partition in ("a", "b")]
        )


@check
def index_entities(page):
    assert page.keys("Employees") == ["id_000001", "id_000002", "name_Jones_000002", "name_Smith_000001"]
    assert page.state("Employees")["Sales", "id_000001"] == {"LastName": "Smith"}
    assert page.cost(page.rename, 1, "Brown")[0] == 2
    # The change of another, between the read and the transaction, costs another try.
    read, submit = page.employees.get_entity, page.employees.submit_transaction

    def overtaken(operations):
        page.employees.submit_transaction = submit
        page.rename(1, "Black")
        return submit(operations)

    page.employees.submit_transaction = overtaken
    cost, _ = page.cost(page.rename, 1, "White")
    assert cost == 2 + 2 + 2, "the other's change, the refusal, the second try"
    assert page.numbers_of("White") == [1]
    assert page.numbers_of("Black") == page.numbers_of("Brown") == []
    # Many at once.
    at_once(*(lambda name=name: page.rename(1, name) for name in ("A", "B", "C", "D")))
    last = read("Sales", "id_000001")["LastName"]
    assert last in "ABCD"
    assert sorted(page.keys("Employees")) == sorted(
        ["id_000001", "id_000002", "name_Jones_000002", f"name_{last}_000001"]
    )
    assert refusal(page.rename, 9, "Nobody") == (404, "ResourceNotFound")
    cost, found = page.cost(page.numbers_of, "Jones")
    assert (cost, found) == (1, [2])


@check
def compound_keys(page):
    assert page.keys("Reviews") == ["000001_2022", "000001_2023", "000001_2024", "000002_2023", "000010_2023"]
    cost, found = page.cost(page.ratings, 10, 2000)
    assert (cost, found) == (1, [("2023", 1)])
    for bad in "/\\#?\n":
        entity = {"PartitionKey": "Sales", "RowKey": f"1{bad}2"}
        assert refusal(page.reviews.create_entity, entity) == (400, "OutOfRangeInput"), bad
    texts = page.reviews.query_entities("PartitionKey eq 'Sales'", select=["RowKey", "Rating"])
    assert {tuple(entity) for entity in texts} == {("RowKey", "Rating")}
    assert len(page.keys("Reviews")) == 5


@check
def newest_first(page):
    assert [entity["Minute"] for entity in page.state("Log").values()] == [4, 3, 2, 1, 0]
    cost, found = page.cost(page.latest, 1)
    assert (cost, found) == (1, [4])
    everything = page.log.query_entities("PartitionKey eq 'door'", results_per_page=2)
    cost, found = page.cost(list, everything)
    assert (cost, len(found)) == (3, 5), "pages of two until the end"
    key = page.newest_first(page.start)
    page.log.create_entity({"PartitionKey": "door", "RowKey": key})
    assert refusal(page.log.create_entity, {"PartitionKey": "door", "RowKey": key}) == (409, "EntityAlreadyExists")
    for top in (1001, -1):
        assert refusal(list, page.log.list_entities(results_per_page=top)) == (400, "InvalidInput"), top
    ancient, far = page.FIRST, datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc)
    assert page.newest_first(ancient)[:19] == str(page.LAST_TICK)
    assert page.newest_first(far)[:19] == f"{9:019}"


@check
def table_per_day(page):
    assert page.tables() == ["Log20240502", "Log20240503"]
    assert len(page.keys("Log20240503")) == 10
    assert page.state("Log20240502") == {("door", "0000"): {"Again": True}}
    assert page.cost(page.write, date(2024, 5, 4), "door", "0000")[0] == 3
    assert page.cost(page.write, date(2024, 5, 4), "door", "0001")[0] == 1
    table = page.service.get_table_client("Log20240504")
    assert page.cost(table.delete_table)[0] == 1
    assert refusal(table.create_entity, {"PartitionKey": "p", "RowKey": "r"}) == (404, "TableNotFound")
    table.delete_table()
    assert refusal(page.service.create_table, "Log20240503") == (409, "TableAlreadyExists")
    page.service.create_table("Other")
    page.drop_before(date(2025, 1, 1))
    assert page.tables() == ["Other"]


@check
def counters(page):
    state = page.state("Counters")
    assert set(state) == {("door", "2024-05-01"), ("gate", "2024-05-01")}
    day = {name: value.value for name, value in state["door", "2024-05-01"].items()}
    assert day == {f"H{hour:02}": hour * 10 for hour in range(24)} | {"H03": 12}
    assert page.cost(page.store, "door", "2024-05-02", 0, 1)[0] == 1
    assert page.cost(page.add, "door", "2024-05-02", 0, 1)[0] == 2
    # Writers of different hours, and writers of one.
    at_once(*(lambda hour=hour: page.store("roof", "x", hour, hour) for hour in range(8)))
    assert {name: value.value for name, value in page.state("Counters")["roof", "x"].items()} == {
        f"H{hour:02}": hour for hour in range(8)
    }
    at_once(*(lambda: [page.add("cellar", "x", 5, 1) for _ in range(3)] for _ in range(4)))
    assert page.state("Counters")["cellar", "x"]["H05"].value == 12
    wide = {"PartitionKey": "wide", "RowKey": "x", **{f"M{n}": n for n in range(253)}}
    assert refusal(page.counters.create_entity, wide) == (400, "TooManyProperties")
    page.counters.upsert_entity({"PartitionKey": "door", "RowKey": "2024-05-01", "H00": 1}, mode="replace")
    assert page.state("Counters")["door", "2024-05-01"] == {"H00": 1}


@check
def wide_entities(page):
    state = page.state("Days")
    assert {row: len(values) for (_, row), values in state.items()} == {"2024-05-01_1": 252, "2024-05-01_2": 248}
    assert {value for values in state.values() for value in values.values()} == {-1}
    cost, (values, etags) = page.cost(page.read, "2024-05-01")
    assert cost == 1
    # The second part alone is changed by somebody else.
    page.days.update_entity({"PartitionKey": "door", "RowKey": "2024-05-01_2", "M0499": 5})
    with pytest.raises(TableTransactionError) as caught:
        page.replace("2024-05-01", {name: 3 for name in values}, etags)
    assert (caught.value.index, code_of(caught.value)) == (1, "UpdateConditionNotSatisfied")
    assert page.state("Days")["door", "2024-05-01_1"] == state["door", "2024-05-01_1"]
    assert page.cost(page.replace, "2024-05-01", values, page.read("2024-05-01")[1])[0] == 1
    large = {f"B{n:02}": b"x" * 65536 for n in range(16)}
    assert refusal(page.insert, "large", large)[1] == "EntityTooLarge"
    huge = {f"M{n:04}": "x" * 5000 for n in range(900)}
    with pytest.raises(HttpResponseError) as caught:
        page.insert("huge", huge)
    assert caught.value.status_code == 413
    assert len(page.keys("Days")) == 2


@check
def mixed_types(page):
    assert page.state("Company") == {
        ("Sales", "department"): {"Type": "Department", "Count": 3},
        ("Sales", "employee_1"): {"Type": "Employee", "Name": "Ann"},
        ("Sales", "employee_2"): {"Type": "Employee", "Name": "Bob", "Count": "no"},
        ("Sales", "employee_3"): {"Type": "Employee", "Name": "Eve"},
    }
    cost, found = page.cost(page.of_type, "Employee")
    assert (cost, len(found)) == (1, 3)
    page.company.create_entity({"PartitionKey": "Sales", "RowKey": "employee_4", "Name": "Typeless"})
    assert len(page.of_type("Employee")) == 3
    text = page.company.query_entities("Count eq 'no'")
    assert [entity["RowKey"] for entity in text] == ["employee_2"]


@check
def key_range_tokens(page):
    state = page.state("Notes")
    assert set(state) == {("ann", "0002"), ("ann", "0003"), ("anna", "0001"), ("bob", "0001")}
    assert state["bob", "0001"] == {"Text": "by bob"}
    bob = page.client_for("bob")
    cost, found = page.cost(list, page.service.get_table_client("Notes").list_entities())
    assert (cost, len(found)) == (1, 4)
    assert [(e["PartitionKey"], e["RowKey"]) for e in bob.list_entities()] == [("bob", "0001")]
    assert list(bob.query_entities("PartitionKey eq 'ann'")) == []
    with pytest.raises(TableTransactionError) as caught:
        bob.submit_transaction([("create", {"PartitionKey": "ann", "RowKey": "0009"})])
    assert code_of(caught.value) == "AuthorizationFailure"
    expired = page.generate_table_sas(
        page.service.credential, "Notes", permission="r", expiry=datetime(2024, 1, 1, tzinfo=timezone.utc)
    )
    reader = page.generate_table_sas(
        page.service.credential, "Notes", permission="r", expiry=datetime(9000, 1, 1, tzinfo=timezone.utc)
    )
    for signature, call, expected in (
        (expired, lambda client: list(client.list_entities()), (403, "AuthenticationFailed")),
        (reader, lambda client: client.delete_entity("bob", "0001"), (403, "AuthorizationPermissionMismatch")),
    ):
        with page.TableClient(page.service.url, "Notes", credential=page.AzureSasCredential(signature)) as client:
            assert refusal(call, client) == expected
    assert page.state("Notes") == state
    bob.close()
    page.ann.close()


@check
def prefix_search(page):
    assert page.keys("Words") == ["Car", "ca", "can", "car", "card", "care", "cart", "cas"]
    cost, found = page.cost(page.starting_with, "ca")
    assert (cost, found) == (1, ["ca", "can", "car", "card", "care", "cart", "cas"])
    page.words.create_entity({"PartitionKey": "en", "RowKey": "it's"})
    assert page.starting_with("it'") == ["it's"]
    with pytest.raises(IndexError):
        page.starting_with("")
    assert refusal(list, page.words.query_entities("RowKey ge 'it''")) == (400, "InvalidInput")
    assert refusal(list, page.words.query_entities("startswith(RowKey, 'car')")) == (501, "NotImplemented")


@check
def unconditional_writes(page):
    assert page.state("Vehicles") == {("tram", "1"): {"Stop": "Park"}}
    tram = {"PartitionKey": "tram", "RowKey": "1", "Stop": "Zoo", "Seats": 60}
    cost, answer = page.cost(page.vehicles.update_entity, tram, mode=UpdateMode.REPLACE)
    assert cost == 1
    assert page.vehicles.get_entity("tram", "1").metadata["etag"] == answer["etag"]
    page.vehicles.upsert_entity({"PartitionKey": "bus", "RowKey": "7", "Stop": "Depot"}, mode="merge")
    assert page.state("Vehicles") == {("bus", "7"): {"Stop": "Depot"}, ("tram", "1"): {"Stop": "Zoo", "Seats": 60}}
    assert page.cost(page.vehicles.delete_entity, "bus", "7")[0] == 1
    assert page.keys("Vehicles") == ["1"]


@check
def changing_properties(page):
    assert page.state("Products") == {
        ("shoes", "1"): {"Name": "Boot", "Size": 42},
        ("shoes", "2"): {"Name": "Clog", "Size": "39", "Color": "red"},
    }
    stale = page.boot.metadata["etag"]
    condition = {"etag": stale, "match_condition": page.MatchConditions.IfNotModified}
    refused = refusal(page.products.update_entity, page.boot, mode="replace", **condition)
    assert refused == (412, "UpdateConditionNotSatisfied")
    clog = {"PartitionKey": "shoes", "RowKey": "2", "Size": 39}
    cost, _ = page.cost(page.products.update_entity, clog, mode="merge")
    assert (cost, page.rows("Size ge 39")) == (1, ["1", "2"])


@check
def repeated_inserts(page):
    state = page.state("Orders")
    assert set(state) == {("2024", "0001"), ("2024", "0002")}
    assert state["2024", "0001"]["Item"] == "Boot"
    assert state["2024", "0002"] == {"Item": "Sock"}
    assert page.cost(page.insert, page.orders, {"PartitionKey": "2024", "RowKey": "0003"})[0] == 1
    # The answer of the first try is lost after the entity was written.
    page.wire.lose = 1
    cost, _ = page.cost(page.insert, page.orders, {"PartitionKey": "2024", "RowKey": "0004", "Item": "Hat"})
    assert (cost, page.wire.lose) == (3, 0)
    assert page.state("Orders")["2024", "0004"]["Item"] == "Hat"
    # So is that of an insert of a key that somebody else has.
    page.wire.lose = 1
    with pytest.raises(ResourceExistsError):
        page.insert(page.orders, {"PartitionKey": "2024", "RowKey": "0004", "Item": "Cap"})
    assert page.state("Orders")["2024", "0004"]["Item"] == "Hat"
    # The SDK sends an upsert again by itself.
    page.wire.lose = 1
    cap = {"PartitionKey": "2024", "RowKey": "0005", "Item": "Cap"}
    cost, _ = page.cost(page.orders.upsert_entity, cap, mode="replace")
    assert (cost, page.state("Orders")["2024", "0005"]) == (2, {"Item": "Cap"})


def test_a_print_without_a_comment_is_noticed():
    assert printed("print(1)  # 1\nprint(\n    2)  # 2\n") == ["1", "2"]
    with pytest.raises(AssertionError, match="without"):
        printed("print(1)\n")


def test_checks_take_a_page():
    assert all(list(inspect.signature(function).parameters) == ["page"] for function in CHECKS.values())
