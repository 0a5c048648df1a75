"""Point reads beside scans of SQLite."""

import threading
import time

from bed import request
from compare import Line
from extra import reads
from processes import Failure, say

SCANS = 64
# Nothing matches, and every entity of the table is looked at.
PATH = "/wide()?$filter=NoSuchProperty%20eq%201"
# Before a client that was refused asks again.
PAUSE = 1


def scan(server, over):
    while not over.is_set():
        try:
            request(server, "GET", PATH)
        except Failure:
            time.sleep(PAUSE)


def scans(bed):
    """The slowest 1 % of point reads while 64 clients scan, against that without."""
    if "sqlite" not in bed.options.stores:
        return []
    server = bed.servers["sqlite"]
    say(f"point reads beside {SCANS} scans, sqlite")
    for table in ("still", "wide"):
        bed.need(table, server)
    before, over = reads(bed, server), threading.Event()
    clients = [threading.Thread(target=scan, args=(server, over), daemon=True) for _ in range(SCANS)]
    for client in clients:
        client.start()
    try:
        during = reads(bed, server)
    finally:
        over.set()
        for client in clients:
            client.join()
    times = during["p99"] / before["p99"]
    what = f"slowest 1 % of point reads beside {SCANS} scans"
    return [Line("sqlite", what, 16, "≤ 2.00 × without", f"{times:.2f} ×", times <= 2, during, before)]
