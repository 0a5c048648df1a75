"""Rows about memory, start, growth and deletion."""

import os
import threading
import time
from functools import partial
from pathlib import Path
from statistics import median

from bed import request
from compare import Line
from goals import TABLES
from processes import Relay, say, wait_for
from runs import medians, ratio

MEBI = 1024 * 1024
# SQLite's caches in MiB: of each worker's connection, and of the one that writes.
READER_CACHE, WRITER_CACHE = 2, 4
# What the relay does: operation, title, table, clients.
RELAYED = (
    ("read", "point reads", "still", (1, 16, 64, 128)),
    ("transaction", "transactions of 100 inserts", "grow", (1, 16)),
    ("page-none", "pages of 1000", "still", (1, 16)),
)
# Turns before those that are measured, where a file has to be mapped first.
WARM = 10


class Resident:
    """What a process holds in memory, without what it maps of a database file: that is
    the system's cache of the file, counted once for each connection."""

    def __init__(self, pid):
        self.smaps = Path(f"/proc/{pid}/smaps")
        self.most = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def now(self):
        held, is_database = 0, False
        for line in self.smaps.read_text().splitlines():
            words = line.split()
            if not words[0].endswith(":"):
                is_database = words[-1].endswith(".db")
            elif words[0] == "Rss:" and not is_database:
                held += int(words[1]) * 1024
        self.most = max(self.most, held)
        return held

    def watch(self):
        while not self.ended.wait(0.2):
            self.now()

    def end(self):
        self.ended.set()
        self.thread.join()


def floor(bed):
    """The least that two hops cost: a relay that looks at nothing."""
    server, lines = bed.servers["postgres"], []
    for operation, title, table, all_clients in RELAYED:
        bed.need(table, server)
        peer = bed.pgbench(table)
        script = operation.split("-")[0]
        relay = Relay(bed.relay, bed.cluster, "rowhouse", script, peer.variables)
        for clients in all_clients:
            say(f"floor, {title}, {clients} clients")
            how = {"clients": clients, "seconds": bed.options.seconds}
            runs = bed.in_turns({
                "relay": partial(bed.load, relay, operation, table, only_status=True, **how),
                "peer": partial(peer.run, script, folder=bed.folder, **how),
            })
            ours, theirs = medians(runs["relay"]), medians(runs["peer"])
            times = ratio(runs["relay"], runs["peer"])
            what = f"floor: a relay of {title}"
            lines.append(Line("postgres", what, clients, "none", f"{times:.2f} ×", None, ours, theirs))
        relay.end()
    return lines


