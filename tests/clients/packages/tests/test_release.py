"""What `scripts/package` refuses, and the sums of what it makes."""

import hashlib
import shutil
import subprocess

import pytest
from conftest import REPOSITORY, VERSION


@pytest.fixture
def checkout(tmp_path):
    """The script, with a changelog that has a section of the version."""
    for name in ["scripts", "packaging", "deploy"]:
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    for name in ["Cargo.toml", "CHANGELOG.md", "LICENSE", "LICENSE-APACHE", "LICENSE-MIT"]:
        shutil.copy(REPOSITORY / name, tmp_path)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(f"# Changelog\n\n## [{VERSION}]\n\n- First.\n")
    return tmp_path


def refusal(checkout, *words):
    command = [checkout / "scripts" / "package", "--native", *words, checkout / "dist"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and not list(checkout.glob("dist/*.tgz"))
    return done.stderr


def test_a_tag_fits_the_version_and_the_changelog(checkout):
    assert f"Cargo.toml {VERSION}" in refusal(checkout, "--tag", "v9.9.9")
    assert "Cargo.toml" in refusal(checkout, "--tag", VERSION)
    (checkout / "CHANGELOG.md").write_text("## [Unreleased]\n")
    assert f"no section [{VERSION}]" in refusal(checkout, "--tag", f"v{VERSION}")
    (checkout / "CHANGELOG.md").write_text(f"## [{VERSION}] - 2026-11-26\n")
    (checkout / "dist").mkdir()
    (checkout / "dist" / "other").touch()
    assert "is not empty" in refusal(checkout, "--tag", f"v{VERSION}")


def test_the_sums_are_those_of_all_packages(packages):
    lines = (packages / "SHA256SUMS").read_text().splitlines()
    listed = dict(reversed(line.split("  ")) for line in lines)
    there = {file.name for file in packages.iterdir() if file.name != "SHA256SUMS"}
    assert set(listed) == there and len(there) >= 3
    for name, digest in listed.items():
        assert hashlib.sha256((packages / name).read_bytes()).hexdigest() == digest
