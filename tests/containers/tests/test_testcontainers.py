"""Testcontainers in each language: its module for Azurite starts `rowhouse-azurite`, and
what docs/how-to/test-suites.md writes of containers starts `rowhouse`."""

import os
import pathlib
import re
import subprocess

import pytest
from azure.data.tables import TableServiceClient
from docker_client import DEVELOPMENT_KEY, REPOSITORY, client, docker, use
from testcontainers.azurite import AzuriteContainer
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

PREPARED = pathlib.Path(os.environ["ROWHOUSE_CONTAINERS"])
WAYS = ["azurite", "generic"]


def succeeds(*command, **options):
    # By the program timeout, since children that keep the output open would be waited for.
    done = subprocess.run(["timeout", "100", *command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr


def prepared(name):
    path = PREPARED / name
    if not path.exists():
        pytest.skip(f"{name} was not prepared: its language is missing or too old")
    return path


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = docker("ps", "-aq")
    yield
    assert docker("ps", "-aq") == before


def test_python_azurite():
    with AzuriteContainer("rowhouse-azurite") as storage:
        use(TableServiceClient.from_connection_string(storage.get_connection_string()))


def test_python_generic():
    container = DockerContainer("rowhouse").with_exposed_ports(10002)
    container.with_env("DATABASE_URL", "sqlite::memory:").with_env("ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT", "true")
    with container.waiting_for(LogMessageWaitStrategy("Rowhouse is ready at")):
        address = f"{container.get_container_host_ip()}:{container.get_exposed_port(10002)}"
        use(client(address, key=DEVELOPMENT_KEY))


def test_node():
    folder = prepared("node")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    # The global that the SDK needs is behind a flag there.
    flags = ["--experimental-global-webcrypto"] if version.startswith("v18.") else []
    succeeds("node", *flags, "--test", "containers.test.js", cwd=folder)


@pytest.mark.parametrize("name", ["TestAzuriteModule", "TestGenericContainer"])
def test_go(name):
    succeeds(prepared("go.test"), "-test.v", "-test.timeout=200s", f"-test.run=^{name}$")


@pytest.mark.parametrize("way", WAYS)
def test_java(way):
    folder = prepared("java")
    recipe = (REPOSITORY / "docs" / "how-to" / "test-suites.md").read_text()
    [substituted] = re.findall(r'asCompatibleSubstituteFor\("([^"]*)"\)', recipe)
    succeeds("java", "-cp", f"{folder}/classes:{folder}/dependency/*", "Containers", way, substituted)


@pytest.mark.parametrize("name", ["the_module_for_azurite", "the_image_of_this_crate"])
def test_rust(name):
    program = prepared("rust.test").read_text().strip()
    succeeds(program, name, "--exact", "--nocapture")
