"""What a benchmark starts, and how all of it ends."""

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
started = []
folders = []


class Failure(Exception):
    """Something that a benchmark needs did not work."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def end_all():
    """Ends, by their own handles, exactly the processes that were started."""
    for process in reversed(started):
        end(process)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    started.clear()
    folders.clear()


def end(process, patience=20):
    if process.poll() is None:
        process.send_signal(getattr(process, "gentle", signal.SIGTERM))
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process in started:
        started.remove(process)


def end_with_us():
    atexit.register(end_all)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def start(command, **options):
    # A session of its own: an interrupt at the terminal reaches us alone, and we
    # end what we started in order.
    process = subprocess.Popen(command, start_new_session=True, **options)
    started.append(process)
    return process


def run(command, limit=600, **options):
    """The output of a command that has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))[:300]}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def new_folder(owner=None):
    folder = Path(tempfile.mkdtemp(prefix="rowhouse-bench."))
    folders.append(folder)
    if owner:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    return folder


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def postgres_programs():
    """The newest installation's folder that also has pgbench."""
    found = [p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found.sort(key=lambda p: float(p.parent.name) if p.parent.name.replace(".", "").isdigit() else 0, reverse=True)
    found += [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    for folder in found:
        if all((folder / name).exists() for name in ("initdb", "postgres", "pgbench", "psql")):
            return folder
    raise Failure("PostgreSQL with pgbench was not found; Debian's package is postgresql")


class Cluster:
    """A private PostgreSQL that keeps its promises: fsync is on."""

    SETTINGS = {
        "listen_addresses": "",
        "max_connections": 400,
        "shared_buffers": "512MB",
        # No checkpoint while something is measured, as far as that can be had.
        "max_wal_size": "8GB",
        "checkpoint_timeout": "1h",
        # A checkpoint keeps that much of the log to be written again: PostgreSQL that has
        # been running for a while makes no new files of it.
        "min_wal_size": "4GB",
    }
    # Files of 16 MiB that the log of one that has been running for a while has.
    LOG_FILES = 200

    def __init__(self):
        self.programs = postgres_programs()
        self.user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        self.folder = new_folder(self.user)
        self.port = free_port()
        # PostgreSQL refuses to run as root.
        self.as_user = (
            {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}
        )
        data = self.folder / "data"
        init = ["-D", data, "-U", "rowhouse", "-A", "trust", "-E", "UTF8", "--no-locale"]
        run([self.programs / "initdb", *init], cwd="/", **self.as_user)
        options = [o for name, value in self.SETTINGS.items() for o in ("-c", f"{name}={value}")]
        with open(self.folder / "log", "wb") as log:
            self.process = start(
                [self.programs / "postgres", "-D", data, "-k", self.folder, "-p", str(self.port), *options],
                cwd="/", stdout=log, stderr=log, **self.as_user,
            )
        self.process.gentle = signal.SIGINT
        wait_for(lambda: (self.folder / f".s.PGSQL.{self.port}").exists() and self.answers(), 60, "PostgreSQL")

    def lengthen_log(self):
        """Makes the files of the log that there would be after a while."""
        switch = "SELECT pg_logical_emit_message(true, '', ''), pg_switch_wal()"
        self.sql(f"DO $$ BEGIN FOR n IN 1..{self.LOG_FILES} LOOP PERFORM * FROM ({switch}) one; END LOOP; END $$")
        self.settle()

    def settle(self):
        """Writes what is to be written, so that nothing measured waits for it."""
        self.sql("CHECKPOINT")

    @property
    def pid(self):
        return self.process.pid

    def answers(self):
        try:
            return self.sql("SELECT 1") == "1"
        except Failure:
            return False

    def target(self, database):
        return ["-h", str(self.folder), "-p", str(self.port), "-U", "rowhouse", database]

    def url(self, database):
        return f"postgres://rowhouse@localhost:{self.port}/{database}?host={self.folder}"

    def sql(self, text, database="postgres"):
        command = [self.programs / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", text]
        return run([*command, *self.target(database)]).strip()

    def new_database(self, name):
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)


def wait_for(condition, seconds, what, every=0.05):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{what} did not start within {seconds} s")
        time.sleep(every)


class Served:
    """A process that serves at the address that it prints."""

    @property
    def endpoint(self):
        return f"http://{self.address}/devstoreaccount1"

    @property
    def pid(self):
        return self.process.pid

    def serve(self, arguments, **how):
        self.process = start(arguments, stdout=subprocess.PIPE, text=True, **how)
        line = self.process.stdout.readline()
        if "://" not in line:
            raise Failure(f"{arguments[0]} did not start: {line}")
        self.address = line.split("://", 1)[1].split(",")[0]

    def end(self):
        end(self.process)
        self.process.stdout.close()


class Rowhouse(Served):
    """The server, over one of its stores."""

    def __init__(self, program, database_url, *more):
        self.began = time.monotonic()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ROWHOUSE_") and k != "DATABASE_URL"}
        arguments = ["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--database-url", database_url, *more]
        self.serve([program, *arguments], env=environment, cwd=new_folder())
        self.ready_after = time.monotonic() - self.began


class Relay(Served):
    """What passes requests of one kind on, and nothing else."""

    def __init__(self, program, cluster, database, operation, variables):
        bucket, table = variables["bucket"], variables["table"]
        values = {
            "read": [bucket, "100000", "1000000", table],
            "page": [bucket, "100000", "100001", table],
            "transaction": [bucket, table, variables["properties"]],
        }
        socket_file = cluster.folder / f".s.PGSQL.{cluster.port}"
        arguments = [program, socket_file, database, "rowhouse", operation, *values[operation]]
        self.serve(arguments)


class Still(Served):
    """What answers with as many bytes, and does nothing else."""

    KINDS = {"a server that reads nothing": (), "actix-web without a store": ("actix",)}

    def __init__(self, program, length, kind):
        self.serve([program, str(length), *self.KINDS[kind]])


class Azurite:
    """The emulator, its table service alone, in memory."""

    def __init__(self):
        folder = new_folder()
        say("installing azurite")
        run(["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, "azurite"], limit=300, cwd=folder)
        # Not through its wrapper: the pid has to be that of the server.
        script = next(folder.glob("node_modules/azurite/dist/src/table/main.js"), None)
        port = free_port()
        arguments = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
        self.process = start(
            ["node", script, *arguments, "--tableHost", "127.0.0.1", "--tablePort", str(port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
        )
        self.endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
        wait_for(lambda: accepts(port), 60, "Azurite")
        package = (folder / "node_modules/azurite/package.json").read_text()
        self.version = package.split('"version": "', 1)[-1].split('"')[0]

    @property
    def pid(self):
        return self.process.pid


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False
