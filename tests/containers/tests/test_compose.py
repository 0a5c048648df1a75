"""The files of deploy/compose, each driven with an SDK."""

import contextlib
import json
import os
import secrets
import socket
import subprocess

import pytest
from azure.core.exceptions import AzureError
from docker_client import REPOSITORY, client, docker, eventually, image_exists, new_account, use

FILES = REPOSITORY / "deploy" / "compose"
POSTGRES, NGINX = "rowhouse-test-postgres", "rowhouse-test-nginx"

pytestmark = pytest.mark.skipif(docker("compose", "version", check=False).returncode != 0, reason="no Compose 2")


class Project:
    """A compose file on a free port, with an account that nobody used before."""

    def __init__(self, file):
        self.file = file
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.account, self.key = new_account()
        self.environment = {
            **os.environ,
            "ROWHOUSE_ACCOUNTS": f"{self.account}:{self.key}",
            "ROWHOUSE_PORT": self.address.split(":")[1],
            "POSTGRES_PASSWORD": secrets.token_hex(8),
            "POSTGRES_IMAGE": POSTGRES,
            "NGINX_IMAGE": NGINX,
        }

    def compose(self, *arguments):
        return docker("compose", "-f", str(FILES / self.file), *arguments, env=self.environment)

    def up(self, *arguments):
        self.compose("up", "-d", "--no-build", "--wait", "--wait-timeout", "120", *arguments)

    def client(self, **options):
        return client(self.address, self.account, self.key, **options)

    def health(self, service):
        container = json.loads(docker("inspect", self.compose("ps", "-aq", service)))[0]
        return container["State"]["Health"]["Status"]

    def wait_until(self, service, health):
        eventually(f"{service} is {health}", lambda: self.health(service) == health)

    def logs(self):
        return self.compose("logs", "--no-color")


@pytest.fixture
def project():
    with contextlib.ExitStack() as stack:

        def start(file):
            project = Project(file)
            stack.callback(project.compose, "down", "-v", "-t", "10")
            project.up()
            return project

        yield start


def needs(*images):
    missing = [image for image in images if not image_exists(image)]
    return pytest.mark.skipif(bool(missing), reason=f"{missing} could not be made")


def rows(service):
    return {entity["RowKey"] for entity in service.get_table_client("People").list_entities()}


def served(project):
    """Whether the next requests are answered, whichever server they come to."""
    try:
        for _ in range(4):
            use(project.client(retry_total=0))
        return True
    except AzureError:
        return False


def test_sqlite_keeps_its_volume(project):
    alone = project("sqlite.yaml")
    row = use(alone.client())
    alone.compose("down")
    alone.up()
    assert rows(alone.client()) == {row}


def recipe():
    """The compose file that docs/how-to/test-suites.md shows."""
    page = (REPOSITORY / "docs" / "how-to" / "test-suites.md").read_text()
    _, section = page.split("### Docker Compose\n", 1)
    return section.split("```yaml\n", 1)[1].split("```", 1)[0]


def test_the_recipe_for_test_suites_works(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "127.0.0.1:10002:10002" in recipe()
    file = tmp_path / "compose.yaml"
    file.write_text(recipe().replace("127.0.0.1:10002:", f"127.0.0.1:{port}:"))

    def compose(*arguments):
        return docker("compose", "-p", f"recipe-{port}", "-f", str(file), *arguments)

    with contextlib.ExitStack() as stack:
        stack.callback(compose, "down", "-v", "-t", "10")
        compose("up", "-d", "--no-build", "--wait", "--wait-timeout", "120")
        service = client(f"127.0.0.1:{port}")
        row = use(service)
        compose("down")
        compose("up", "-d", "--no-build", "--wait", "--wait-timeout", "120")
        assert rows(service) == {row}


@needs(POSTGRES)
def test_one_project_leaves_the_others_alone(project):
    sqlite, postgres = project("sqlite.yaml"), project("postgres.yaml")
    kept = use(sqlite.client())
    use(postgres.client())
    postgres.compose("down", "-v")
    assert rows(sqlite.client()) == {kept}
    sqlite.compose("down")
    sqlite.up()
    assert rows(sqlite.client()) == {kept}


@needs(POSTGRES)
def test_a_server_without_its_database_is_unhealthy_until_it_is_back(project):
    one = project("postgres.yaml")
    row = use(one.client())
    one.compose("stop", "database")
    one.wait_until("rowhouse", "unhealthy")
    one.compose("start", "database")
    one.wait_until("rowhouse", "healthy")
    assert row in rows(one.client())


@needs(POSTGRES, NGINX)
def test_a_proxy_that_starts_while_a_server_is_away_serves_by_the_other(project):
    two = project("replicas.yaml")
    use(two.client())
    two.compose("stop", "rowhouse-1")
    two.compose("restart", "proxy")
    eventually(f"it serves by rowhouse-2: {two.logs()}", lambda: served(two))
    two.compose("start", "rowhouse-1")
    eventually("both serve", lambda: served(two))


@needs(POSTGRES, NGINX)
def test_a_server_that_is_made_anew_is_found(project):
    two = project("replicas.yaml")
    use(two.client())
    # Gone all at once, so that each might get the other's address.
    two.compose("rm", "-sf", "rowhouse-1", "rowhouse-2")
    two.up("rowhouse-2")
    two.up("rowhouse-1")
    two.compose("stop", "rowhouse-2")
    eventually(f"it serves by rowhouse-1: {two.logs()}", lambda: served(two))


def test_every_file_is_a_project_of_its_own():
    def name(file):
        command = ["docker", "compose", "-f", str(FILES / file), "config", "--format", "json"]
        project = Project(file)
        done = subprocess.run(command, capture_output=True, text=True, env=project.environment, check=True)
        return json.loads(done.stdout)["name"]

    names = [name(file) for file in ("sqlite.yaml", "postgres.yaml", "replicas.yaml", "citus.yaml")]
    assert names == ["rowhouse-sqlite", "rowhouse-postgres", "rowhouse-replicas", "rowhouse-citus"]
