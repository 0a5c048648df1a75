"""The test bed: the stores, the servers over them, and their tables."""

import base64
import hashlib
import hmac
import http.client
import sqlite3
import time
from contextlib import closing
from email.utils import formatdate

from goals import TABLES
from processes import Azurite, Cluster, Failure, Rowhouse, new_folder, run, say
from runs import Pgbench, in_turns, load

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
FILLERS = 4


class Bed:
    """Everything that rows share. Tables are made when a row first needs them."""

    def __init__(self, options, programs):
        self.options = options
        self.rowhouse, self.loader, self.relay, self.bare, self.still = programs
        self.folder = new_folder()
        self.copies = 0
        say("starting a private PostgreSQL")
        self.cluster = Cluster()
        self.cluster.lengthen_log()
        self.urls = {
            "postgres": self.cluster.new_database("rowhouse"),
            "sqlite": f"sqlite://{self.folder / 'rowhouse.db'}",
        }
        # pgbench works on what Rowhouse stored, whichever store is asked for.
        self.servers = {store: self.new_server(store) for store in {"postgres", *options.stores}}
        # Another build of the server, over databases of its own.
        self.before = {store: self.start_before(store) for store in options.stores if options.before}
        self.filled = set()
        self.azurite = None

    def new_server(self, store):
        return Rowhouse(self.rowhouse, self.urls[store])

    def server_beside(self, store, *more):
        """Another server over what a store holds. A SQLite file has one server, so it gets a copy."""
        if store != "sqlite":
            return Rowhouse(self.rowhouse, self.urls[store], *more)
        self.copies += 1
        copy = self.folder / f"copy{self.copies}.db"
        run([str(self.rowhouse), "backup", str(copy), "--database-url", self.urls[store]])
        return Rowhouse(self.rowhouse, f"sqlite://{copy}", *more)

    def start_before(self, store):
        file = f"sqlite://{self.folder / 'before.db'}"
        return Rowhouse(self.options.before, file if store == "sqlite" else self.cluster.new_database("before"))

    def start_azurite(self):
        self.azurite = self.azurite or Azurite()
        return self.azurite

    def load(self, server, operation, table, **more):
        """Runs the load generator on one of the tables."""
        entities, partitions = TABLES[table]
        postgres = self.cluster.pid if self.database_of(server) else None
        return load(
            self.loader, server, operation,
            **{"table": table, "entities": entities, "partitions": partitions, "postgres": postgres, **more},
        )

    def in_turns(self, parties):
        """The turns of each party, once nothing is left to be written."""
        self.cluster.settle()
        return in_turns(self.options.pairs, parties)

    def need(self, table, server, **more):
        """Makes and fills a table unless it is there."""
        if (table, id(server)) in self.filled:
            return
        say(f"filling table {table}")
        self.load(server, "fill", table, clients=FILLERS, create=True, **more)
        self.filled.add((table, id(server)))
        database = self.database_of(server)
        if database:
            self.cluster.sql("VACUUM (FREEZE, ANALYZE) entities", database)
            # Not every row takes turns.
            self.cluster.settle()

    def database_of(self, server):
        """The database of a server that stores in PostgreSQL."""
        of = {"rowhouse": self.servers.get("postgres"), "before": self.before.get("postgres")}
        return next((name for name, one in of.items() if one is server), None)

    def rows(self, store):
        """All that are stored, those of deleted tables too."""
        if store == "postgres":
            return int(self.cluster.sql("SELECT count(*) FROM entities", "rowhouse"))
        with closing(sqlite3.connect(f"file:{self.folder / 'rowhouse.db'}?mode=ro", uri=True)) as file:
            return file.execute("SELECT count(*) FROM entities").fetchone()[0]

    def sqlite_alone(self, operation, table):
        """µs that SQLite takes for the statement of an operation, once all is mapped."""
        entities, partitions = TABLES[table]
        where = (self.folder / "rowhouse.db", table, partitions, entities // partitions)
        return float(run([str(part) for part in (self.bare, *where, operation, self.options.seconds)]))

    def pgbench(self, table):
        entities, partitions = TABLES[table]
        return Pgbench(self.cluster, "rowhouse", table, entities, partitions)


def request(server, method, path, body=None):
    """One signed request on its own connection; its status and its seconds."""
    date = formatdate(usegmt=True)
    text = f"{date}\n/{ACCOUNT}/{ACCOUNT}{path.split('?')[0]}"
    signature = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2019-02-02",
        "Accept": "application/json;odata=nometadata",
        "Authorization": f"SharedKeyLite {ACCOUNT}:{base64.b64encode(signature).decode()}",
    }
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(server.address, timeout=60)
    began = time.monotonic()
    connection.request(method, f"/{ACCOUNT}{path}", body, headers)
    answer = connection.getresponse()
    answer.read()
    took = time.monotonic() - began
    connection.close()
    if answer.status >= 300:
        raise Failure(f"{method} {path}: {answer.status}")
    return took
