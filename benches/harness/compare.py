"""Rows that compare: Rowhouse and its peer take turns."""

from dataclasses import dataclass
from typing import Optional

from goals import AZURITE, TITLES
from processes import say
from runs import medians


@dataclass
class Line:
    """One line of the table."""

    store: str
    what: str
    clients: object
    goal: str
    measured: str
    reached: Optional[bool]
    ours: Optional[dict] = None
    peer: Optional[dict] = None


def compare(bed, row):
    """All lines of a row."""
    stores = bed.options.stores
    for store in {"postgres", *stores}:
        bed.need(row.table, bed.servers[store])
    lines = []
    for clients in row.clients(stores):
        wanted = [s for s in stores if clients in row.ratios[s]]
        needs_peer = any(row.ratios[s][clients] is not None for s in wanted)
        results = take_turns(bed, row, clients, wanted, needs_peer)
        for store in wanted:
            lines += judge(row, store, clients, results[store], results.get("peer"))
    return lines


def take_turns(bed, row, clients, stores, needs_peer):
    """Medians of each store and of pgbench."""
    runs = {store: [] for store in stores}
    if needs_peer:
        runs["peer"] = []
        peer = bed.pgbench(row.table)
    for turn in range(bed.options.pairs):
        say(f"{row.title}, {clients} clients, turn {turn + 1} of {bed.options.pairs}")
        length = {"requests": bed.options.counted} if row.counted else {"seconds": bed.options.seconds}
        for store in stores:
            runs[store].append(bed.load(bed.servers[store], row.name, row.table, clients=clients, **length))
        if needs_peer:
            if row.script == "delete":
                peer.fill_doomed(clients, bed.options.counted // clients)
            runs["peer"].append(peer.run(row.script, clients=clients, folder=bed.folder, **length))
    return {who: medians(of) for who, of in runs.items()}


def judge(row, store, clients, ours, peer):
    least = row.ratios[store][clients]
    lines = []
    if least is not None:
        ratio = ours["per_second"] / peer["per_second"]
        lines.append(
            Line(store, row.title, clients, f"≥ {least:.2f} × pgbench", f"{ratio:.2f} ×", ratio >= least, ours, peer)
        )
    if store in row.cpu:
        each = (ours["server"] or 0) / row.entities
        most = row.cpu[store]
        lines.append(
            Line(store, f"{row.title}: CPU an entity", clients, f"≤ {most:g} µs", f"{each:.2f} µs", each <= most, ours)
        )
    if clients == row.tail:
        spread = ours["p99"] / ours["p50"]
        below = peer is None or ours["p99"] < peer["p99"]
        # "likewise" of inserts: the same two conditions.
        lines.append(
            Line(store, f"{row.title}: slowest 1 %", clients, "≤ 3 × p50, below pgbench's",
                 f"{spread:.2f} ×, {ours['p99'] / peer['p99']:.2f} of pgbench's", spread <= 3 and below, ours, peer)
        )
    return lines


def against_azurite(bed):
    lines = []
    azurite = bed.start_azurite()
    for operation, title, table, least in AZURITE:
        say(f"azurite: {title}")
        servers = {store: bed.servers[store] for store in bed.options.stores}
        for server in (azurite, *servers.values()):
            bed.need(table, server)
        runs = {who: [] for who in (*servers, "peer")}
        for _ in range(bed.options.pairs):
            for who, server in (*servers.items(), ("peer", azurite)):
                # Inserts go where both have as many entities at first.
                runs[who].append(bed.load(server, operation, table, clients=16, seconds=bed.options.seconds))
        peer = medians(runs["peer"])
        for store in servers:
            ours = medians(runs[store])
            ratio = ours["per_second"] / peer["per_second"]
            what = f"Azurite: {title}"
            lines.append(Line(store, what, 16, f"≥ {least} × Azurite", f"{ratio:.1f} ×", ratio >= least, ours, peer))
    return lines


def title(store):
    return TITLES.get(store, store)
