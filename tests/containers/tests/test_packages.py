"""The packages for servers, on a machine whose first process is systemd."""

import os
import pathlib
import time

import pytest
from docker_client import client, docker, eventually, image_exists, use

IMAGE = "rowhouse-test-machine"
# As its first process, systemd needs cgroups and mounts; it hides processes from whoever may not trace them.
OPTIONS = [
    *["--cap-add", "SYS_ADMIN", "--cap-add", "SYS_PTRACE", "--cgroupns", "private"],
    *["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"],
    *["--tmpfs", "/run", "--tmpfs", "/run/lock", "-e", "container=docker"],
]
BOOT_SECONDS = 60
SETTINGS = "/etc/rowhouse/rowhouse.env"
DATA = "/var/lib/private/rowhouse/rowhouse.db"

pytestmark = pytest.mark.skipif(not image_exists(IMAGE), reason="systemd or rpm is not installed")


class Machine:
    """A container with a service, and the package of one kind beside it."""

    def __init__(self, run, pattern):
        self.container = run(IMAGE, options=OPTIONS)
        [package] = pathlib.Path(os.environ["ROWHOUSE_PACKAGES"]).glob(pattern)
        self.package = f"/{package.name}"
        docker("cp", str(package), f"{self.container.id}:{self.package}")
        if not self.has_systemd():
            pytest.skip("systemd does not run in containers of this engine")

    def run(self, *command):
        return docker("exec", self.container.id, *command)

    def state(self, *command):
        """What a command prints, whatever its exit status."""
        return docker("exec", self.container.id, *command, check=False).stdout.strip()

    def has_systemd(self):
        until = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < until:
            if self.state("systemctl", "is-system-running") in ("running", "degraded"):
                return True
            time.sleep(0.2)
        return False

    def has(self, path):
        return docker("exec", self.container.id, "test", "-e", path, check=False).returncode == 0

    def service(self, name):
        return self.run("systemctl", "show", "--value", "--property", name, "rowhouse")

    def people(self):
        return client(self.container.address()).get_table_client("People")

    def answers(self):
        return docker("exec", self.container.id, "rowhouse", "healthcheck", check=False).returncode == 0

    def runs_again_as_another_process(self, former):
        eventually("another process runs", lambda: self.service("MainPID") not in ("0", former))
        eventually("it answers", self.answers)


class Debian(Machine):
    def __init__(self, run):
        super().__init__(run, "rowhouse_*.deb")
        self.run("mkdir", "-p", "/var/lib/dpkg/info", "/var/lib/dpkg/updates")
        self.run("touch", "/var/lib/dpkg/status")

    def install(self):
        self.run("dpkg", "--force-depends", "--install", self.package)

    upgrade = install

    def remove(self):
        self.run("dpkg", "--remove", "rowhouse")
        assert self.has(SETTINGS)
        self.install()
        eventually("it answers when it is installed again", self.answers)
        self.run("dpkg", "--purge", "rowhouse")


class Rpm(Machine):
    def __init__(self, run):
        super().__init__(run, "rowhouse-*.rpm")
        self.run("rpm", "--initdb")

    def install(self):
        self.run("rpm", "--nodeps", "--install", self.package)
        # Its distributions start nothing by themselves.
        self.run("systemctl", "enable", "--now", "rowhouse")

    def upgrade(self):
        self.run("rpm", "--nodeps", "--upgrade", "--replacepkgs", self.package)

    def remove(self):
        self.run("rpm", "--erase", "rowhouse")


@pytest.mark.parametrize("kind", [Debian, Rpm])
def test_a_service_is_installed_killed_upgraded_and_removed(run, kind):
    machine = kind(run)
    machine.install()
    eventually("it answers", machine.answers)
    changed = "ROWHOUSE_LISTEN=0.0.0.0:10002\nROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT=true\n"
    machine.run("sh", "-c", f"printf '{changed}' >>{SETTINGS}")
    machine.run("systemctl", "restart", "rowhouse")
    eventually("it answers", machine.answers)
    row = use(client(machine.container.address()))
    process = machine.service("MainPID")
    assert machine.run("stat", "-c", "%u", f"/proc/{process}") != "0", "it runs as a user of its own"
    machine.run("sh", "-c", f"kill -KILL {process}")
    machine.runs_again_as_another_process(process)
    assert machine.people().get_entity("p", row)["Age"] == 33
    process = machine.service("MainPID")
    machine.upgrade()
    machine.runs_again_as_another_process(process)
    assert machine.people().get_entity("p", row)["Age"] == 33, "an upgrade keeps the settings and the data"
    machine.remove()
    assert machine.state("systemctl", "is-active", "rowhouse") == "inactive"
    assert (machine.has("/usr/bin/rowhouse"), machine.has(SETTINGS)) == (False, False)
    assert machine.has(DATA), "what is stored outlives the package"


def test_a_service_that_cannot_start_is_installed_nevertheless(run):
    machine = Debian(run)
    machine.run("mkdir", "-p", "/etc/systemd/system/rowhouse.service.d")
    nowhere = "[Service]\\nEnvironment=ROWHOUSE_LISTEN=192.0.2.1:10002\\n"
    machine.run("sh", "-c", f"printf '{nowhere}' >/etc/systemd/system/rowhouse.service.d/nowhere.conf")
    machine.install()
    assert machine.run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}", "rowhouse").strip() == "ii"
    eventually("it is tried again", lambda: int(machine.service("NRestarts")) > 0)


def test_a_masked_service_is_installed_and_stays_masked(run):
    machine = Debian(run)
    machine.run("systemctl", "mask", "rowhouse")
    machine.install()
    assert machine.run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}", "rowhouse").strip() == "ii"
    assert machine.state("systemctl", "is-active", "rowhouse") == "inactive"
    machine.run("systemctl", "unmask", "rowhouse")
    machine.run("systemctl", "start", "rowhouse")
    eventually("it answers", machine.answers)
