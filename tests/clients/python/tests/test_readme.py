"""The first program that a reader runs does what its comments say."""

import re
import subprocess
import sys

from rowhouse import REPOSITORY, Server

SNIPPET = re.search(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL).group(1)


def test_the_snippet_prints_what_it_says_also_after_a_restart(tmp_path, database_url):
    server = Server(tmp_path, database_url, account="devstoreaccount1")
    expected = re.findall(r"print\(.*\)  # (.*)", SNIPPET)
    assert len(expected) == 2
    try:
        for _ in range(2):
            server.start(accounts="")
            program = SNIPPET.replace("http://127.0.0.1:10002", server.origin)
            assert program != SNIPPET
            run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
            assert (run.returncode, run.stdout.splitlines()) == (0, expected), run.stderr
            server.kill()
    finally:
        server.kill()
