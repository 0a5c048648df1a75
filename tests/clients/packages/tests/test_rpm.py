"""The package of rpm, installed below a folder that has a shell for its scripts and nothing else."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import VERSION, run, surroundings

pytestmark = [
    pytest.mark.skipif(not shutil.which("rpmbuild"), reason="rpm is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="rpm changes its root, as root alone can"),
]


class Machine:
    def __init__(self, root):
        self.root = root
        shell = shutil.which("dash") or shutil.which("sh")
        libraries = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", shell], capture_output=True, text=True).stdout)
        for file in {shell, *libraries}:
            copy = root / file[1:]
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(pathlib.Path(file).resolve(), copy)
        (root / "bin").mkdir(exist_ok=True)
        (root / "bin/sh").unlink(missing_ok=True)
        (root / "bin/sh").symlink_to(shell)
        self.rpm("--initdb")

    def rpm(self, *words):
        return run(["rpm", f"--root={self.root}", *words], self.root, surroundings())


def of_version(package, version, work):
    """The package's files, and its scripts, as if they were of another version."""
    machine = Machine(work / "unpacked")
    machine.rpm("--nodeps", "-i", package)
    names = machine.rpm("-ql", "rowhouse").split()
    files = [name for name in names if (machine.root / name[1:]).is_file()]
    spec = work / "older.spec"
    spec.write_text(
        f"Name: rowhouse\nVersion: {version}\nRelease: 1\nSummary: older\nLicense: MIT\nAutoReqProv: no\n"
        "%global debug_package %{nil}\n%global __os_install_post %{nil}\n%description\n%install\n"
        + "".join(f"install -D {machine.root}{name} %{{buildroot}}{name}\n" for name in files)
        + "%files\n%config(noreplace) %attr(640, root, root) /etc/rowhouse/rowhouse.env\n"
        + "".join(f"{name}\n" for name in files if not name.startswith("/etc"))
    )
    command = ["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {work}", "--define", "_binary_payload w1.gzdio"]
    run([*command, spec], work, surroundings())
    [older] = (work / "RPMS").rglob("*.rpm")
    return older


@pytest.fixture
def package(packages):
    [package] = packages.glob("rowhouse-*.rpm")
    return package


def test_it_is_installed_upgraded_and_removed(package, tmp_path):
    older = of_version(package, "0.0.1", tmp_path / "older")
    machine = Machine(tmp_path / "root")
    settings = machine.root / "etc/rowhouse/rowhouse.env"
    machine.rpm("--nodeps", "-i", older)
    program = machine.root / "usr/bin/rowhouse"
    assert VERSION in run([program, "version"], tmp_path, surroundings())
    assert settings.stat().st_mode & 0o777 == 0o640
    changed = settings.read_text() + "ROWHOUSE_LISTEN=127.0.0.1:10009\n"
    settings.write_text(changed)
    machine.rpm("--nodeps", "-U", package)
    assert settings.read_text() == changed, "an upgrade keeps settings"
    stored = machine.root / "var/lib/rowhouse/rowhouse.db"
    stored.parent.mkdir(parents=True)
    stored.touch()
    machine.rpm("-e", "rowhouse")
    saved = settings.with_name("rowhouse.env.rpmsave")
    assert (program.exists(), saved.read_text()) == (False, changed)
    assert stored.exists(), "what is stored outlives the package"


def test_its_files_are_as_it_says(package, tmp_path):
    machine = Machine(tmp_path / "root")
    machine.rpm("--nodeps", "-i", package)
    assert machine.rpm("-V", "--nodeps", "rowhouse") == ""
    listed = machine.rpm("-ql", "rowhouse").split()
    for name in [
        "/usr/bin/rowhouse",
        "/usr/lib/systemd/system/rowhouse.service",
        "/usr/share/man/man1/rowhouse-copy.1.gz",
        "/usr/share/zsh/site-functions/_rowhouse",
        "/usr/share/licenses/rowhouse/LICENSE-MIT",
    ]:
        assert name in listed
    assert set(machine.rpm("-qp", "--requires", package).split("\n")) >= {"/bin/sh"}
