"""The package of Debian, installed below a folder, and its unit of systemd."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import REPOSITORY, VERSION, run, surroundings

UNIT = REPOSITORY / "deploy" / "systemd" / "rowhouse.service"
MAX_EXPOSURE = 1.5

pytestmark = [
    pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="this is no Debian"),
    pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs as root"),
]


class Machine:
    """A folder with a database of packages of its own. Scripts of packages run outside of it, and see no systemd."""

    def __init__(self, root):
        self.root = root
        (root / "var/lib/dpkg/info").mkdir(parents=True)
        (root / "var/lib/dpkg/updates").mkdir()
        (root / "var/lib/dpkg/status").touch()

    def dpkg(self, *words):
        command = ["dpkg", f"--root={self.root}", "--force-script-chrootless", "--force-depends", *words]
        return run(command, self.root, surroundings(PATH=f"{os.environ['PATH']}:/usr/sbin:/sbin"))


def of_version(package, version, work):
    """The package as if it were of another version."""
    files = work / "files"
    subprocess.run(["dpkg-deb", "-R", package, files], check=True)
    control = files / "DEBIAN" / "control"
    control.write_text(control.read_text().replace(f"Version: {VERSION}", f"Version: {version}"))
    subprocess.run(["dpkg-deb", "-Zgzip", "-z1", "--build", files, work / "other.deb"], check=True)
    return work / "other.deb"


@pytest.fixture
def package(packages):
    [package] = packages.glob("rowhouse_*.deb")
    return package


@pytest.mark.skipif(pathlib.Path("/run/systemd/system").exists(), reason="its scripts would start the service here")
def test_it_is_installed_upgraded_removed_and_purged(package, tmp_path):
    machine = Machine(tmp_path / "root")
    settings = machine.root / "etc/rowhouse/rowhouse.env"
    older = of_version(package, "0.0.1", tmp_path)
    machine.dpkg("-i", older)
    program = machine.root / "usr/bin/rowhouse"
    assert VERSION in run([program, "version"], tmp_path, surroundings())
    assert settings.stat().st_mode & 0o777 == 0o640
    changed = settings.read_text() + "ROWHOUSE_LISTEN=127.0.0.1:10009\n"
    settings.write_text(changed)
    machine.dpkg("-i", package)
    assert settings.read_text() == changed, "an upgrade keeps settings"
    stored = machine.root / "var/lib/rowhouse/rowhouse.db"
    stored.parent.mkdir(parents=True)
    stored.touch()
    machine.dpkg("--remove", "rowhouse")
    assert (program.exists(), settings.read_text() == changed) == (False, True)
    machine.dpkg("--purge", "rowhouse")
    assert (settings.exists(), stored.exists()) == (False, True), "what is stored outlives the package"


def test_what_the_unit_and_the_settings_name_is_there(package, tmp_path):
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    unit = (tmp_path / "usr/lib/systemd/system/rowhouse.service").read_text()
    assert unit == UNIT.read_text()
    [program] = re.findall(r"^ExecStart=(\S+)", unit, re.MULTILINE)
    [settings] = re.findall(r"^EnvironmentFile=(\S+)", unit, re.MULTILINE)
    known = set(re.findall(r"^#?([A-Z_]+)=", (REPOSITORY / ".env.example").read_text(), re.MULTILINE))
    lines = (tmp_path / settings[1:]).read_text()
    named = set(re.findall(r"^#?([A-Z_]+)=", lines, re.MULTILINE))
    assert named and named <= known
    assert (tmp_path / program[1:]).stat().st_mode & 0o777 == 0o755
    for script in ["bash-completion/completions/rowhouse", "zsh/vendor-completions/_rowhouse"]:
        assert "rowhouse" in (tmp_path / "usr/share" / script).read_text()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_accepts_the_unit_and_finds_it_hardened(tmp_path):
    unit = tmp_path / "rowhouse.service"
    unit.write_text(UNIT.read_text().replace("ExecStart=/usr/bin/rowhouse serve", "ExecStart=/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    told = run(["systemd-analyze", "security", "--offline=true", unit], tmp_path, os.environ)
    [exposure] = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert float(exposure) <= MAX_EXPOSURE
