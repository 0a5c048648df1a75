import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import time

import pytest
from registry import Registry

REPOSITORY = pathlib.Path(__file__).resolve().parents[4]
VERSION = re.search(r'^version = "(.+)"$', (REPOSITORY / "Cargo.toml").read_text(), re.MULTILINE).group(1)
PATIENCE = 60


def surroundings(**more):
    """The environment without settings of servers, npm, pip and uv."""
    settings = re.compile("rowhouse_|database_url|npm_|pip_|uv_", re.IGNORECASE)
    kept = {name: value for name, value in os.environ.items() if not settings.match(name)}
    return {**kept, **more}


def run(command, folder, env, **more):
    """What a command prints, which has to succeed."""
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def wait_until_gone(pid):
    """Whether a process ends, or has ended and nobody asked how."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def other_platform(dist):
    """A package for a platform that is not this one: npm must not take it."""
    [native] = dist.glob("rowhouse-linux-*.tgz")
    cpu = "arm64" if "x64" in native.name else "x64"
    manifest = {"name": f"@rowhouse/linux-{cpu}", "version": VERSION, "os": ["linux"], "cpu": [cpu]}
    text = json.dumps(manifest).encode()
    with tarfile.open(dist / f"rowhouse-linux-{cpu}-{VERSION}.tgz", "w:gz") as tar:
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """The packages of the program under test."""
    packages = tmp_path_factory.mktemp("packages")
    subprocess.run([REPOSITORY / "scripts" / "package", "--native", packages], check=True)
    return packages


@pytest.fixture(scope="session")
def registry(packages, tmp_path_factory):
    """Registries with these packages, and with one for another platform."""
    dist = tmp_path_factory.mktemp("dist")
    shutil.copytree(packages, dist, dirs_exist_ok=True, ignore=shutil.ignore_patterns("rowhouse-chart-*"))
    other_platform(dist)
    registry = Registry(dist)
    yield registry
    registry.close()
