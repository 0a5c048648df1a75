"""Filters over large entities, which PostgreSQL keeps apart from their rows."""

import base64
import json
import random
from statistics import median
from urllib.parse import quote

from bed import request
from compare import Line
from processes import say

ENTITIES = 100
PROPERTIES = 7
# Bytes of each property; most is left of it by no compression.
LENGTH = 48 * 1024
# The first is evaluated by PostgreSQL, the other by Rowhouse.
COMPARISONS = (16, 100)
# A page may take as long.
MOST = 5.0


def fill(server):
    noise = random.Random(0)
    request(server, "POST", "/Tables", json.dumps({"TableName": "heavy"}))
    for n in range(ENTITIES):
        entity = {"PartitionKey": "p", "RowKey": f"{n:03}", "N": n}
        for part in range(PROPERTIES):
            entity[f"P{part}"] = base64.b64encode(noise.randbytes(LENGTH)).decode()
            entity[f"P{part}@odata.type"] = "Edm.Binary"
        request(server, "POST", "/heavy", json.dumps(entity))


def heavy(bed):
    """How long a page takes whose filter looks at every entity."""
    lines = []
    for store in bed.options.stores:
        server = bed.servers[store]
        say(f"filters over large entities, {store}")
        fill(server)
        for comparisons in COMPARISONS:
            condition = quote(" or ".join(f"N eq {-1 - n}" for n in range(comparisons)))
            times = [request(server, "GET", f"/heavy()?$filter={condition}") for _ in range(3)]
            took = median(times)
            what = f"filter of {comparisons} comparisons over {ENTITIES} entities of 450 KiB"
            lines.append(Line(store, what, 1, f"≤ {MOST:g} s", f"{took * 1000:.0f} ms", took <= MOST))
        request(server, "DELETE", "/Tables('heavy')")
    return lines
