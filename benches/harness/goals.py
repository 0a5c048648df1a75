"""What is measured, and what it should come to."""

from dataclasses import dataclass, field

STORES = ("postgres", "sqlite")
TITLES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}


@dataclass(frozen=True)
class Row:
    """An operation, pgbench's script for the same, and the goals."""

    name: str
    title: str
    table: str
    script: str
    # By store: the least ratio to pgbench for each number of clients.
    ratios: dict
    # Entities that a request is about, and µs of server CPU for each at most, by store.
    entities: int = 1
    cpu: dict = field(default_factory=dict)
    # Clients at which the slowest requests are judged too.
    tail: int = 0
    # Requests of each run, where there is no end by time.
    counted: bool = False

    def clients(self, stores):
        return sorted({clients for store in stores for clients in self.ratios.get(store, {})})


def _both(postgres, sqlite, clients):
    return {"postgres": dict(zip(clients, postgres)), "sqlite": dict(zip(clients, sqlite))}


_FOUR = (1, 16, 64, 128)
_WRITES = _both((0.8, 1.3), (1.0, 1.3), (16, 64))
# No ratio is asked of SQLite here, only processor time.
_PAGES = _both((0.9, 0.6), (None, None), (1, 16))
_PAGE_CPU = {"postgres": 5.0, "sqlite": 4.0}

ROWS = (
    Row("read", "point read", "still", "read",
        _both((0.75, 0.8, 1.2, 1.6), (0.9, 1.1, 1.35, 1.65), _FOUR), tail=64),
    Row("insert", "durable insert", "grow", "insert",
        _both((0.55, 1.0, 1.7, 2.2), (0.6, 1.2, 1.5, 2.0), _FOUR), tail=64),
    Row("replace-match", "conditional replace", "change", "update", _WRITES),
    Row("merge", "merge", "change", "update", _WRITES),
    Row("insert-or-replace", "insert or replace", "change", "upsert", _WRITES),
    Row("insert-or-merge", "insert or merge", "change", "upsert", _WRITES),
    Row("delete", "delete", "change", "delete", _WRITES, counted=True),
    Row("transaction", "transaction of 100 inserts", "grow", "transaction",
        _both((0.6, 0.7), (0.6, 0.7), (1, 16)), entities=100, cpu={"postgres": 20.0}),
    Row("page-none", "page of 1000, no metadata", "still", "page", _PAGES, entities=1000, cpu=_PAGE_CPU),
    Row("page-minimal", "page of 1000, minimal metadata", "still", "page", _PAGES, entities=1000, cpu=_PAGE_CPU),
    Row("page-full", "page of 1000, full metadata", "still", "page", _PAGES, entities=1000, cpu=_PAGE_CPU),
    # At most 1.1 times the time of the bare statement.
    Row("filter", "filter over 100 k entities", "wide", "filter",
        _both((1 / 1.1,), (None,), (1,)), entities=100_000, cpu={"sqlite": 1.0}),
)

# Against Azurite at 16 connections: operation, title, table. The multiple is reported, not judged.
AZURITE = (
    ("read", "point read, 1000 entities a partition", "still"),
    ("insert", "insert, 1000 entities a partition", "still"),
    ("transaction", "transaction of 100 inserts", "still"),
    ("page-none", "page of 1000", "still"),
    ("read", "point read, 10 k entities a partition", "deep"),
)

# By store: the least ratio of point reads by 16 clients to actix-web without a store.
ACTIX = {"sqlite": 0.8}

EXTRAS = ("floor", "actix", "memory", "hostile", "start", "heavy", "scans", "ordered")
LARGE = ("growth", "purge")

# Entities and partitions of each table.
TABLES = {
    "still": (10_000, 10),
    "change": (10_000, 10),
    "grow": (1000, 10),
    "wide": (100_000, 100),
    "deep": (10_000, 1),
}
