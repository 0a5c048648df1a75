"""Behind nginx, as deploy/compose configures it, nothing is different."""

import http.client
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.data.tables import (
    AccountSasPermissions,
    RequestTooLargeError,
    ResourceTypes,
    TableServiceClient,
    generate_account_sas,
    generate_table_sas,
)
from rowhouse import REPOSITORY, START_SECONDS, Server, code_of

CONFIGURATION = REPOSITORY / "deploy" / "compose" / "nginx.conf"
KEYS = [
    "a%20d'e+f",
    "100%",
    "%2F",
    "%252F",
    ".",
    "..",
    "~!@$^&*()_+=-[]{}|;:,<>`\"",
    "a&b=c;d",
    " é日本𝄞 ",
    "",
    "漢" * 1024,
]
REFUSED = ["a/b?c%20d'e+f", "a//b", "x#y", "\\"]

# Debian has it where not everybody looks.
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx not found")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Away:
    address = "127.0.0.1:1"
    origin = f"http://{address}"


class Proxy:
    """nginx in front of two addresses, which may be the same."""

    def __init__(self, folder, servers, edit=lambda text: text):
        self.folder = folder
        self.port = free_port()
        self._configure(servers, edit)
        command = [NGINX, "-e", f"{folder}/log", "-c", f"{folder}/nginx.conf", "-g", "daemon off;"]
        self.process = subprocess.Popen(command)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
        raise RuntimeError("nginx did not begin to listen")

    def _configure(self, servers, edit):
        text = CONFIGURATION.read_text()
        for name, server in zip(("rowhouse-1:10002", "rowhouse-2:10002"), servers, strict=True):
            assert text.count(name) == 1
            text = text.replace(name, server.origin.removeprefix("http://"))
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        for line, better in (
            ("listen 10002;", f"listen 127.0.0.1:{self.port};"),
            ("http {", "http {" + "".join(f" {kind}_temp_path {self.folder}/{kind};" for kind in kinds)),
        ):
            assert text.count(line) == 1
            text = text.replace(line, better)
        # Without it, root's workers become somebody who may not enter the folder.
        user = "user root;" if os.geteuid() == 0 else ""
        text = f"{user} pid {self.folder}/pid; error_log {self.folder}/log;\n{edit(text)}"
        (self.folder / "nginx.conf").write_text(text)

    def use(self, servers):
        """Leaves out the servers that are None, once it returns."""
        up = [server or Away() for server in servers]
        self._configure(up, lambda text: text.replace(f"{Away.address} ", f"{Away.address} down "))
        before = self.workers()
        self.process.send_signal(signal.SIGHUP)
        while before & self.workers():
            time.sleep(0.01)

    def workers(self):
        pid = self.process.pid
        return set(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())

    def endpoint(self, account):
        return f"http://127.0.0.1:{self.port}/{account}"

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def servers(tmp_path_factory, database_url):
    """Two servers over one PostgreSQL; over SQLite, which allows one, the same twice."""
    first = Server(tmp_path_factory.mktemp("first"), database_url).start()
    started = [first]
    if database_url:
        second = Server(tmp_path_factory.mktemp("second"), database_url, account=first.account)
        second.keys = first.keys
        started.append(second.start())
    yield first, started[-1]
    for server in started:
        assert server.stop() == 0


@pytest.fixture
def proxy(servers, tmp_path):
    proxy = Proxy(tmp_path, servers)
    yield proxy
    proxy.stop()


@pytest.fixture
def service(servers, proxy):
    first, _ = servers
    endpoint = proxy.endpoint(first.account)
    with TableServiceClient(endpoint, credential=first.credential(), retry_total=0) as client:
        yield client


def attempts(table, key):
    """Each way to name an entity."""
    entity = {"PartitionKey": key, "RowKey": key, "Length": len(key)}
    yield lambda: table.create_entity(entity)
    yield lambda: table.update_entity({**entity, "More": 1}, mode="merge")
    yield lambda: table.upsert_entity(entity, mode="replace")
    yield lambda: table.submit_transaction([("upsert", entity), ("upsert", {**entity, "RowKey": "other"})])
    yield lambda: table.get_entity(key, key)


