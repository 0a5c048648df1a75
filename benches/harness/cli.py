"""The command line of scripts/bench."""

import argparse
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import extra
import report
from bed import Bed
from before import with_before
from compare import against_actix, against_azurite, compare
from goals import EXTRAS, LARGE, ROWS, STORES
from heavy import heavy
from hostile import hostile
from ordered import ordered
from processes import Failure, ROOT, end_all, end_with_us, say
from profiled import release
from scans import scans

# Seconds after which everything ends, come what may.
LIMIT = 3 * 3600
# Programs that do the least that has to be done.
FLOORS = ("relay", "bare", "still")


def listed(known):
    def read(text):
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name}: not one of {', '.join(known)}")
        return names
    return read


def program(text):
    path = Path(text).absolute()
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text}: no such file")
    return path


def options():
    names = [*(row.name for row in ROWS), *EXTRAS, *LARGE, "azurite"]
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measures Rowhouse beside pgbench, and says which goals it reaches."
    )
    parser.add_argument("--quick", action="store_true", help="one turn of 1 s, to see that all works")
    parser.add_argument("--pairs", type=int, metavar="N", help="turns of each row [5]")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of each turn [3]")
    parser.add_argument("--only", type=listed(names), metavar="ROWS", help=f"some of: {', '.join(names)}")
    parser.add_argument("--stores", type=listed(STORES), default=list(STORES), metavar="STORES", help="postgres, sqlite")
    parser.add_argument("--azurite", action="store_true", help="also against Azurite in memory, which npm installs")
    parser.add_argument("--large", action="store_true", help="also with a table of a million entities")
    parser.add_argument("--entities", type=int, default=1_000_000, metavar="N", help="of the large table [1000000]")
    parser.add_argument("--markdown", metavar="FILE", help="put a summary of the table between the marks in this file")
    parser.add_argument("--json", metavar="FILE", help="write every figure here")
    parser.add_argument("--profiled", action="store_true", help="measure the program that scripts/release builds")
    parser.add_argument("--before", type=program, metavar="PROGRAM",
                        help="compare with another build of the server instead, such as the one before a change")
    parser.add_argument("--no-build", action="store_true", help="use the programs as they are")
    chosen = parser.parse_args()
    chosen.pairs = chosen.pairs or (1 if chosen.quick else 5)
    chosen.seconds = chosen.seconds or (1 if chosen.quick else 3)
    chosen.requests = 100_000 if chosen.quick else 1_000_000
    chosen.counted = 6_400 if chosen.quick else 25_600
    return chosen


def target_folder():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()


def cargo_build(*what):
    say(f"cargo build --profile dist {' '.join(what)}")
    subprocess.run(["cargo", "build", "--locked", "--profile", "dist", "-q", *what], cwd=ROOT, check=True)


def build_loader(target):
    cargo_build("--example", "load")
    return target / "dist" / "examples" / "load"


def build(target, profiled):
    """The server with its own features alone, then what it is compared with."""
    if not profiled:
        cargo_build("--bin", "rowhouse")
    loader = build_loader(target)
    for floor in FLOORS:
        cargo_build("--example", floor)
    if profiled:
        release(target, loader)
    return programs(target, profiled)


def programs(target, profiled):
    built = target / "dist"
    server = target / "profile" / "rowhouse" if profiled else built / "rowhouse"
    found = server, *(built / "examples" / name for name in ("load", *FLOORS))
    for program in found:
        if not program.exists():
            raise Failure(f"{program} is not built")
    return found


def measure(bed):
    """The lines of every row that was asked for, one row after the other."""
    chosen = bed.options
    wanted = chosen.only or [*(row.name for row in ROWS), *EXTRAS]
    if not chosen.only:
        wanted += (["azurite"] if chosen.azurite else []) + (list(LARGE) if chosen.large else [])
    for row in ROWS:
        if row.name in wanted:
            yield from (with_before if chosen.before else compare)(bed, row)
    if chosen.before:
        return
    kinds = {"floor": extra.floor, "actix": against_actix, "memory": extra.memory, "hostile": hostile,
             "start": extra.start, "heavy": heavy, "scans": scans, "ordered": ordered, "azurite": against_azurite,
             "growth": extra.growth, "purge": extra.purge}
    for name, kind in kinds.items():
        if name in wanted:
            yield from kind(bed)


class Others:
    """How much of the processors other programs use meanwhile."""

    def __init__(self):
        self.began = self.look()

    @staticmethod
    def look():
        """Seconds of all processors, idle ones, and ours with those of children that have ended."""
        numbers = [int(n) / 100 for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4], sum(os.times()[:4])

    def share(self):
        """Once every process that we started has ended."""
        total, idle, ours = (now - then for now, then in zip(self.look(), self.began))
        return max(0.0, (total - idle - ours) / max(total, 0.01))


def main():
    chosen = options()
    end_with_us()
    signal.alarm(LIMIT)
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("scripts/bench: took too long"))
    lines, status = [], 0
    try:
        target = target_folder()
        made = (programs if chosen.no_build else build)(target, chosen.profiled)
        others = Others()
        bed = Bed(chosen, made)
        try:
            for line in measure(bed):
                lines.append(line)
        except (Failure, subprocess.TimeoutExpired) as problem:
            say(f"scripts/bench: {problem}")
            status = 1
        end_all()
        facts = report.facts(bed, others.share())
        print(f"{facts}\n\n{report.table(lines)}")
        if chosen.markdown and status == 0:
            report.write_into(chosen.markdown, f"{facts}\n\n{report.summary(lines)}")
        if chosen.json:
            Path(chosen.json).write_text(json.dumps([asdict(line) for line in lines], indent=1))
    except (Failure, subprocess.SubprocessError) as problem:
        say(f"scripts/bench: {problem}")
        status = 1
    except KeyboardInterrupt:
        status = 130
    finally:
        end_all()
    return status
