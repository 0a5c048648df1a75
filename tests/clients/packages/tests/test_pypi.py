"""The wheel, installed from a registry."""

import ast
import pathlib
import signal
import subprocess
import sys
import sysconfig

import pytest
from conftest import PATIENCE, REPOSITORY, VERSION, run, surroundings, wait_until_gone

SUITE = pathlib.Path(__file__).resolve().parents[1] / "suite"
# Starts two servers and waits to be killed.
PARENT = """
import sys, rowhouse_server
servers = [rowhouse_server.Server().start() for _ in range(2)]
print(*(server.pid for server in servers), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def python(registry, tmp_path_factory):
    """The Python of an environment that has the wheel by pip."""
    folder = tmp_path_factory.mktemp("venv")
    run([sys.executable, "-m", "venv", folder], folder, surroundings())
    python = folder / "bin" / "python"
    install = ["install", "--no-cache-dir", "--disable-pip-version-check", "--index-url", registry.pypi]
    run([python, "-m", "pip", *install, "rowhouse-server"], folder, surroundings(PIP_CONFIG_FILE="/dev/null"))
    return python


def test_the_command_is_the_program(python):
    assert run([python.parent / "rowhouse", "--version"], SUITE, surroundings()) == f"rowhouse {VERSION}\n"
    assert run([python, "-m", "rowhouse_server", "--version"], SUITE, surroundings()) == f"rowhouse {VERSION}\n"


def test_uvx_runs_the_program(registry, tmp_path):
    env = surroundings(UV_CACHE_DIR=str(tmp_path / "cache"), UV_NO_CONFIG="1", UV_PYTHON=sys.executable)
    uvx = pathlib.Path(sys.executable).parent / "uvx"
    command = [uvx, "--default-index", registry.pypi, "--from", "rowhouse-server", "rowhouse", "--version"]
    assert run(command, tmp_path, env) == f"rowhouse {VERSION}\n"


def test_a_suite_uses_it(python, tmp_path):
    # pytest is that of these tests.
    env = surroundings(PYTHONPATH=sysconfig.get_path("purelib"), PYTHONDONTWRITEBYTECODE="1")
    command = [python, "-m", "pytest", "-c", "/dev/null", "-p", "no:cacheprovider", "--rootdir", SUITE, SUITE]
    report = run(command, tmp_path, {**env, "ROWHOUSE_ACCOUNTS": "leaked:a2V5"})
    assert "7 passed" in report, report


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_the_process_that_started_it(python, how):
    command = [python, "-c", PARENT]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=surroundings(), stdin=pipe, stdout=pipe, text=True) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.send_signal(how)
        assert parent.wait(PATIENCE) == -how
    assert all(wait_until_gone(pid) for pid in pids)


# Stops a server of which a forked process holds what it was given.
FORKED = """
import os, time, rowhouse_server
server = rowhouse_server.Server().start()
child = os.fork()
if child == 0:
    time.sleep(3600)
process = server._process
server.stop()
os.kill(child, 9)
os.waitpid(child, 0)
print(process.returncode)
"""


def test_a_server_stops_though_a_forked_process_holds_its_input(python, tmp_path):
    assert run([python, "-c", FORKED], tmp_path, surroundings()) == "0\n"


def test_the_module_has_no_newer_syntax():
    for file in (REPOSITORY / "packaging" / "python").glob("rowhouse_server/*.py"):
        ast.parse(file.read_text(), feature_version=(3, 9))
