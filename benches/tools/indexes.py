"""The client of scripts/bench-indexes: loads a table past the server, and times requests over HTTP."""

import http.client
import json
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
from datetime import datetime, timedelta

PATH = "/devstoreaccount1"
PAD = 860
FIRST_TICK = 638_000_000_000_000_000
# How often what is compared is timed, in turns.
TURNS = 100
HEADERS = {"Accept": "application/json;odata=nometadata", "x-ms-version": "2019-02-02"}


class Server:
    def __init__(self, port, sas):
        self.connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=120)
        self.sas = sas.lstrip("?")

    def send(self, method, path, query="", body=None, content_type="application/json"):
        joined = "&".join(part for part in (query, self.sas) if part)
        headers = dict(HEADERS)
        if body is not None:
            headers["Content-Type"] = content_type
        self.connection.request(method, f"{PATH}{path}?{joined}", body, headers)
        answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def page(self, condition="", token=None, top=None, order=None):
        query = "$filter=" + urllib.parse.quote(condition)
        if top:
            query += f"&$top={top}"
        if order:
            query += "&$orderby=" + urllib.parse.quote(order)
        if token:
            query += f"&NextPartitionKey={token[0]}&NextRowKey={token[1]}"
        begun = time.perf_counter()
        status, headers, body = self.send("GET", "/Big()", query)
        took = (time.perf_counter() - begun) * 1000
        assert status == 200, body
        partition = headers["x-ms-continuation-NextPartitionKey"]
        token = (partition, headers["x-ms-continuation-NextRowKey"] or "") if partition else None
        return took, json.loads(body)["value"], token


def load(port, sas, url, entities):
    server = Server(port, sas)
    for table in ("Big", "Other"):
        status, _, body = server.send("POST", "/Tables", body=json.dumps({"TableName": table}))
        assert status == 201, body
    begun = time.time()
    # Scattered, so that neighbours in an index are not neighbours in the table.
    if url.startswith("sqlite"):
        database = sqlite3.connect(url.removeprefix("sqlite://"), timeout=60)
        database.execute(
            """WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
            INSERT INTO entities SELECT t.table_no << 16, printf('p%04d', i / 1000), printf('%08d', i), ?3 + i,
            printf('{"Email":"user%d@example.com","City":"city%d","Score":%d,"Plain":%d,"Group":%d,"Text":"%s"}', i,
            (i * 7919) % 1000, (i * 7919) % ?1, (i * 7919) % ?1, i % 100000, substr(printf('%d', i * 7919) || hex(zeroblob(?2)), 1, ?2))
            FROM n, tables AS t WHERE t.name_lower = 'big'""",
            (int(entities), PAD, FIRST_TICK),
        )
        database.commit()
        database.close()
    else:
        text = f"""INSERT INTO entities SELECT t.table_no << 16, 'p' || lpad((i / 1000)::text, 4, '0'), lpad(i::text, 8, '0'),
            {FIRST_TICK} + i, jsonb_build_object('Email', 'user' || i || '@example.com', 'City', 'city' || (i::bigint * 7919) % 1000,
            'Score', (i::bigint * 7919) % {entities}, 'Plain', (i::bigint * 7919) % {entities}, 'Group', i % 100000, 'Text', substr(md5(i::text) || repeat('0', {PAD}), 1, {PAD}))
            FROM generate_series(0, {entities} - 1) AS i, tables AS t WHERE t.name_lower = 'big'"""
        subprocess.run(["psql", "-q", url, "-c", text, "-c", "VACUUM ANALYZE entities"], check=True)
    print(f"loaded {entities} entities in {time.time() - begun:.0f} s", flush=True)


def dense(server, label, name, literal):
    """Filters that nearly everything matches: of a property with an index, and in turns of its twin without."""
    took = {"Score": [], "Plain": []}
    for n in range(200):
        for who in sorted(took, reverse=n % 2 == 0):
            took[who].append(server.page(f"{who} ge {literal(n)}")[0])
    median = {who: statistics.median(times) for who, times in took.items()}
    ratio = median["Score"] / median["Plain"]
    print(f"{label:14} nearly all match, {name}: p50 {median['Score']:.2f} ms, {ratio:.2f} of that without an index", flush=True)