def test_every_key_arrives_as_it_was_sent(service):
    table = service.create_table("Keys")
    for key in KEYS:
        for attempt in attempts(table, key):
            attempt()
        found = table.query_entities("PartitionKey eq @key and RowKey eq @key", parameters={"key": key})
        assert [(e["RowKey"], e["Length"]) for e in found] == [(key, len(key))]
        table.delete_entity(key, key)
    for key in REFUSED:
        *writes, read = attempts(table, key)
        # The server's own refusals, not those of a signature.
        for write in writes:
            with pytest.raises(HttpResponseError) as caught:
                write()
            assert caught.value.status_code == 400
            assert code_of(caught.value) in ("InvalidInput", "OutOfRangeInput")
        with pytest.raises(HttpResponseError) as caught:
            read()
        # A slash ends the address of an entity. Other keys that cannot be written are looked up.
        expected = (400, "InvalidInput") if "/" in key or "\\" in key else (404, "ResourceNotFound")
        assert (caught.value.status_code, code_of(caught.value)) == expected
    assert sorted(e["PartitionKey"] for e in table.list_entities()) == sorted(KEYS)


def test_a_path_that_is_rewritten_breaks_signatures(servers, tmp_path):
    first, _ = servers
    proxy = Proxy(tmp_path, servers, lambda text: text.replace("http://rowhouse;", "http://rowhouse/;"))
    try:
        endpoint = proxy.endpoint(first.account)
        with TableServiceClient(endpoint, credential=first.credential(), retry_total=0) as service:
            table = service.create_table("Keys")
            table.upsert_entity({"PartitionKey": "plain", "RowKey": "plain"})
            with pytest.raises(ClientAuthenticationError) as caught:
                table.upsert_entity({"PartitionKey": "a b", "RowKey": "a+b"})
            assert code_of(caught.value) == "AuthenticationFailed"
    finally:
        proxy.stop()


def test_large_bodies_are_judged_by_the_server(service):
    table = service.create_table("Large")
    rows = [("upsert", {"PartitionKey": "p", "RowKey": f"{n:03}", "S": "x" * 30000}) for n in range(100)]
    assert len(table.submit_transaction(rows)) == 100
    almost = [(kind, {**entity, "T": "y" * 10000}) for kind, entity in rows]
    assert len(table.submit_transaction(almost)) == 100
    over = [(kind, {**entity, "T": "y" * 14000}) for kind, entity in rows]
    with pytest.raises(RequestTooLargeError) as caught:
        table.submit_transaction(over)
    assert code_of(caught.value) == "RequestBodyTooLarge"
    assert {len(e["T"]) for e in table.list_entities()} == {10000}


def test_what_one_server_did_the_other_knows(service):
    table = service.get_table_client("Turns")
    for turn in range(10):
        table.create_table()
        etag = table.create_entity({"PartitionKey": "p", "RowKey": "r"})["etag"]
        table.update_entity(
            {"PartitionKey": "p", "RowKey": "r", "Turn": turn}, etag=etag, match_condition=MatchConditions.IfNotModified
        )
        assert [e["Turn"] for e in table.list_entities()] == [turn]
        table.delete_table()
        with pytest.raises(HttpResponseError) as caught:
            list(table.list_entities())
        assert code_of(caught.value) == "TableNotFound"