def memory(bed):
    """Resident memory of a fresh server under load, and whether it grows."""
    lines = []
    for store in bed.options.stores:
        say(f"memory, {store}")
        bed.need("still", bed.servers[store])
        server = bed.server_beside(store)
        look = Resident(server.pid)
        try:
            bed.load(server, "replace-any", "still", clients=64, requests=bed.options.requests // 20)
            after = []
            for requests in (bed.options.requests // 10, bed.options.requests):
                bed.load(server, "read", "still", clients=64, requests=requests)
                after.append(look.now())
        finally:
            look.end()
            server.end()
        cache = READER_CACHE * (os.cpu_count() or 1) + WRITER_CACHE if store == "sqlite" else 0
        most, peak = 50 + cache, look.most / MEBI
        goal = "≤ 50 MiB" + (f" and {cache} of SQLite's cache" if cache else "")
        lines.append(Line(store, "memory: most resident", 64, goal, f"{peak:.0f} MiB", peak <= most))
        growth = after[1] / after[0]
        what = f"memory: growth over {bed.options.requests:,} reads".replace(",", " ")
        lines.append(Line(store, what, 64, "≤ 1.10 ×", f"{growth:.2f} ×", growth <= 1.1))
    return lines


def start(bed):
    """From the start of the process to the answer to its first request."""
    lines = []
    for store, most in (("sqlite", 50), ("postgres", 150)):
        if store not in bed.options.stores:
            continue
        say(f"start, {store}")
        bed.need("still", bed.servers[store])
        times = []
        for _ in range(3 if bed.options.quick else 15):
            server = bed.server_beside(store)
            times.append((server.ready_after + request(server, "GET", "/Tables")) * 1000)
            server.end()
        took = median(times)
        what = "start to first answer, " + ("existing file" if store == "sqlite" else "migrated database")
        lines.append(Line(store, what, 1, f"≤ {most} ms", f"{took:.0f} ms", took <= most))
    return lines


def growth(bed):
    """What a request costs in a table of 1 k entities, and in a large one."""
    TABLES["small"] = (1000, 1)
    TABLES["large"] = (bed.options.entities, bed.options.entities // 1000)
    lines = []
    for store in bed.options.stores:
        server = bed.servers[store]
        for table in ("small", "large"):
            bed.need(table, server)
        for operation, title in (("read", "point read"), ("page-none", "page of 1000")):
            say(f"growth, {store}, {title}")
            length = {"clients": 16, "seconds": bed.options.seconds}
            # Each connection to SQLite maps the file as it comes to see it.
            bed.load(server, operation, "large", clients=16, seconds=WARM * bed.options.seconds)
            small, large = small_and_large(bed, lambda table: bed.load(server, operation, table, **length))
            script = operation.split("-")[0]
            whole = cpu(large) / cpu(small)
            if store == "postgres":
                peer = growth_of_peer(bed, script, length)
                own, beside = whole / peer, f"pgbench's time {peer:.2f} ×"
            else:
                alone = growth_of_sqlite(bed, script)
                own, beside = (cpu(large) - alone) / cpu(small), f"SQLite alone {alone:.0f} µs"
            found = f"{own:.2f} × (in all {whole:.2f} ×, {cpu(large) - cpu(small):.0f} µs; {beside})"
            what = f"growth to {bed.options.entities:,} entities: CPU of a {title}".replace(",", " ")
            goal = "≤ 1.10 × that at 1000, beyond the database's growth"
            lines.append(Line(store, what, 16, goal, found, own <= 1.1, large, small))
    return lines


def small_and_large(bed, run):
    """Medians of the same in the small and in the large table."""
    runs = bed.in_turns({table: partial(run, table) for table in ("small", "large")})
    return medians(runs["small"]), medians(runs["large"])


def growth_of_peer(bed, script, length):
    """What the database alone takes longer in the large table."""
    peers = {table: bed.pgbench(table) for table in ("small", "large")}
    small, large = small_and_large(bed, lambda table: peers[table].run(script, folder=bed.folder, **length))
    return small["per_second"] / large["per_second"]


def growth_of_sqlite(bed, operation):
    """µs that SQLite alone takes longer in the large table."""
    tables = ("small", "large")
    runs = bed.in_turns({table: partial(bed.sqlite_alone, operation, table) for table in tables})
    return median(runs["large"]) - median(runs["small"])


def cpu(result):
    """Of the server and of its database."""
    return (result["server"] or 0) + (result["postgres"] or 0)


def purge(bed):
    """Deleting a large table, and reading another while its rows go."""
    TABLES.setdefault("large", (bed.options.entities, bed.options.entities // 1000))
    TABLES["first"] = (1000, 1)
    lines = []
    for store in bed.options.stores:
        server = bed.servers[store]
        for table in ("large", "still"):
            bed.need(table, server)
        say(f"deleting a table, {store}")
        before = reads(bed, server)
        # The first deletion of a connection would be one of statements never seen.
        bed.need("first", server)
        request(server, "DELETE", "/Tables('first')")
        bed.filled.discard(("first", id(server)))
        took = request(server, "DELETE", "/Tables('large')") * 1000
        bed.filled.discard(("large", id(server)))
        there = bed.rows(store)
        # The purge looks for something to do every few seconds.
        wait_for(lambda: bed.rows(store) < there, 30, "the purge", every=0.3)
        there = bed.rows(store)
        began = time.monotonic()
        during = reads(bed, server)
        seconds = time.monotonic() - began
        gone = there - bed.rows(store)
        what = f"deleting a table of {bed.options.entities:,} entities".replace(",", " ")
        lines.append(Line(store, what, 1, "≤ 10 ms", f"{took:.1f} ms", took <= 10))
        times = during["p99"] / before["p99"]
        what = "slowest 1 % of point reads while its rows go"
        pace = f"{gone / seconds:,.0f}".replace(",", " ")
        found = f"{times:.2f} ×, {pace} rows/s went" if gone else "no row went"
        lines.append(Line(store, what, 16, "≤ 1.50 × before", found, gone > 0 and times <= 1.5, during, before))
    return lines


def reads(bed, server):
    """Point reads of a table that nobody deletes. Twice the turns of others: those before
    and those during have no turns beside each other, and a machine that stalls shows in the
    slowest before anything else."""
    turns = (
        bed.load(server, "read", "still", clients=16, seconds=bed.options.seconds)
        for _ in range(2 * bed.options.pairs)
    )
    return medians(list(turns))
