"""What a suite does with the package."""

import base64
import email.utils
import hashlib
import hmac
import json
import urllib.error
import urllib.request

import pytest
from rowhouse_server import Server


def ask(server, body=None):
    parts = dict(part.split("=", 1) for part in server.connection_string.strip(";").split(";"))
    account, date = parts["AccountName"], email.utils.formatdate(usegmt=True)
    text = f"{date}\n/{account}/{account}/Tables".encode()
    signature = base64.b64encode(hmac.digest(base64.b64decode(parts["AccountKey"]), text, hashlib.sha256)).decode()
    headers = {
        "Authorization": f"SharedKeyLite {account}:{signature}",
        "x-ms-date": date,
        "x-ms-version": "2019-02-02",
        "Accept": "application/json;odata=nometadata",
        "Content-Type": "application/json",
    }
    data = body and json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/Tables", data, headers)) as answer:
        return json.load(answer)


def create(server, name):
    ask(server, {"TableName": name})


def tables(server):
    return [table["TableName"] for table in ask(server)["value"]]


def test_two_servers_at_once_are_two():
    with Server() as one, Server() as other:
        create(one, "People")
        assert (tables(one), tables(other)) == (["People"], [])
        one.reset()
        assert tables(one) == []
        one.stop()
        with pytest.raises(urllib.error.URLError):
            tables(one)
        assert one.pid is None
        one.start()
        assert (tables(one), tables(other)) == ([], [])


def test_a_snapshot_is_restored_as_often_as_needed(rowhouse):
    create(rowhouse, "Seeded")
    seeded = rowhouse.snapshot()
    for name in ["First", "Second"]:
        create(rowhouse, name)
        rowhouse.restore(seeded)
        assert tables(rowhouse) == ["Seeded"]
    with pytest.raises(RuntimeError, match="POST /test/snapshots/no%2Fsuch/restore: 404 .*SnapshotNotFound"):
        rowhouse.restore("no/such")


def test_faults_are_ordered_counted_and_removed(rowhouse):
    rowhouse.set_faults([{"operation": "CreateTable", "error": "ServerBusy", "times": 2}])
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError, match="503"):
            create(rowhouse, "One")
    create(rowhouse, "One")
    assert rowhouse.faults() == [{"matched": 3, "hits": 2}]
    with pytest.raises(RuntimeError, match="PUT /test/faults: 400 .*NoSuchError"):
        rowhouse.set_faults([{"error": "NoSuchError"}])
    rowhouse.set_faults([{"operation": "CreateTable", "error": "ServerBusy"}])
    rowhouse.reset()
    assert rowhouse.faults() == []
    create(rowhouse, "One")


@pytest.mark.parametrize("turn", [1, 2])
def test_the_fixture_is_empty_each_time(rowhouse, turn):
    assert tables(rowhouse) == []
    create(rowhouse, f"Turn{turn}")


def test_options_are_heeded_and_settings_around_it_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Server(database_url="sqlite://kept.db") as server:
        assert "AccountName=devstoreaccount1;" in server.connection_string
        create(server, "Kept")
    assert (tmp_path / "kept.db").exists()
    with Server(database_url="sqlite://kept.db", arguments=["--workers=1"], env={"ROWHOUSE_LOG": "debug"}) as server:
        assert tables(server) == ["Kept"]


def test_a_server_that_cannot_start_says_why():
    with pytest.raises(RuntimeError, match="--frob"):
        Server(arguments=["--frob"]).start()
    with Server() as running:
        port = running.endpoint.split(":")[2].split("/")[0]
        with pytest.raises(RuntimeError, match=f"cannot listen on 127.0.0.1:{port}"):
            Server(port=port).start()