def test_addresses_in_answers_are_the_proxys(servers, proxy, service):
    first, _ = servers
    service.create_table("Raw")
    token = generate_table_sas(
        first.credential(), "Raw", permission="raud", expiry=datetime.now(timezone.utc) + timedelta(hours=1)
    )
    numbers = itertools.count()

    def send(method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
        common = {"Accept": "application/json;odata=fullmetadata", "Content-Type": "application/json"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        chunked = "Transfer-Encoding" in named
        try:
            target = f"/{first.account}{path}?{token}"
            connection.request(method, target, body, common | named, encode_chunked=chunked)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def entity():
        return json.dumps({"PartitionKey": "it's", "RowKey": f"x+y {next(numbers)}"})

    status, headers, body = send("POST", "/Raw", entity())
    root = f"{proxy.endpoint(first.account)}/"
    address = f"{root}Raw(PartitionKey='it''s',RowKey='x%2By%200')"
    assert (status, headers["Location"]) == (201, address)
    assert json.loads(body)["odata.metadata"] == f"{root}$metadata#Raw/@Element"
    assert json.loads(body)["odata.id"] == address
    assert re.fullmatch(r"Windows-Azure-Table/1\.0 Rowhouse/\S+", headers["Server"])
    path = address.removeprefix(root.removesuffix("/"))
    assert send("MERGE", path, '{"A": 1}', If_Match="*")[0] == 204
    assert send("PATCH", path, '{"B": 1}', If_Match="*")[0] == 204
    assert send("POST", "/Raw", entity(), Expect="100-continue")[0] == 201
    assert send("POST", "/Raw", iter([entity().encode()]), Transfer_Encoding="chunked")[0] == 201
    known = json.loads(send("GET", path)[2])
    assert (known["A"], known["B"]) == (1, 1)
    assert len(list(service.get_table_client("Raw").list_entities())) == 3


class Follower:
    """Tells nginx which servers are ready, for it does not ask; each time it changes."""

    def __init__(self, proxy, servers):
        self.proxy, self.servers, self.known = proxy, servers, [True, True]
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.follow)
        self.thread.start()

    def follow(self):
        while not self.over.wait(0.1):
            now = [is_ready(server) for server in self.servers]
            if now != self.known:
                self.proxy.use([server if ready else None for server, ready in zip(self.servers, now, strict=True)])
                self.known = now

    def stop(self):
        self.over.set()
        self.thread.join()


def is_ready(server):
    connection = http.client.HTTPConnection(server.settings["ROWHOUSE_ADMIN_LISTEN"], timeout=30)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def work(port, target, over, succeeded):
    """Asks until it is over, never twice, and on new connections: nginx closes old ones when it changes."""
    while not over.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", target, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            answer.read()
            succeeded.append(answer.status == 200)
        except (OSError, http.client.HTTPException):
            succeeded.append(False)
        finally:
            connection.close()


def restarted_in_turns(folder, drain, requests):
    """How many requests failed, and of how many."""
    account = "turns"
    servers = [Server(folder / name, account=account) for name in ("first", "second")]
    for server in servers:
        server.folder.mkdir()
        server.keys = servers[0].keys
        addresses = {name: f"127.0.0.1:{free_port()}" for name in ("ROWHOUSE_LISTEN", "ROWHOUSE_ADMIN_LISTEN")}
        server.settings = {**addresses, "ROWHOUSE_DRAIN_SECONDS": drain}
        server.start()
    expiry = datetime.now(timezone.utc) + timedelta(hours=1)
    token = generate_account_sas(
        servers[0].credential(), ResourceTypes(container=True), AccountSasPermissions(list=True), expiry
    )
    proxy = Proxy(folder, servers)
    succeeded, over = [], threading.Event()
    follower = Follower(proxy, servers)
    arguments = (proxy.port, f"/{account}/Tables?{token}", over, succeeded)
    clients = [threading.Thread(target=work, args=arguments) for _ in range(6)]
    try:
        for client in clients:
            client.start()
        for turn in itertools.count():
            if turn >= 4 and len(succeeded) >= requests:
                break
            if drain != "0":
                # The second signal comes once nginx leaves it out, so that no time matters.
                servers[turn % 2].process.terminate()
                while follower.known[turn % 2]:
                    time.sleep(0.01)
            assert servers[turn % 2].stop() == 0
            servers[turn % 2].start()
            while not all(follower.known):
                time.sleep(0.1)
    finally:
        over.set()
        for client in clients:
            client.join()
        follower.stop()
        proxy.stop()
        for server in servers:
            server.kill()
    return succeeded.count(False), len(succeeded)


def test_a_restart_in_turns_fails_no_request_if_servers_drain(database_url, tmp_path):
    if database_url:
        pytest.skip("each server has a database of its own")
    failed, requests = restarted_in_turns(tmp_path, "3600", 10_000)
    assert failed == 0, f"of {requests}"


def test_a_restart_in_turns_fails_requests_if_servers_do_not_drain(database_url, tmp_path):
    if database_url:
        pytest.skip("each server has a database of its own")
    failed, requests = restarted_in_turns(tmp_path, "0", 0)
    assert 0 < failed < requests, f"{failed} of {requests}: then the test above proves nothing"


def test_the_proxy_needs_nobody_to_look_its_servers_up():
    """nginx looks names up when it starts: servers that are away, or come back elsewhere, must not matter."""
    compose = (CONFIGURATION.parent / "replicas.yaml").read_text()
    names = re.findall(r"^\s*server (\S+):10002", CONFIGURATION.read_text(), re.MULTILINE)
    assert len(names) == 2
    for name in names:
        [address] = re.findall(rf'^      - "{name}:(\S+)"$', compose, re.MULTILINE)
        [service] = re.findall(rf"^  {name}:\n((?:    .*\n)+)", compose, re.MULTILINE)
        assert f"ipv4_address: {address}\n" in service


def test_every_compose_file_is_a_project_of_its_own():
    files = sorted(CONFIGURATION.parent.glob("*.yaml"))
    names = [re.findall(r"^name: (\S+)$", file.read_text(), re.MULTILINE) for file in files]
    assert names == [[f"rowhouse-{file.stem}"] for file in files]
