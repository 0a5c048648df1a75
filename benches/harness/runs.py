"""One run of the load generator or of pgbench, as a dictionary."""

import json
import subprocess
from statistics import median

from processes import Failure, ROOT, run, say

SCRIPTS = ROOT / "benches" / "pgbench"
# The settings that Rowhouse gives its own sessions: plans are made once, by index.
SESSION = (
    "-c plan_cache_mode=force_generic_plan -c jit=off -c enable_seqscan=off -c enable_bitmapscan=off "
    "-c enable_hashjoin=off -c enable_mergejoin=off -c synchronous_commit=on"
)
# Of pgbench's transactions, the share whose time is written down.
SAMPLED = 0.2
# Turns in which pgbench may do nothing, as when the machine stands still.
TRIES = 3


def load(program, server, operation, *, clients=1, seconds=None, requests=None, postgres=None, **options):
    """Runs the load generator; fails on any answer that was not expected."""
    command = [program, operation, "--endpoint", server.endpoint, "--connections", str(clients)]
    command += ["--server-pid", str(server.pid)]
    options.update(seconds=seconds, requests=requests, postgres_pid=postgres)
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            command.append(flag)
        elif value is not None and value is not False:
            command += [flag, str(value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise Failure(f"{operation}: {done.stderr.strip()} {done.stdout.strip()}"[:1000])
    return json.loads(done.stdout)


class Pgbench:
    """The statements of one table, sent by pgbench over the cluster's socket."""

    def __init__(self, cluster, database, table, entities, partitions):
        self.cluster = cluster
        self.database = database
        found = cluster.sql(f"SELECT table_no, table_no << 16 FROM tables WHERE name_lower = '{table}'", database)
        table_no, bucket = found.split("|")
        first = f"SELECT properties FROM entities WHERE bucket = {bucket} ORDER BY pk, rk LIMIT 1"
        properties = cluster.sql(first, database)
        self.variables = {
            "table": table_no,
            "bucket": bucket,
            "properties": properties,
            "partitions": partitions,
            "each": entities // partitions,
            "now": 639_000_000_000_000_000,
            "version": 0,
            "n": 0,
            "ready": 0,
        }

    def run(self, script, **how):
        """Transactions a second, and the median and 99th percentile in µs."""
        for _ in range(TRIES):
            if found := self.turn(script, **how):
                return found
            say(f"pgbench {script}: no transaction was done, once more")
        raise Failure(f"pgbench {script}: no transaction was done")

    def turn(self, script, *, clients, seconds=None, requests=None, folder=None):
        """The same, or nothing if the time was over before all clients were connected."""
        command = [self.cluster.programs / "pgbench", "-M", "prepared", "-n", "-c", str(clients), "-j", "1"]
        command += ["-f", SCRIPTS / f"{script}.sql"]
        # The time that it takes to connect is part of -T, though not of the result.
        command += (
            ["-T", str(max(1, round(seconds)) + clients // 64)] if requests is None
            else ["-t", str(requests // clients)]
        )
        for name, value in self.variables.items():
            command += ["-D", f"{name}={value}"]
        prefix = folder / "pgbench"
        sampled = SAMPLED if requests is None and script in ("read", "insert") else 1
        command += ["-l", "--log-prefix", prefix]
        command += ["--sampling-rate", str(sampled)] if sampled < 1 else []
        out = run([*command, *self.cluster.target(self.database)], env={"PGOPTIONS": SESSION}, cwd=folder)
        line = next((line for line in out.splitlines() if line.startswith("tps = ")), None)
        times = sorted(
            int(entry.split()[2]) for log in folder.glob("pgbench.*") for entry in log.read_text().splitlines()
        )
        for log in folder.glob("pgbench.*"):
            log.unlink()
        if not times or not line:
            return None
        return {
            "per_second": float(line.split()[2]),
            "p50": times[(len(times) - 1) // 2],
            "p99": times[min(len(times) - 1, round(len(times) * 0.99))],
        }

    def fill_doomed(self, clients, each):
        """Rows for delete.sql."""
        bucket, properties = self.variables["bucket"], self.variables["properties"].replace("'", "''")
        self.cluster.sql(
            f"DELETE FROM entities WHERE bucket = {bucket} AND pk >= '900000' AND pk < '901000';"
            "INSERT INTO entities (bucket, pk, rk, modified, properties) "
            f"SELECT {bucket}, (900000 + c)::text, (999999 + n)::text, 1, '{properties}'::jsonb "
            f"FROM generate_series(0, {clients - 1}) AS c, generate_series(1, {each}) AS n",
            self.database,
        )


def ratio(ours, theirs):
    """How many times as much as theirs: the median of the turns, each beside its own, as
    the machine may be quicker in one turn than in the next."""
    return median(a["per_second"] / b["per_second"] for a, b in zip(ours, theirs))


def in_turns(pairs, parties):
    """What each party does in each turn. Every other turn has them in reverse order, so
    that none always comes after the same one."""
    runs = {who: [] for who in parties}
    for turn in range(pairs):
        for who in list(parties)[:: -1 if turn % 2 else 1]:
            runs[who].append(parties[who]())
    return runs


def medians(runs):
    """The medians of what several runs measured."""
    def numbers(of):
        return [n for n in (of(one) for one in runs) if n is not None]

    def middle(of):
        found = numbers(of)
        return median(found) if found else None

    return {
        "per_second": middle(lambda r: r["per_second"]),
        "p50": middle(lambda r: r["microseconds"]["p50"] if "microseconds" in r else r["p50"]),
        "p99": middle(lambda r: r["microseconds"]["p99"] if "microseconds" in r else r["p99"]),
        "server": middle(lambda r: r.get("cpu_microseconds", {}).get("server")),
        "postgres": middle(lambda r: r.get("cpu_microseconds", {}).get("postgres")),
    }
