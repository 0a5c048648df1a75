"""Builds the program twice: once to see where it spends its time, and once for that."""

import os
import shutil
import subprocess
from pathlib import Path

import other
from goals import ROWS, STORES, TABLES
from processes import Cluster, Failure, ROOT, Rowhouse, end, new_folder, run, say
from runs import load

# What is done to see where time goes: every operation, alone and beside others.
CLIENTS = (1, 16)
SECONDS = 1
REQUESTS = 3_200


def compiler():
    """The machine that rustc builds for, and the program that reads profiles of its making."""
    lines = run(["rustc", "-vV"], cwd=ROOT).splitlines()
    host = next(line.split()[1] for line in lines if line.startswith("host:"))
    folder = Path(run(["rustc", "--print", "sysroot"], cwd=ROOT).strip()) / "lib" / "rustlib" / host / "bin"
    reader = folder / "llvm-profdata"
    if not reader.exists():
        say("rustup component add llvm-tools")
        run(["rustup", "component", "add", "llvm-tools"], cwd=ROOT)
    if not reader.exists():
        raise Failure("llvm-profdata was not found; rustup's component is llvm-tools")
    return host, reader


def build(folder, host, flag):
    say(f"cargo build --profile dist --bin rowhouse, with {flag.split('=')[0]}")
    # With a machine named, the flag is for the program and not for what builds it.
    command = ["cargo", "build", "--locked", "--profile", "dist", "-q", "--bin", "rowhouse", "--target", host]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(folder), "CARGO_ENCODED_RUSTFLAGS": flag}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return folder / host / "dist" / "rowhouse"


def work(program, loader, cluster):
    """Has the program do everything that is measured, on both stores, and what would be slower if it never came."""
    for store in STORES:
        database = cluster.new_database("rowhouse") if store == "postgres" else f"sqlite://{new_folder()}/data.db"
        server = Rowhouse(program, database)
        filled = set()
        for row in ROWS:
            entities, partitions = TABLES[row.table]
            table = {"table": row.table, "entities": entities, "partitions": partitions}
            if row.table not in filled:
                load(loader, server, "fill", clients=4, create=True, **table)
                filled.add(row.table)
            for clients in CLIENTS:
                length = {"requests": REQUESTS} if row.counted else {"seconds": SECONDS}
                load(loader, server, row.name, clients=clients, **length, **table)
        other.work(server, ROWS[0].table)
        # Told to end, it writes down what it has counted.
        server.end()


def release(target, loader):
    """The program, built for what it was seen to do. Takes four times as long as a build."""
    host, reader = compiler()
    folder = target / "profile"
    counts = folder / "counts"
    for made in (counts, folder / "built"):
        # cargo does not see that counts are others than before.
        shutil.rmtree(made, ignore_errors=True)
    counts.mkdir(parents=True)
    counting = build(folder / "counting", host, f"-Cprofile-generate={counts}")
    os.environ["LLVM_PROFILE_FILE"] = str(counts / "%p-%m.profraw")
    cluster = Cluster()
    try:
        say("working, to be counted")
        work(counting, loader, cluster)
    finally:
        del os.environ["LLVM_PROFILE_FILE"]
        end(cluster.process)
    merged = folder / "counts.profdata"
    run([reader, "merge", "-o", merged, *sorted(counts.glob("*.profraw"))])
    built = build(folder / "built", host, f"-Cprofile-use={merged}")
    return Path(shutil.copy2(built, folder / "rowhouse"))
