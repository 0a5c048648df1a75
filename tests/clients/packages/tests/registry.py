"""Registries of npm and PyPI on this machine, which have the packages of one folder."""

import base64
import hashlib
import html
import http.server
import json
import pathlib
import re
import tarfile
import threading
import urllib.parse


class Registry:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                found = registry.answer(urllib.parse.unquote(urllib.parse.urlsplit(self.path).path))
                kind, body = found or ("text/plain", b"")
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        self.npm, self.pypi = f"{self.origin}/npm/", f"{self.origin}/simple"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, path):
        """The type and the bytes of what is there."""
        _, kind, name = path.split("/", 2) if path.count("/") >= 2 else ("", "", "")
        if kind == "files" and (self.folder / pathlib.Path(name).name).exists():
            return "application/octet-stream", (self.folder / pathlib.Path(name).name).read_bytes()
        if kind == "npm":
            return self.of_npm(name)
        if kind == "simple":
            return self.of_pypi(name.strip("/"))
        return None

    def of_npm(self, name):
        versions = {}
        for file in self.folder.glob("*.tgz"):
            with tarfile.open(file) as tar:
                manifest = json.load(tar.extractfile("package/package.json"))
            if manifest["name"] == name:
                integrity = base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
                dist = {"tarball": f"{self.origin}/files/{file.name}", "integrity": f"sha512-{integrity}"}
                versions[manifest["version"]] = {**manifest, "dist": dist}
        document = {"name": name, "dist-tags": {"latest": max(versions, default="")}, "versions": versions}
        return ("application/json", json.dumps(document).encode()) if versions else None

    def of_pypi(self, project):
        files = [file for file in self.folder.glob("*.whl") if project_of(file.name) == project]
        links = [(f"{file.name}#sha256={hashlib.sha256(file.read_bytes()).hexdigest()}", file.name) for file in files]
        page = "".join(f'<a href="/files/{html.escape(link)}">{name}</a>\n' for link, name in links)
        return ("text/html", f"<!DOCTYPE html>\n{page}".encode()) if files else None


def project_of(file_name):
    return re.sub(r"[-_.]+", "-", file_name.split("-")[0]).lower()
