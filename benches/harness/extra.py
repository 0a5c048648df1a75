"""Rows about memory, start, growth and deletion."""

import os
from statistics import median

from bed import request
from compare import Line
from goals import TABLES
from processes import say, wait_for
from runs import medians

MEBI = 1024 * 1024
# SQLite's cache: 16 MiB for each connection, which are the workers' and the writer's.
CACHE = 16


def memory(bed):
    """Resident memory of a fresh server under load, and whether it grows."""
    lines = []
    for store in bed.options.stores:
        say(f"memory, {store}")
        bed.need("still", bed.servers[store])
        server = bed.new_server(store)
        try:
            read = lambda requests: bed.load(server, "read", "still", clients=64, requests=requests)  # noqa: E731
            bed.load(server, "replace-any", "still", clients=64, requests=bed.options.requests // 20)
            first = read(bed.options.requests // 10)["resident_bytes"]
            rest = read(bed.options.requests)["resident_bytes"]
        finally:
            server.end()
        cache = CACHE * ((os.cpu_count() or 1) + 1) if store == "sqlite" else 0
        most, peak = 50 + cache, max(first["peak"], rest["peak"]) / MEBI
        goal = "≤ 50 MiB" + (f" and {cache} of SQLite's cache" if cache else "")
        lines.append(Line(store, "memory: most resident", 64, goal, f"{peak:.0f} MiB", peak <= most))
        growth = rest["after"] / first["after"]
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
            server = bed.new_server(store)
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
            runs = {"small": [], "large": []}
            for _ in range(bed.options.pairs):
                for table, done in runs.items():
                    done.append(bed.load(server, operation, table, clients=16, seconds=bed.options.seconds))
            small, large = (medians(done) for done in runs.values())
            ratio = cpu(large) / cpu(small)
            what = f"growth to {bed.options.entities:,} entities: CPU of a {title}".replace(",", " ")
            lines.append(Line(store, what, 16, "≤ 1.10 × that at 1000", f"{ratio:.2f} ×", ratio <= 1.1, large, small))
    return lines


def cpu(result):
    """Of the server and of its database."""
    return (result["server"] or 0) + (result["postgres"] or 0)


def purge(bed):
    """Deleting a large table, and reading another while its rows go."""
    TABLES.setdefault("large", (bed.options.entities, bed.options.entities // 1000))
    lines = []
    for store in bed.options.stores:
        server = bed.servers[store]
        for table in ("large", "still"):
            bed.need(table, server)
        say(f"deleting a table, {store}")
        seconds = max(bed.options.seconds, 3)
        before = medians([bed.load(server, "read", "still", clients=16, seconds=seconds)])
        took = request(server, "DELETE", "/Tables('large')") * 1000
        bed.filled.discard(("large", id(server)))
        there = bed.rows(store)
        # The purge looks for something to do every few seconds.
        wait_for(lambda: bed.rows(store) < there, 30, "the purge", every=0.3)
        there = bed.rows(store)
        during = medians([bed.load(server, "read", "still", clients=16, seconds=seconds)])
        gone = there - bed.rows(store)
        what = f"deleting a table of {bed.options.entities:,} entities".replace(",", " ")
        lines.append(Line(store, what, 1, "≤ 10 ms", f"{took:.1f} ms", took <= 10))
        ratio = during["p99"] / before["p99"]
        what = "slowest 1 % of point reads while its rows go"
        pace = f"{gone / seconds:,.0f}".replace(",", " ")
        found = f"{ratio:.2f} ×, {pace} rows/s went" if gone else "no row went"
        lines.append(Line(store, what, 16, "≤ 1.50 × before", found, gone > 0 and ratio <= 1.5, during, before))
    return lines
