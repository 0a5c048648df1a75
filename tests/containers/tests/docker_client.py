"""Runs containers by the docker client, and connects to them."""

import base64
import json
import os
import pathlib
import secrets
import subprocess
import time

from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
DEVELOPMENT = "devstoreaccount1"
DEVELOPMENT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PATIENCE = 120


def docker(*arguments, check=True, **options):
    """What the docker client prints; with `check=False`, what it does."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=300, **options)
    if not check:
        return done
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def eventually(what, is_so):
    """Asks until it is so, and returns what was so."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = is_so()
        if found:
            return found
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)


def new_account():
    return "c" + secrets.token_hex(8), base64.b64encode(secrets.token_bytes(64)).decode()


def client(address, account=DEVELOPMENT, key=DEVELOPMENT_KEY, **options):
    credential = AzureNamedKeyCredential(account, key)
    return TableServiceClient(f"http://{address}/{account}", credential=credential, **options)


def use(service, table="People"):
    """Writes and reads by the SDK."""
    people = service.create_table_if_not_exists(table)
    row = secrets.token_hex(8)
    people.upsert_entity({"PartitionKey": "p", "RowKey": row, "Age": 33})
    assert people.get_entity("p", row)["Age"] == 33
    return row


class Container:
    """A container that is removed at the end, with its volumes."""

    def __init__(self, image, *command, options=()):
        self.id = docker("run", "-d", *options, image, *command)

    def inspect(self):
        return json.loads(docker("inspect", self.id))[0]

    def log(self):
        done = docker("logs", self.id, check=False)
        return done.stdout + done.stderr

    def wait_for(self, text):
        def printed():
            log = self.log()
            assert self.inspect()["State"]["Running"] or text in log, log
            return text in log

        eventually(f"{text!r} is logged", printed)
        return self

    def health(self):
        return self.inspect()["State"]["Health"]["Status"]

    def wait_until(self, health):
        eventually(f"{self.id[:12]} is {health}: {self.log()}", lambda: self.health() == health)
        return self

    def address(self, port=10002):
        return docker("port", self.id, f"{port}/tcp").splitlines()[0].replace("0.0.0.0", "127.0.0.1")

    def stop(self):
        """The exit status after SIGTERM."""
        docker("stop", "-t", "60", self.id)
        return self.inspect()["State"]["ExitCode"]

    def remove(self):
        docker("rm", "-fv", self.id, check=False)


def image_exists(name):
    return docker("image", "inspect", name, check=False).returncode == 0


def variables(**settings):
    return [word for name, value in settings.items() for word in ("-e", f"{name}={value}")]


def program():
    return pathlib.Path(os.environ["ROWHOUSE_BIN"])
