"""Rows in which the server takes turns with another build of itself."""

from functools import partial

from compare import Line, a_turn
from processes import say
from runs import medians, ratio

# What a change may cost.
LEAST = 0.97


def with_before(bed, row):
    """A line for each store and number of clients of a row."""
    for store in bed.options.stores:
        both = {"now": bed.servers[store], "before": bed.before[store]}
        for server in both.values():
            bed.need(row.table, server)
        for clients in row.ratios[store]:
            say(f"{row.title}, {store}, {clients} clients")
            how = a_turn(bed, row, clients)
            runs = bed.in_turns({who: partial(bed.load, server, row.name, row.table, **how)
                                 for who, server in both.items()})
            yield line(row, store, clients, runs["now"], runs["before"])


def line(row, store, clients, turns_now, turns_before):
    now, before = medians(turns_now), medians(turns_before)
    times = ratio(turns_now, turns_before)
    found = f"{times:.3f} ×"
    if now["server"] and before["server"]:
        found += f", {now['server'] / before['server']:.3f} × the CPU"
    return Line(store, row.title, clients, f"≥ {LEAST} × before", found, times >= LEAST, now, before)
