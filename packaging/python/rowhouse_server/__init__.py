"""Servers of the Azure Table storage API for tests: the program of Rowhouse, and a context manager that runs it."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, Literal, TypedDict

__all__ = ["FaultCount", "FaultRule", "Server", "binary"]

_CONNECTION_STRING = re.compile(r"Connection string.*: (\S+)")
_OPERATORS = re.compile(r"operators are answered at (http://\S+)")
# Settings of whoever runs the tests must not leak in.
_SETTING = re.compile(r"ROWHOUSE_|DATABASE_URL|OTEL_")
_FILE = re.compile(r"sqlite://([^/:?][^?]*)(.*)")
_FOLDER = pathlib.Path(__file__).resolve().parent
_STOP_SECONDS = 30
_LOG_LINES = 100


class FaultRule(TypedDict, total=False):
    """A fault, and the requests that meet it: the first one that matches, unless `after` and `times` say otherwise.

    It has exactly one of `error`, `delay`, `disconnect` and `page`.
    """

    #: Only this operation, by its name in metrics, such as `InsertEntity`.
    operation: str
    #: Only requests that name this table, in any case.
    table: str
    #: An error of the service by its code, such as `ServerBusy`. Nothing is stored.
    error: str
    #: Milliseconds to wait before the operation; 1 to 30 000.
    delay: int
    #: The connection ends without an answer: before anything is stored, or after all of it is.
    disconnect: Literal["before", "after"]
    #: The maximum number of entities or tables in the answer to a query; 1 to 1000.
    page: int
    #: Matches before the first fault; 0 unless given.
    after: int
    #: Matches that meet the fault; 1 unless given.
    times: int


class FaultCount(TypedDict):
    """What a rule has counted."""

    #: Requests, and operations in batches, that matched.
    matched: int
    #: How many of them met the fault.
    hits: int


def binary() -> str:
    """The path of the program."""
    return str(_FOLDER / "bin" / "rowhouse")


class Server:
    """A server in test mode, which ends with this process, even if that is killed.

    It stores in memory unless `database_url` says otherwise; tests may delete all of it. Ports are free ones unless
    given. `arguments` are more arguments of `rowhouse serve`, `env` more variables of its environment, in which the
    settings of this process are left out. `timeout` is how many seconds it may take to start.

    `connection_string` is for clients of the SDK, `endpoint` the address of the account, `admin_url` that of the
    listener for operators, where snapshots and faults are ordered.
    """

    connection_string: str
    endpoint: str
    admin_url: str

    def __init__(
        self,
        *,
        database_url: str = "sqlite::memory:",
        port: int = 0,
        admin_port: int = 0,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> None:
        self._command = [
            binary(),
            "serve",
            "--until-stdin-closes",
            "--test-mode",
            f"--listen=127.0.0.1:{port}",
            f"--admin-listen=127.0.0.1:{admin_port}",
            f"--database-url={_absolute(database_url)}",
            "--shutdown-seconds=0",
            "--log-format=text",
            *arguments,
        ]
        self._env = {name: value for name, value in os.environ.items() if not _SETTING.match(name)}
        self._env.update({"ROWHOUSE_CONSOLE": "off"} | (env or {}))
        self._timeout = timeout
        self._log: collections.deque[str] = collections.deque(maxlen=_LOG_LINES)
        self._readers: list[threading.Thread] = []
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        """The id of its process, while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> Server:
        """Starts it, and waits until it is ready."""
        if self._process:
            raise RuntimeError("the server runs already")
        # Our folder has no .env.
        process = self._process = subprocess.Popen(
            self._command,
            cwd=_FOLDER,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        announced = self._read(process.stdout, self._announced)
        operators = self._read(process.stderr, self._logged)
        try:
            connection_string = announced.get(timeout=self._timeout)
            admin_url = operators.get(timeout=self._timeout)
        except queue.Empty:
            connection_string = admin_url = None
        if not connection_string or not admin_url:
            process.kill()
            self._end(process)
            raise RuntimeError("rowhouse did not start\n" + "\n".join(self._log))
        self.connection_string, self.admin_url = connection_string, admin_url
        self.endpoint = connection_string.partition("TableEndpoint=")[2].strip(";")
        return self

    def reset(self) -> None:
        """Deletes all that is stored, and removes all faults."""
        self._order("POST", "reset")

    def snapshot(self) -> str:
        """Takes a snapshot of all that is stored, and returns its name. A server keeps at most 64."""
        return str(self._order("POST", "snapshots")["name"])

    def restore(self, name: str) -> None:
        """Restores a snapshot, which stays: tables, policies, and entities with their ETags and timestamps."""
        self._order("POST", f"snapshots/{urllib.parse.quote(name, safe='')}/restore")

    def set_faults(self, rules: Iterable[FaultRule]) -> None:
        """Orders faults in place of those that were ordered before; none for an empty list."""
        self._order("PUT", "faults", list(rules))

    def faults(self) -> list[FaultCount]:
        """The counts of all rules, in their order."""
        rules = self._order("GET", "faults")["rules"]
        return [{"matched": rule["matched"], "hits": rule["hits"]} for rule in rules]

    def _order(self, method: str, what: str, document: object = None) -> Any:
        body = b"" if document is None else json.dumps(document).encode()
        request = urllib.request.Request(f"{self.admin_url}/test/{what}", body, method=method)
        # Whatever proxies the environment names are not for this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            raise RuntimeError(f"rowhouse refused {method} /test/{what}: {error.code} {text}") from None

    def stop(self) -> None:
        """Stops it, and waits until it has ended."""
        process = self._process
        if process is None:
            return
        if process.stdin:
            process.stdin.close()
        # A process that was forked meanwhile holds standard input too.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        self._end(process)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, process: subprocess.Popen[str]) -> None:
        self._process = None
        process.wait()
        if process.stdin:
            process.stdin.close()
        for reader in self._readers:
            reader.join()
        self._readers.clear()

    def _read(self, stream: IO[str] | None, look: Callable[[str], str | None]) -> queue.Queue[str | None]:
        """Reads a stream to its end, so that the server never waits. Puts what it looks for, at the end nothing."""
        found: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            for line in stream or ():
                value = look(line.rstrip("\n"))
                if value:
                    found.put(value)
            if stream:
                stream.close()
            found.put(None)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self._readers.append(reader)
        return found

    @staticmethod
    def _announced(line: str) -> str | None:
        found = _CONNECTION_STRING.fullmatch(line)
        return found.group(1) if found else None

    def _logged(self, line: str) -> str | None:
        self._log.append(line)
        found = _OPERATORS.search(line)
        return found.group(1) if found else None


def _absolute(url: str) -> str:
    """Files are relative to the folder of the tests, not to ours."""
    file = _FILE.fullmatch(url)
    return f"sqlite://{pathlib.Path(file.group(1)).absolute()}{file.group(2)}" if file else url
