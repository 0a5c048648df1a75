"""The pages under docs/how-to/patterns: each is run as it stands, prints what it says it prints, and leaves in
the tables, and asks of the server, what it promises."""

import ast
import contextlib
import inspect
import io
import re
import shutil
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


@check
def inter_partition_index(page):
    assert page.keys("Employees") == ["000007", "000223"]
    assert page.keys("EmployeesByEmail") == ["Research_000007", "Sales_000223"]
    assert page.cost(page.find, "bob@example.com") == (2, ["000007"])
    assert page.cost(page.hire, "Board_West", "000009", "cat@example.com")[0] == 2
    assert page.find("cat@example.com") == ["000009"], "a department may hold the separator"
    assert page.cost(page.change_email, "Board_West", "000009", "cat.west@example.com")[0] == 3
    assert (page.find("cat@example.com"), page.find("cat.west@example.com")) == ([], ["000009"])
    # The change of another, between the read and the write of the employee, is not overwritten.
    update = page.employees.update_entity

    def overtaken(*arguments, **options):
        page.employees.update_entity = update
        page.change_email("Research", "000007", "first@example.com")
        return update(*arguments, **options)

    page.employees.update_entity = overtaken
    late = refusal(page.change_email, "Research", "000007", "late@example.com")
    assert late == (412, "UpdateConditionNotSatisfied")
    assert (page.find("late@example.com"), page.find("first@example.com")) == ([], ["000007"])
    # Two employees may share an address, and one may be gone.
    page.hire("Sales", "000300", "first@example.com")
    assert page.find("first@example.com") == ["000007", "000300"]
    page.employees.delete_entity("Research", "000007")
    assert page.find("first@example.com") == ["000300"]
    # A sweep spares young entries, and those that a writer renews while it looks.
    now = page.datetime.now(page.timezone.utc)
    count = len(page.state("EmployeesByEmail"))
    page.sweep(before=now - page.timedelta(hours=1))
    assert len(page.state("EmployeesByEmail")) == count
    page.entries.upsert_entity({"PartitionKey": "new@example.com", "RowKey": "Sales_000223"})
    delete = page.entries.delete_entity

    def renewed(entry, **options):
        if entry["PartitionKey"] == "new@example.com":
            page.change_email("Sales", "000223", "new@example.com")
        return delete(entry, **options)

    page.entries.delete_entity = renewed
    page.sweep(before=now + page.timedelta(hours=1))
    assert page.find("new@example.com") == ["000223"]
    assert sorted(address for address, _ in page.state("EmployeesByEmail")) == [
        "cat.west@example.com",
        "first@example.com",
        "jones@example.com",
        "new@example.com",
    ], "the old address of the employee that was changed meanwhile is for the next sweep"


@check
def eventually_consistent_transactions(page):
    rows = page.keys("Accounts")
    assert [row.partition("_")[0] for row in rows] == ["balance", "applied", "balance"]
    assert page.cost(page.send, "ann", "bob", 20)[0] == 2
    assert page.balances() == [50, 30]
    (message,) = page.due()
    assert message["Amount"] == 20
    assert page.cost(page.apply, message)[0] == 2
    # Workers that all hold the message.
    page.send("bob", "ann", 5)
    messages = page.due()
    assert len(messages) == 2
    at_once(*(lambda: [page.apply(message) for message in messages] for _ in range(4)))
    assert page.balances() == [55, 45]
    at_once(page.work, page.work)
    assert page.balances() == [55, 45]
    assert page.due() == []
    # Senders that change one balance at the same time.
    at_once(*(lambda: page.send("ann", "bob", 1) for _ in range(4)))
    assert page.balances() == [51, 45]
    page.work()
    assert page.balances() == [51, 49]
    # Nothing is lost if the target does not exist.
    page.send("ann", "eve", 1)
    assert refusal(page.work) == (404, "ResourceNotFound")
    assert len(page.due()) == 1


