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

PATH = "/devstoreaccount1"
PAD = 860
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

    def page(self, condition, token=None, top=None):
        query = "$filter=" + urllib.parse.quote(condition)
        if top:
            query += f"&$top={top}"
        if token:
            query += f"&NextPartitionKey={token[0]}&NextRowKey={token[1]}"
        begun = time.perf_counter()
        status, headers, body = self.send("GET", "/Big()", query)
        took = (time.perf_counter() - begun) * 1000
        assert status == 200, body
        partition = headers["x-ms-continuation-NextPartitionKey"]
        token = (partition, headers["x-ms-continuation-NextRowKey"] or "") if partition else None
        return took, len(json.loads(body)["value"]), token


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
            INSERT INTO entities SELECT t.table_no << 16, printf('p%04d', i / 1000), printf('%08d', i), 638000000000000000 + i,
            printf('{"Email":"user%d@example.com","City":"city%d","Score":%d,"Plain":%d,"Group":%d,"Text":"%s"}', i,
            (i * 7919) % 1000, (i * 7919) % ?1, (i * 7919) % ?1, i % 100000, substr(printf('%d', i * 7919) || hex(zeroblob(?2)), 1, ?2))
            FROM n, tables AS t WHERE t.name_lower = 'big'""",
            (int(entities), PAD),
        )
        database.commit()
        database.close()
    else:
        text = f"""INSERT INTO entities SELECT t.table_no << 16, 'p' || lpad((i / 1000)::text, 4, '0'), lpad(i::text, 8, '0'),
            638000000000000000 + i, jsonb_build_object('Email', 'user' || i || '@example.com', 'City', 'city' || (i::bigint * 7919) % 1000,
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
            rows += found
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


{"load": load, "filters": filters, "writes": writes}[sys.argv[1]](*sys.argv[2:])
