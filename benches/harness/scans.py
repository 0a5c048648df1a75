"""Point reads beside clients whose queries examine much."""

import threading
import time
from urllib.parse import quote

from bed import request
from compare import Line
from extra import reads
from processes import Failure, say

# What clients ask for, how many do, and how many times as long the slowest 1 % of point reads may take. Nothing
# matches, and every entity of the table is examined.
KINDS = (
    ("scans", "NoSuchProperty eq 1", 64, 2),
    ("filters of 600 comparisons", " or ".join(f"NoSuchProperty{n} eq 1" for n in range(600)), 16, 3),
)
# Before a client that was refused asks again.
PAUSE = 1


def scan(server, path, over, refused):
    while not over.is_set():
        try:
            request(server, "GET", path)
        except Failure:
            refused.append(path)
            time.sleep(PAUSE)


def beside(bed, store, kind):
    """The slowest 1 % of point reads beside clients of a kind, against that without."""
    server = bed.servers[store]
    name, condition, count, most = kind
    say(f"point reads beside {count} {name}, {store}")
    for table in ("still", "wide"):
        bed.need(table, server)
    before, over, refused = reads(bed, server), threading.Event(), []
    arguments = (server, f"/wide()?$filter={quote(condition)}", over, refused)
    clients = [threading.Thread(target=scan, args=arguments, daemon=True) for _ in range(count)]
    for client in clients:
        client.start()
    try:
        during = reads(bed, server)
    finally:
        over.set()
        for client in clients:
            client.join()
    times = during["p99"] / before["p99"]
    what, wanted = f"slowest 1 % of point reads beside {count} {name}", f"≤ {most:.2f} × without, none refused"
    found = f"{times:.2f} ×" + (f", {len(refused)} refused" if refused else "")
    return Line(store, what, 16, wanted, found, times <= most and not refused, during, before)


def scans(bed):
    return [beside(bed, store, kind) for store in bed.options.stores for kind in KINDS]