@check
def denormalization(page):
    assert page.state("Suppliers") == {("supplier", "s1"): {"Name": "Boots Inc", "IsCopying": False}}
    assert page.cost(page.supplier_names, "shoes") == (1, ["Boots Inc", "Boots Inc"])
    page.suppliers.create_entity({"PartitionKey": "supplier", "RowKey": "s2", "Name": "Hats", "IsCopying": False})
    page.add_product("hats", "1", "s2")
    assert page.cost(page.rename, "s1", "Boots")[0] == 1
    # The run of a program that crashed after the first product is repeated.
    update = page.products.update_entity

    def crash(*arguments, **options):
        update(*arguments, **options)
        raise InterruptedError

    page.products.update_entity = crash
    with pytest.raises(InterruptedError):
        page.work()
    assert page.supplier_names("shoes") == ["Boots", "Boots Inc"]
    # A product is deleted, and the supplier renamed again, while the copies are made.
    page.add_product("shoes", "3", "s1")

    def busy(*arguments, **options):
        page.products.update_entity = update
        page.products.delete_entity("shoes", "2")
        page.rename("s1", "Shoes")
        return update(*arguments, **options)

    page.products.update_entity = busy
    page.work()
    assert page.state("Suppliers")["supplier", "s1"]["IsCopying"] is True
    page.work()
    assert page.supplier_names("shoes") == ["Shoes", "Shoes"]
    assert page.supplier_names("hats") == ["Hats"]
    assert page.state("Suppliers")["supplier", "s1"] == {"Name": "Shoes", "IsCopying": False}
    assert page.cost(page.work)[0] == 1


@check
def large_entities(page):
    try:
        assert page.state("Documents")["contracts", "lease"]["Size"] == 1_200_000
        assert page.cost(page.load, "contracts", "lease")[0] == 1
        assert page.cost(page.save, "contracts", "annex", b"x")[0] == 1
        assert page.load("contracts", "annex") == b"x"
        # The write that crashed before its reference leaves the document as it was.
        page.documents.upsert_entity, upsert = None, page.documents.upsert_entity
        with pytest.raises(TypeError):
            page.save("contracts", "annex", b"y")
        page.documents.upsert_entity = upsert
        assert page.load("contracts", "annex") == b"x"
        assert len(list(page.payloads.iterdir())) == 3
        page.sweep(before=page.time() + 60)
        kept = {values["Payload"] for values in page.state("Documents").values()}
        assert {file.name for file in page.payloads.iterdir()} == kept
        assert len(kept) == 2
        long = {"PartitionKey": "contracts", "RowKey": "long", "Payload": b"x" * 70_000}
        assert refusal(page.documents.create_entity, long) == (400, "PropertyValueTooLarge")
        long["Payload"] = b"x" * 1_200_000
        assert refusal(page.documents.create_entity, long) == (400, "EntityTooLarge")
    finally:
        shutil.rmtree(page.payloads)


@check
def prepend_append_anti_pattern(page):
    partitions = {partition for partition, _ in page.state("Events")}
    assert partitions == {f"{bucket:02}_20240501" for bucket in range(page.BUCKETS)}
    end = page.start + page.timedelta(hours=1)
    cost, found = page.cost(lambda: [entity["Text"] for entity in page.read(page.start, end)])
    assert (cost, found) == (page.BUCKETS, [f"event {number}" for number in range(8)])
    assert page.cost(page.write, end, "sensor-0", "late")[0] == 1
    assert refusal(page.write, end, "sensor-0", "again") == (409, "EntityAlreadyExists")
    page.write(page.start + page.timedelta(days=1), "sensor-0", "next day")
    texts = [entity["Text"] for entity in page.read(page.start, page.start + page.timedelta(hours=2))]
    assert texts == [f"event {number}" for number in range(8)] + ["late"]


@check
def log_data_anti_pattern(page):
    assert page.tables() == ["Log202405"]
    assert page.keys("Log202405") == []
    for row in range(250):
        page.log.create_entity({"PartitionKey": f"p{row % 2}", "RowKey": f"01_{row:04}"})
    page.log.create_entity({"PartitionKey": "p0", "RowKey": "02_0000"})
    read, deletions = 1, 4
    assert page.cost(page.delete_by_scan, page.log, "RowKey lt '02_'")[0] == read + deletions
    assert page.keys("Log202405") == ["02_0000"]
    # Another clean-up deletes an entity first.
    page.log.create_entity({"PartitionKey": "p0", "RowKey": "01_0000"})
    gone = [("delete", {"PartitionKey": "p0", "RowKey": row}) for row in ("01_0000", "01_0001")]
    with pytest.raises(TableTransactionError) as caught:
        page.log.submit_transaction(gone)
    assert (caught.value.index, code_of(caught.value)) == (1, "ResourceNotFound")
    assert page.keys("Log202405") == ["01_0000", "02_0000"]
    assert page.cost(page.service.delete_table, "Log202405")[0] == 1
    assert refusal(page.log.create_entity, {"PartitionKey": "p", "RowKey": "r"}) == (404, "TableNotFound")
    page.service.create_table("Log202405")
    assert page.keys("Log202405") == []


