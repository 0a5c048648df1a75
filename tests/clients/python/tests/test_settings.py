"""The example of settings says what the server understands."""

import re
import subprocess

from rowhouse import REPOSITORY, Server, binary

EXAMPLE = REPOSITORY / ".env.example"
SETTING = re.compile(r"^#([A-Z_]+)=(.+)$", re.MULTILINE)


def test_the_example_names_every_setting():
    usage = subprocess.run([binary(), "--help"], capture_output=True, text=True, check=True).stdout
    understood = set(re.findall(r"\[env: ([A-Z_]+)", usage))
    assert {name for name, _ in SETTING.findall(EXAMPLE.read_text())} == understood


def test_the_example_can_be_used_as_it_is(tmp_path):
    settings = SETTING.sub(r"\1=\2", EXAMPLE.read_text())
    # Whatever listens on the usual port already must not matter.
    settings = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", settings)
    # A replica stands beside PostgreSQL only, and the example stores in SQLite.
    # Its files are nowhere.
    absent = re.compile(r"^ROWHOUSE_(SECONDARY_DATABASE_URL|TLS_CERT|TLS_KEY)=.+\n", re.MULTILINE)
    settings = absent.sub("", settings)
    # A secret stands in a file or in the setting, not in both.
    settings = re.sub(r"^[A-Z_]+_FILE=.+\n", "", settings, flags=re.MULTILINE)
    (tmp_path / ".env").write_text(settings)
    server = Server(tmp_path)
    server.start_by_dotenv()
    try:
        assert "AccountName=myaccount;AccountKey=<key>;" in server.connection_line
        assert "sqlite://rowhouse.db" in server.ready_line
        assert (tmp_path / "rowhouse.db").exists()
    finally:
        server.kill()
