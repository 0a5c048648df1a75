"""Rows that compare: Rowhouse and its peer take turns."""

from dataclasses import dataclass
from functools import partial
from typing import Optional

from goals import ACTIX, AZURITE, TITLES
from processes import Still, say
from runs import medians, ratio

# Bytes of an answer's body with one entity.
ENTITY = 1024


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
    """The turns of each store and of pgbench."""
    say(f"{row.title}, {clients} clients")
    how = a_turn(bed, row, clients)
    parties = {store: partial(bed.load, bed.servers[store], row.name, row.table, **how) for store in stores}
    if needs_peer:
        peer = bed.pgbench(row.table)

        def theirs():
            if row.script == "delete":
                peer.fill_doomed(clients, bed.options.counted // clients)
            return peer.run(row.script, folder=bed.folder, **how)

        parties["peer"] = theirs
    return bed.in_turns(parties)


def a_turn(bed, row, clients):
    """How many clients ask in a turn, and until when."""
    length = {"requests": bed.options.counted} if row.counted else {"seconds": bed.options.seconds}
    return {"clients": clients, **length}


def judge(row, store, clients, turns, peer_turns):
    least = row.ratios[store][clients]
    ours, peer = medians(turns), medians(peer_turns) if peer_turns else None
    lines = []
    if least is not None:
        times = ratio(turns, peer_turns)
        lines.append(
            Line(store, row.title, clients, f"≥ {least:.2f} × pgbench", f"{times:.2f} ×", times >= least, ours, peer)
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
    for operation, title, table in AZURITE:
        say(f"azurite: {title}")
        servers = {store: bed.servers[store] for store in bed.options.stores} | {"peer": azurite}
        for server in servers.values():
            bed.need(table, server)
        # Inserts go where both have as many entities at first.
        how = {"clients": 16, "seconds": bed.options.seconds}
        parties = {who: partial(bed.load, server, operation, table, **how) for who, server in servers.items()}
        runs = bed.in_turns(parties)
        peer = medians(runs["peer"])
        for store in bed.options.stores:
            ours, times = medians(runs[store]), ratio(runs[store], runs["peer"])
            what = f"Azurite: {title}"
            lines.append(Line(store, what, 16, "none", f"{times:.1f} × Azurite", None, ours, peer))
    return lines


def against_actix(bed):
    """Point reads beside servers that check no signature and have no store."""
    say("point reads beside servers without a store")
    how = {"clients": 16, "seconds": bed.options.seconds}
    for store in bed.options.stores:
        bed.need("still", bed.servers[store])
    floors = {kind: Still(bed.still, ENTITY, kind) for kind in Still.KINDS}
    parties = {store: partial(bed.load, bed.servers[store], "read", "still", **how) for store in bed.options.stores}
    for kind, floor in floors.items():
        parties[kind] = partial(bed.load, floor, "read", "still", only_status=True, **how)
    runs = bed.in_turns(parties)
    for floor in floors.values():
        floor.end()
    actix = next(kind for kind in floors if kind.startswith("actix-web"))
    peer, lines = medians(runs[actix]), []
    for who in [*bed.options.stores, *(kind for kind in floors if kind != actix)]:
        times, least = ratio(runs[who], runs[actix]), ACTIX.get(who)
        what = f"floor: {who}, point read" if who in floors else "point read beside actix-web without a store"
        goal = f"≥ {least:.2f} × actix-web" if least else "none"
        reached = times >= least if least else None
        store = "none" if who in floors else who
        lines.append(Line(store, what, 16, goal, f"{times:.2f} ×", reached, medians(runs[who]), peer))
    return lines


def title(store):
    return TITLES.get(store, store)
