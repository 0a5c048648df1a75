"""The table, and the facts that belong to it."""

import os
import platform
import subprocess
from pathlib import Path

from compare import title
from goals import TITLES
from processes import Failure, ROOT, run

START, END = "<!-- bench:start -->", "<!-- bench:end -->"
HEAD = (
    "| store | what | clients | goal | measured | reached | ours/s | peer's/s | p50 | p99 | peer's p99 | server CPU |\n"
    "|---|---|--:|---|---|---|--:|--:|--:|--:|--:|--:|"
)


def number(value):
    if value is None:
        return ""
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.1f}"


def micros(value):
    if value is None:
        return ""
    return f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.0f} µs"


def table(lines):
    shown = [HEAD]
    for line in lines:
        ours, peer = line.ours or {}, line.peer or {}
        cells = [
            title(line.store), line.what, line.clients, line.goal, line.measured,
            {True: "yes", False: "**no**", None: ""}[line.reached],
            number(ours.get("per_second")), number(peer.get("per_second")),
            micros(ours.get("p50")), micros(ours.get("p99")), micros(peer.get("p99")), micros(ours.get("server")),
        ]
        shown.append("| " + " | ".join(map(str, cells)) + " |")
    judged = [line.reached for line in lines if line.reached is not None]
    return "\n".join(shown) + f"\n\n{sum(judged)} of {len(judged)} goals reached."


def summary(lines):
    """A row for each thing measured, with all numbers of clients; a missed goal is bold."""
    stores = [store for store in TITLES if any(line.store == store for line in lines)] or list(TITLES)
    rows = {}
    for line in lines:
        store = line.store if line.store in stores else stores[0]
        clients, cells = rows.setdefault(line.what, ([], {}))
        if line.clients not in clients:
            clients.append(line.clients)
        cells.setdefault(store, []).append(f"**{line.measured}**" if line.reached is False else line.measured)
    shown = ["| " + " | ".join(["what", "clients", *map(title, stores)]) + " |", "|---|---|" + "---|" * len(stores)]
    for what, (clients, cells) in rows.items():
        columns = [clients, *(cells.get(store, []) for store in stores)]
        shown.append(f"| {what} | " + " | ".join(", ".join(map(str, column)) for column in columns) + " |")
    judged = [line.reached for line in lines if line.reached is not None]
    return "\n".join(shown) + f"\n\n{sum(judged)} of {len(judged)} goals reached."


def version(*command):
    try:
        return run(command, cwd=ROOT).strip()
    except (Failure, OSError, subprocess.TimeoutExpired):
        return ""


def sharers():
    """Whom Linux divides the processors between: each session may get as much as another."""
    setting = Path("/proc/sys/kernel/sched_autogroup_enabled")
    grouped = setting.exists() and setting.read_text().strip() == "1"
    return "sessions, then threads" if grouped else "threads"


def facts(bed, busy):
    """What was measured, on what."""
    options = bed.options
    commit = version("git", "rev-parse", "--short", "HEAD")
    changed = ", with changes" if version("git", "status", "--porcelain", "--", "src", "crates", "Cargo.lock") else ""
    postgres = "PostgreSQL " + (version(bed.cluster.programs / "postgres", "--version").split(" ") + ["", "", "?"])[2]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    azurite = f", Azurite {bed.azurite.version} on Node.js {version('node', '--version')}" if bed.azurite else ""
    parts = [
        f"Commit {commit}{changed}; {os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}; it divides processor time among {sharers()}",
        f"{postgres}, {version('rustc', '--version').split(' (')[0]}{azurite}",
        f"built by {'scripts/release' if options.profiled else 'cargo build --profile dist'}",
        f"{options.pairs} turn{'s' if options.pairs > 1 else ''} of {options.seconds:g} s",
        f"meanwhile other programs used {busy:.0%} of the processors",
    ]
    doubt = "" if busy <= 0.05 and not options.quick else (
        "\n\n**A short run or a busy machine: these figures only show that the bench works.**"
    )
    return "; ".join(parts) + "." + doubt


def write_into(path, text):
    """Puts the text between the two marks of a file."""
    path = Path(path)
    whole = path.read_text()
    if START not in whole or END not in whole.split(START, 1)[1]:
        raise Failure(f"{path} lacks the marks {START} and {END}")
    before, rest = whole.split(START, 1)
    _, after = rest.split(END, 1)
    path.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}")
