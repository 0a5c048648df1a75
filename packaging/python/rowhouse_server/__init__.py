"""Servers of the Azure Table storage API for tests: the program of Rowhouse, and a context manager that runs it."""

import collections
import os
import pathlib
import queue
import re
import subprocess
import threading
import urllib.request

__all__ = ["Server", "binary"]

_READY = "Rowhouse is ready at "
_OPERATORS = re.compile(r"operators are answered at (http://\S+)")
# Settings of whoever runs the tests must not leak in.
_SETTING = re.compile(r"ROWHOUSE_|DATABASE_URL|OTEL_")
_FILE = re.compile(r"sqlite://([^/:?][^?]*)(.*)")
_FOLDER = pathlib.Path(__file__).resolve().parent
_STOP_SECONDS = 30
_LOG_LINES = 100


def binary():
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

    def __init__(self, *, database_url="sqlite::memory:", port=0, admin_port=0, arguments=(), env=None, timeout=60):
        self.connection_string = self.endpoint = self.admin_url = None
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
        self._env.update(env or {})
        self._timeout = timeout
        self._log = collections.deque(maxlen=_LOG_LINES)
        self._readers = []
        self._process = None

    @property
    def pid(self):
        """The id of its process, while it runs."""
        return self._process and self._process.pid

    def start(self):
        """Starts it, and waits until it is ready."""
        if self._process:
            raise RuntimeError("the server runs already")
        # Our folder has no .env.
        self._process = subprocess.Popen(
            self._command,
            cwd=_FOLDER,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        announced, operators = queue.Queue(), queue.Queue()
        self._read(self._process.stdout, announced, self._announced)
        self._read(self._process.stderr, operators, self._logged)
        try:
            self.connection_string = announced.get(timeout=self._timeout)
            self.admin_url = operators.get(timeout=self._timeout)
        except queue.Empty:
            self.connection_string = None
        if not self.connection_string or not self.admin_url:
            self._process.kill()
            self._end()
            raise RuntimeError("rowhouse did not start\n" + "\n".join(self._log))
        self.endpoint = re.search("TableEndpoint=([^;]+)", self.connection_string).group(1)
        return self

    def reset(self):
        """Deletes all that is stored."""
        request = urllib.request.Request(f"{self.admin_url}/test/reset", b"", method="POST")
        # Whatever proxies the environment names are not for this machine.
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60).close()

    def stop(self):
        """Stops it, and waits until it has ended."""
        if not self._process:
            return
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def _end(self):
        process, self._process = self._process, None
        process.wait()
        process.stdin.close()
        for reader in self._readers:
            reader.join()
        self._readers.clear()

    def _read(self, stream, found, look):
        """Reads a stream to its end, so that the server never waits. Puts what it looks for, at the end nothing."""

        def read():
            with stream:
                for line in stream:
                    value = look(line.rstrip("\n"))
                    if value:
                        found.put(value)
            found.put(None)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self._readers.append(reader)

    @staticmethod
    def _announced(line):
        return line.split(" ")[-1] if line.startswith(_READY) else None

    def _logged(self, line):
        self._log.append(line)
        found = _OPERATORS.search(line)
        return found and found.group(1)


def _absolute(url):
    """Files are relative to the folder of the tests, not to ours."""
    file = _FILE.fullmatch(url)
    return f"sqlite://{pathlib.Path(file.group(1)).absolute()}{file.group(2)}" if file else url