def filters(port, sas, label, entities):
    server, entities = Server(port, sas), int(entities)
    fast = label == "with indexes"
    cases = [
        ("Email eq, one match", lambda n: f"Email eq 'user{(n * 7907) % entities}@example.com'", 300 if fast else 3),
        ("City eq, a page of 1000", lambda n: f"City eq 'city{n}'", 30 if fast else 3),
        ("Score ge, 0.1 % match", lambda n: f"Score ge {entities - entities // 1000 + n % 3}", 30 if fast else 3),
    ]
    # 100 rows of one partition, and 111 emails of a million.
    def block(n, condition):
        first = (n * 7907) % (entities // 100)
        return f"PartitionKey eq 'p{first // 10:04d}' and " + condition.format(first, first + 1)

    cases += [
        ("startswith(Email)", lambda n: f"startswith(Email,'user{1000 + n}')", 30 if fast else 3),
        ("startswith(RowKey), 100 rows", lambda n: block(n, "startswith(RowKey,'{:06d}')"), 300),
        ("RowKey ge and lt, 100 rows", lambda n: block(n, "RowKey ge '{:06d}' and RowKey lt '{:06d}'"), 300),
    ]
    for name, condition, times in cases:
        took, rows = [], 0
        for n in range(times):
            page, found, _ = server.page(condition(n))
            took.append(page)
            rows += len(found)
        print(f"{label:14} {name:32} p50 {statistics.median(took):9.2f} ms, {rows / times:.0f} rows", flush=True)
    if fast:
        dense(server, label, "the same filters", lambda n: 1 + n % 3)
        dense(server, label, "each filter new", lambda n: 10 + n)
    if fast:
        token, took = None, []
        while True:
            page, _, token = server.page("City eq 'city7'", token, top=100)
            took.append(page)
            if not token:
                break
        print(f"{label:14} pages of 100: {' '.join(f'{page:.1f}' for page in took)} ms", flush=True)


class Psql:
    """A session that times statements, with the settings of the server's sessions."""

    SETTINGS = """SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off;
        SET enable_hashjoin = off; SET enable_mergejoin = off;"""

    def __init__(self, url):
        command = ["psql", "-qXAt", "-v", "ON_ERROR_STOP=1", url]
        self.psql = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.psql.stdin.write(self.SETTINGS + "\n")
        self.bucket = self.ask("SELECT table_no << 16 FROM tables WHERE name_lower = 'big';")
        # The definition does not show the collation.
        email = self.entry("Email") + ' COLLATE "C"'
        self.prepare("prefix", "text, text", f"{email} >= $1 AND {email} < $2", email, 1000)
        self.prepare_order("score", "float8", self.entry("Score"), "DESC", 100)
        self.prepare_order("time", "bigint", "modified", "", 1000)

    def ask(self, statement):
        self.psql.stdin.write(statement + "\n")
        self.psql.stdin.flush()
        return self.psql.stdout.readline().strip()

    def prepare(self, name, types, condition, order, limit):
        rows = f"SELECT pk, rk, modified, properties FROM entities WHERE bucket = {self.bucket}"
        self.psql.stdin.write(f"PREPARE {name} ({types}) AS {rows} AND {condition} ORDER BY {order} LIMIT {limit};\n")

    def prepare_order(self, name, entry_type, entry, direction, limit):
        """Reads an index from an entry and the key of a row on."""
        columns = [entry, "left(pk, 64)", "left(rk, 64)", "pk", "rk"]
        operator = "<=" if direction else ">="
        place = f"({', '.join(columns[:3])}) {operator} ($1, left($2, 64), left($3, 64))"
        order = ", ".join(f"{column} {direction}" for column in columns)
        self.prepare(name, f"{entry_type}, text, text", f"{entry} IS NOT NULL AND {place}", order, limit)

    @staticmethod
    def key(rows):
        return f"'{rows[0]['PartitionKey']}', '{rows[0]['RowKey']}'"

    def entry(self, shown):
        """What the index holds whose definition has this text."""
        definition = "replace(pg_get_indexdef(indexrelid, 1, false), chr(10), ' ')"
        return self.ask(
            f"SELECT {definition} FROM pg_index JOIN pg_class ON oid = indexrelid"
            f" WHERE relname LIKE 'property_index_%' AND {definition} LIKE '%{shown}%' LIMIT 1;"
        )

    def time(self, statement):
        answer = self.ask(f"\\o /dev/null\n\\timing on\n{statement}\n\\timing off\n\\o")
        return float(answer.split()[1])


def beside(name, ours, of, theirs):
    """Times a page, and in turns what it is compared with. Its rows are in memory for both."""
    took = {"ours": [], "theirs": []}
    for n in range(TURNS):
        ours(n)
        page, rows, _ = ours(n)
        took["ours"].append(page)
        took["theirs"].append(theirs(n, rows))
    ours, theirs = (statistics.median(times) for times in took.values())
    print(f"{'in order':14} {name:32} p50 {ours:9.2f} ms, {len(rows)} rows, {ours / theirs:.2f} of {of}", flush=True)


def keys(rows):
    return [(row["PartitionKey"], row["RowKey"]) for row in rows]


def by_keys(server, found, **page):
    """The time of a page of the same rows by keys."""
    took, rows, _ = server.page(**page)
    assert sorted(keys(rows)) == sorted(keys(found)), (keys(rows), keys(found))
    return took


def prefixes(server, psql, entities):
    """Entities whose emails begin with a number: one with it, ten with ten times it, a hundred with a hundred times it."""

    def number(n):
        return entities // 1000 + n

    def ranges(n):
        for size in (1, 10, 100):
            first = number(n) * size
            yield f"PartitionKey eq 'p{first // 1000:04d}' and RowKey ge '{first:08d}' and RowKey lt '{first + size:08d}'"

    def theirs(n, rows):
        if not psql:
            return by_keys(server, rows, condition=" or ".join(ranges(n)))
        # The colon follows the last digit.
        return psql.time(f"EXECUTE prefix('user{number(n)}', 'user{number(n)}:');")

    return lambda n: server.page(f"startswith(Email,'user{number(n)}')"), theirs


def by_score(server, psql, token):
    """Entities that are scattered over the table, in descending order."""

    def theirs(_, rows):
        if not psql:
            points = (f"PartitionKey eq '{partition}' and RowKey eq '{row}'" for partition, row in keys(rows))
            return by_keys(server, rows, condition=" or ".join(points))
        return psql.time(f"EXECUTE score({rows[0]['Score']}, {psql.key(rows)});")

    return lambda _: server.page(token=token, top=100, order="Score desc"), theirs


def by_time(server, psql, token, token_of_keys):
    """Entities in the order of Timestamp, which is that of their keys."""

    def theirs(_, rows):
        if not psql:
            return by_keys(server, rows, token=token_of_keys)
        return psql.time(f"EXECUTE time({FIRST_TICK + int(rows[0]['RowKey'])}, {psql.key(rows)});")

    return lambda _: server.page(token=token, order="Timestamp"), theirs


def ordered(port, sas, url, entities):
    """Rows of a prefix, and pages in the order of an index: the first one, and one in the middle by its token."""
    server, entities = Server(port, sas), int(entities)
    psql, of = (None, "the same rows by keys") if url.startswith("sqlite") else (Psql(url), "psql")
    middle = entities // 2
    partition = f"p{middle // 1000:04d}"
    moment = datetime(1, 1, 1) + timedelta(seconds=FIRST_TICK // 10_000_000)
    _, _, far_score = server.page(f"Score le {middle}", top=1, order="Score desc")
    _, _, far_time = server.page(f"Timestamp ge datetime'{moment.isoformat()}.{middle:07d}Z'", top=1, order="Timestamp")
    _, _, far_keys = server.page(f"PartitionKey eq '{partition}' and RowKey ge '{middle:08d}' or PartitionKey gt '{partition}'", top=1)
    for name, (ours, theirs) in [
        ("startswith(Email)", prefixes(server, psql, entities)),
        ("Score desc, first page", by_score(server, psql, None)),
        ("Score desc, in the middle", by_score(server, psql, far_score)),
        ("Timestamp, first page", by_time(server, psql, None, None)),
        ("Timestamp, in the middle", by_time(server, psql, far_time, far_keys)),
    ]:
        beside(name, ours, of, theirs)


def batch(table, partition, rows):
    lines = ["--b", "Content-Type: multipart/mixed; boundary=c", ""]
    for row, entity in rows:
        lines += ["--c", "Content-Type: application/http", "Content-Transfer-Encoding: binary", ""]
        lines += [f"PUT http://127.0.0.1{PATH}/{table}(PartitionKey='{partition}',RowKey='{row}') HTTP/1.1"]
        lines += ["Content-Type: application/json", "Accept: application/json;odata=minimalmetadata", "", json.dumps(entity)]
    return "\r\n".join(lines + ["--c--", "--b--", ""])


def upserts(port, sas, table, size):
    """Upserts entities by groups of this size, by four clients for three seconds; entities a second."""
    done, until = [0] * 4, time.time() + 3
    stamp = time.time_ns()

    def write(client):
        server, number = Server(port, sas), 0
        while time.time() < until:
            partition = f"w{client}-{stamp}-{number // 10000}"
            rows = []
            for _ in range(size):
                # What no filter of the bench finds.
                entity = {"Email": f"new{client}-{number}@example.com", "City": f"town{number % 1000}",
                          "Score": -number, "Plain": -number, "Group": -(number % 100000), "Text": "x" * PAD}
                rows.append((f"{number:08d}", entity))
                number += 1
            if size == 1:
                row, entity = rows[0]
                path = f"/{table}(PartitionKey='{partition}',RowKey='{row}')"
                status, _, body = server.send("PUT", path, body=json.dumps(entity))
                assert status == 204, body
            else:
                text = batch(table, partition, rows)
                status, _, body = server.send("POST", "/$batch", body=text, content_type="multipart/mixed; boundary=b")
                assert status == 202 and b"HTTP/1.1 204" in body, body
            done[client] += size

    clients = [threading.Thread(target=write, args=(client,)) for client in range(4)]
    [client.start() for client in clients]
    [client.join() for client in clients]
    return sum(done) / 3


def writes(port, sas, label):
    """Writes to the table, and in turns to another without an index."""
    for size in (1, 100):
        rates = {"Big": [], "Other": []}
        for turn in range(4):
            for table in sorted(rates, reverse=turn % 2 == 0):
                rates[table].append(upserts(port, sas, table, size))
        ratio = statistics.median(big / other for big, other in zip(rates["Big"], rates["Other"]))
        print(f"{label:14} upserts by {size:3}: {statistics.median(rates['Big']):8.0f} entities/s,"
              f" {ratio:.2f} of those of a small table without an index", flush=True)


{"load": load, "filters": filters, "writes": writes, "ordered": ordered}[sys.argv[1]](*sys.argv[2:])