@check
def choosing_a_partition_key(page):
    assert page.keys("Orders") == ["2024-0001", "2024-0001_001", "2024-0001_002", "2024-0001", "2024-0001_001"]
    page.place("ann", "2024-0002", [("Hat", 10)])
    assert page.cost(page.read, "ann", "2024-0001") == (1, (85, ["Boot", "Sock"]))
    assert page.cost(page.place, "ann", "2024-0003", [("Cap", 9)])[0] == 1
    # All of an order or nothing.
    page.orders.create_entity({"PartitionKey": "bob", "RowKey": "2024-0002_002"})
    with pytest.raises(TableTransactionError) as caught:
        page.place("bob", "2024-0002", [("Cap", 9), ("Hat", 10)])
    assert (caught.value.index, code_of(caught.value)) == (2, "EntityAlreadyExists")
    assert [row for owner, row in page.state("Orders") if owner == "bob"][2:] == ["2024-0002_002"]
    with pytest.raises(ValueError, match="Partition Keys"):
        page.orders.submit_transaction(
            [("upsert", {"PartitionKey": customer, "RowKey": "r"}) for customer in ("ann", "bob")]
        )
    with pytest.raises(TableTransactionError) as caught:
        page.place("cat", "2024-0001", [("Sock", 5)] * 100)
    assert code_of(caught.value) == "InvalidInput"
    page.place("cat", "2024-0001", [("Sock", 5)] * 99)
    assert page.read("cat", "2024-0001")[0] == 99 * 5


@check
def relationships(page):
    assert page.state("Company") == {
        ("Sales", "department"): {"Type": "Department", "City": "Leeds"},
        ("Sales", "employee_000001"): {"Type": "Employee", "name": "Ann"},
        ("Sales", "employee_000002"): {"Type": "Manager", "name": "Bob", "budget": 500},
    }
    assert page.state("Addresses") == {("Sales", "employee_000002"): {"Street": "Harbour 7"}}
    for number in range(3, 40):
        page.add("Sales", number, page.Employee(f"E{number}"))
    page.add("Research", 2, page.Employee("Cat"))
    cost, found = page.cost(page.employees_with_streets, "Sales")
    assert (cost, len(found)) == (2, 39)
    assert page.employees_with_streets("Research") == [("Cat", None)]
    manager = page.employee_from(page.company.get_entity("Sales", "employee_000002"))
    assert isinstance(manager, page.Employee)
    page.company.create_entity({"PartitionKey": "Sales", "RowKey": "employee_000099", "Type": "Intern"})
    with pytest.raises(KeyError):
        page.employees_with_streets("Sales")


@check
def parallel_work(page):
    assert len(page.keys("Readings")) == 200
    job = page.state("Jobs")["job", "sum"]
    assert job["IsDone"] is True
    page.run("sum", most_pages=1)
    assert len(page.handled) == 200, "a job that is done is not done again"
    # A page is 60 of 200 entities; each is followed by its token.
    page.jobs.create_entity({"PartitionKey": "job", "RowKey": "again", "Token": "null", "IsDone": False})
    page.handled.clear()
    pages = 0
    while not page.state("Jobs")["job", "again"]["IsDone"]:
        cost, _ = page.cost(page.run, "again", most_pages=1)
        assert cost == 3, "the job, the page and the token"
        pages += 1
        if pages == 2:
            page.readings.create_entity({"PartitionKey": "yard", "RowKey": "9999", "Value": 1000})
    assert (pages, len(page.handled), sum(page.handled)) == (4, 201, 5900)
    # The insert of one thread fails, and the pool says so.
    with page.ThreadPoolExecutor(max_workers=4) as pool, pytest.raises(TableTransactionError) as caught:
        list(pool.map(page.insert, ["new", "door"]))
    assert code_of(caught.value) == "EntityAlreadyExists"
    cut = {"PartitionKey": "1!4!eA-", "RowKey": "1!4!eA-"}
    assert refusal(next, page.readings.list_entities().by_page(cut)) == (400, "InvalidInput")


def test_a_print_without_a_comment_is_noticed():
    assert printed("print(1)  # 1\nprint(\n    2)  # 2\n") == ["1", "2"]
    with pytest.raises(AssertionError, match="without"):
        printed("print(1)\n")


def test_checks_take_a_page():
    assert all(list(inspect.signature(function).parameters) == ["page"] for function in CHECKS.values())
