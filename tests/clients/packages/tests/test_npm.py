"""The package of npm, installed from a registry."""

import json
import pathlib
import shutil
import signal
import subprocess

import pytest
from conftest import PATIENCE, VERSION, run, surroundings, wait_until_gone

PROJECT = pathlib.Path(__file__).resolve().parents[1] / "project"
READY = "Rowhouse is ready at "
SERVE = ["--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"]

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="npm not found")


@pytest.fixture(scope="module")
def env(registry, tmp_path_factory):
    folder = tmp_path_factory.mktemp("npm")
    return surroundings(
        npm_config_registry=registry.npm,
        npm_config_cache=str(folder / "cache"),
        npm_config_userconfig=str(folder / "none"),
        npm_config_audit="false",
        npm_config_fund="false",
        npm_config_update_notifier="false",
    )


@pytest.fixture(scope="module")
def project(env, tmp_path_factory):
    """A project that has the package by `npm ci`."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": {"rowhouse": VERSION}}))
    run(["npm", "install", "--package-lock-only"], folder, env)
    # No package has a script, so that it works where scripts are not allowed.
    run(["npm", "ci", "--ignore-scripts"], folder, env)
    return folder


def test_only_the_program_of_this_platform_is_installed(project):
    locked = json.loads((project / "package-lock.json").read_text())["packages"]
    assert {name.removeprefix("node_modules/") for name in locked} >= {"@rowhouse/linux-x64", "@rowhouse/linux-arm64"}
    installed = [folder.name for folder in (project / "node_modules" / "@rowhouse").iterdir()]
    assert len(installed) == 1
    assert (project / "node_modules" / "@rowhouse" / installed[0] / "bin" / "rowhouse").exists()
    assert not any("hasInstallScript" in package for package in locked.values())


def test_npx_runs_the_program(project, env):
    assert run(["npx", "rowhouse", "--version"], project, env) == f"rowhouse {VERSION}\n"
    wrong = subprocess.run(["npx", "rowhouse", "--frob"], cwd=project, env=env, capture_output=True, text=True)
    assert wrong.returncode == 1 and "--frob" in wrong.stderr


def test_a_suite_uses_it(project, env):
    report = run(["node", "--test", "--test-reporter=tap", "servers.test.js"], project, env)
    assert "\n# fail 0\n" in report and "\n# skipped 0\n" in report, report
    assert int(report.split("\n# pass ")[1].split("\n")[0]) >= 7, report


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_the_process_that_started_it(project, env, how):
    parent = subprocess.Popen(["node", "parent.js"], cwd=project, env=env, stdout=subprocess.PIPE, text=True)
    with parent.stdout:
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        parent.send_signal(how)
        assert parent.wait(PATIENCE) == -how
    assert all(wait_until_gone(pid) for pid in pids)


def test_a_process_that_forgets_its_server_ends(project, env):
    pid = int(run(["node", "forgets.js"], project, env, timeout=PATIENCE))
    assert wait_until_gone(pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_command_leaves_no_server_behind(project, env, how):
    command = [project / "node_modules" / ".bin" / "rowhouse", *SERVE]
    wrapper = subprocess.Popen(
        command, cwd=project, env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    with wrapper.stdout:
        assert wrapper.stdout.readline().startswith(READY)
        wrapper.send_signal(how)
        assert wrapper.wait(PATIENCE) == (-how if how == signal.SIGKILL else 0)
        # The output ends with the server, which holds its other end.
        wrapper.stdout.read()
