"""Small pages in the order of an index beside pages of as many entities by key."""

from functools import partial

from bed import ACCOUNT
from compare import Line
from goals import TABLES
from processes import run, say
from runs import medians, ratio

# Entities of a page, and the least share of the rate of pages by key.
TOP, LEAST = 10, 0.7
TABLE = "ordered"
# What each page asks for. Entities without an entry come first in ascending order, and there are none.
KINDS = (("Age desc", "descending"), ("Age", "ascending"))


def ordered(bed):
    TABLES[TABLE] = (10_000, 10)
    lines = []
    for store in bed.options.stores:
        bed.need(TABLE, bed.servers[store])
        create = ["index", "create", TABLE, "Age", "--yes", "--database-url", bed.urls[store]]
        run([str(bed.rowhouse), *create])
        server = bed.server_beside(store, "--extended-queries", ACCOUNT)
        try:
            lines += [line(bed, server, store, kind, clients) for kind in KINDS for clients in (1, 16)]
        finally:
            server.end()
    return lines


def line(bed, server, store, kind, clients):
    """Pages in the order of an index, and in turns pages by key."""
    order, title = kind
    say(f"small pages in index order, {title}, {store}, {clients} clients")
    queries = {"ordered": f"$orderby={order.replace(' ', '%20')}&$top={TOP}", "by_key": f"$top={TOP}"}
    how = {"clients": clients, "seconds": bed.options.seconds}
    runs = bed.in_turns({
        who: partial(bed.load, server, "query", TABLE, query=query, **how) for who, query in queries.items()
    })
    times = ratio(runs["ordered"], runs["by_key"])
    what, goal = f"pages of {TOP} in index order, {title}", f"≥ {LEAST:.2f} × by key"
    return Line(store, what, clients, goal, f"{times:.2f} ×", times >= LEAST,
                medians(runs["ordered"]), medians(runs["by_key"]))
