"""Starts and stops real Rowhouse servers, and connects to them. The legacy clients use this too."""

import base64
import json
import os
import pathlib
import queue
import re
import secrets
import signal
import subprocess
import threading

REPOSITORY = pathlib.Path(__file__).resolve().parents[4]
READY = re.compile(r"Rowhouse is ready at (http://\S+?),? ")
START_SECONDS = 60
STOP_SECONDS = 40


def binary():
    chosen = os.environ.get("ROWHOUSE_BIN")
    return pathlib.Path(chosen).resolve() if chosen else REPOSITORY / "target" / "debug" / "rowhouse"


def new_key():
    return base64.b64encode(secrets.token_bytes(64)).decode()


def surroundings():
    """The environment without settings: those of whoever runs the tests must not leak in."""
    settings = ("ROWHOUSE_", "DATABASE_URL")
    return {name: value for name, value in os.environ.items() if not name.startswith(settings)}


class Server:
    """One server process on a free port, with an account that nobody used before."""

    def __init__(self, folder, database_url=None, account=None):
        self.folder = pathlib.Path(folder)
        self.database_url = database_url or f"sqlite://{self.folder / 'rowhouse.db'}"
        self.account = account if account is not None else "py" + secrets.token_hex(8)
        self.keys = [new_key(), new_key()]
        # More settings, by the names of their variables.
        self.settings = {}
        self.process = None
        self.ready_line = None
        # The line after it, with the connection string.
        self.connection_line = None
        self.origin = None

    @property
    def endpoint(self):
        return f"{self.origin}/{self.account}"

    @property
    def log(self):
        return self.folder / "server.log"

    def credential(self, key=0):
        # Here, since the legacy clients live without this package.
        from azure.core.credentials import AzureNamedKeyCredential

        return AzureNamedKeyCredential(self.account, self.keys[key])

    def start(self, accounts=None):
        """Starts the process and waits for the line that says it is ready."""
        # An empty folder has no .env.
        env = surroundings()
        env["DATABASE_URL"] = self.database_url
        env["ROWHOUSE_LISTEN"] = "127.0.0.1:0"
        env["ROWHOUSE_ACCOUNTS"] = f"{self.account}:{':'.join(self.keys)}" if accounts is None else accounts
        env.update(self.settings)
        return self._run(env)

    def start_by_dotenv(self):
        """Starts the process with the settings of a `.env` file in its folder alone."""
        return self._run(surroundings())

    def _run(self, env):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(binary())], cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True
            )
        lines = queue.Queue()
        threading.Thread(target=self._read_output, args=(self.process.stdout, lines), daemon=True).start()
        try:
            self.ready_line = lines.get(timeout=START_SECONDS)
        except queue.Empty:
            self.ready_line = ""
        found = READY.match(self.ready_line or "")
        if not found:
            self.kill()
            raise RuntimeError(
                f"the server did not become ready; it printed {self.ready_line!r} and logged:\n{self.log.read_text()}"
            )
        self.connection_line = lines.get(timeout=START_SECONDS)
        self.origin = found.group(1)
        return self

    @staticmethod
    def _read_output(stdout, lines):
        with stdout:
            for line in stdout:
                lines.put(line)
        lines.put("")

    def kill(self):
        """Ends the process without any warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None

    def stop(self):
        """Asks the process to end and returns its exit status."""
        process, self.process = self.process, None
        if process is None:
            return None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
            raise


class Statuses(list):
    """A raw_response_hook that remembers the status of every answer, those that the SDK hides included."""

    def __bool__(self):
        # The SDK drops hooks that are false, and a new list would be.
        return True

    def __call__(self, response):
        self.append(response.http_response.status_code)


def code_of(error):
    """The service's error code. The SDK leaves it undecoded on some errors of create_entity."""
    code = getattr(error, "error_code", None)
    if code is None:
        code = json.loads(error.response.text())["odata.error"]["code"]
    return str(getattr(code, "value", code))
