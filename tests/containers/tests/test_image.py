"""The images, as people start them."""

import json
import os

import pytest
from azure.core.exceptions import HttpResponseError
from docker_client import client, docker, eventually, new_account, program, use, variables

READY = "Rowhouse is ready at"
ANYONE = variables(ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT="true")


def ready(container):
    return container.wait_for(READY)


def test_the_accounts_are_those_of_the_settings(run):
    account, key = new_account()
    container = ready(run("rowhouse", options=variables(ROWHOUSE_ACCOUNTS=f"{account}:{key}")))
    use(client(container.address(), account, key))
    with pytest.raises(HttpResponseError):
        use(client(container.address(), retry_total=0))


def test_without_accounts_it_does_not_start(run):
    container = run("rowhouse")
    eventually("it ends", lambda: not container.inspect()["State"]["Running"])
    assert container.inspect()["State"]["ExitCode"] == 1
    assert "ROWHOUSE_ACCOUNTS" in container.log() or "--accounts" in container.log(), container.log()


def test_it_does_not_run_as_root(run):
    container = ready(run("rowhouse", options=ANYONE))
    users = docker("top", container.id, "-o", "pid,uid,gid").splitlines()[1:]
    assert [line.split()[1:] for line in users] == [["10001", "0"]]


def test_its_root_can_be_read_only(volume, run):
    options = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "-v", f"{volume}:/data"]
    container = ready(run("rowhouse", options=[*ANYONE, *options]))
    use(client(container.address()))
    container.wait_until("healthy")
    assert docker("diff", container.id) == ""


@pytest.mark.parametrize("user", ["12345", "12345:0", "0:0", "10001"])
def test_any_user_of_group_0_can_store(volume, run, user):
    container = ready(run("rowhouse", options=[*ANYONE, "--user", user, "-v", f"{volume}:/data"]))
    use(client(container.address()))
    container.wait_until("healthy")


def test_any_user_and_group_can_run_it(run):
    memory = variables(DATABASE_URL="sqlite::memory:")
    container = ready(run("rowhouse", options=[*ANYONE, *memory, "--user", "12345:54321"]))
    use(client(container.address()))
    container.wait_until("healthy")


@pytest.mark.parametrize("image", ["rowhouse", "rowhouse-azurite"])
def test_a_folder_of_root_is_refused_with_what_to_do(run, tmp_path, image):
    os.chmod(tmp_path, 0o755)
    container = run(image, options=[*ANYONE, "--user", "12345", "-v", f"{tmp_path}:/data"])
    eventually("it ends", lambda: not container.inspect()["State"]["Running"])
    for words in ("rowhouse.db", "uid 12345", "the folder /data, which belongs to uid 0", "let uid 12345 write there"):
        assert words in container.log(), container.log()


def test_what_was_acknowledged_outlives_a_kill(volume, run):
    container = ready(run("rowhouse", options=[*ANYONE, "-v", f"{volume}:/data"]))
    rows = {use(client(container.address())) for _ in range(50)}
    docker("kill", "-s", "KILL", container.id)
    container.remove()
    again = ready(run("rowhouse", options=[*ANYONE, "-v", f"{volume}:/data"]))
    people = client(again.address()).get_table_client("People")
    assert {entity["RowKey"] for entity in people.list_entities()} == rows
    again.remove()


def test_sigterm_ends_it_well(run):
    container = ready(run("rowhouse", options=ANYONE))
    use(client(container.address()))
    assert container.stop() == 0


def test_it_is_healthy_soon_and_on_any_port(run):
    usual = run("rowhouse", options=ANYONE)
    elsewhere = run("rowhouse", "serve", "--listen", "0.0.0.0:9000", options=[*ANYONE, "-p", "127.0.0.1::9000"])
    azurite = run("rowhouse-azurite")
    moved = run("rowhouse-azurite", "azurite", "--tableHost", "0.0.0.0", "--tablePort", "9000")
    without = run("rowhouse", options=[*ANYONE, *variables(ROWHOUSE_ADMIN_LISTEN="")])
    for container in (usual, elsewhere, azurite, moved, without):
        container.wait_until("healthy")
        check = container.inspect()["Config"]["Healthcheck"]
        assert check["Interval"] <= 3e9, "what Docker waits for before it asks the first time"
    use(client(elsewhere.address(9000)))


def test_what_does_not_serve_is_unhealthy(run):
    # Nobody answers where clients are asked for, nor operators.
    nobody = variables(ROWHOUSE_ADMIN_LISTEN="")
    container = ready(run("rowhouse", "serve", "--listen", "0.0.0.0:9000", options=[*ANYONE, *nobody]))
    checked = docker("exec", container.id, "rowhouse", "healthcheck", check=False)
    assert checked.returncode == 1 and "does not answer" in checked.stderr


@pytest.mark.parametrize("image", ["rowhouse", "rowhouse-azurite"])
def test_it_holds_little_besides_the_program(image):
    described = json.loads(docker("image", "inspect", image))[0]
    assert described["Size"] - program().stat().st_size < 5_000_000
    labels = described["Config"]["Labels"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0 OR MIT"
    shell = docker("run", "--rm", "--entrypoint", "sh", image, check=False)
    assert shell.returncode == 127, shell
