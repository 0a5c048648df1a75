"""Writes a tar archive of the files of installed Debian packages and of what they
depend on: an image to begin with, where no registry of images is to be had.

rootfs.py ARCHIVE PACKAGE… [-without PACKAGE…] [-add FILE:PATH…]"""

import os
import re
import subprocess
import sys
import tarfile

SKIPPED = re.compile(r"/usr/share/(doc|info|locale|man)/|/usr/lib/postgresql/\d+/lib/(bitcode|pgxs)/")
# Links of Debian's base system that no package's list has in this form.
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
USERS = "root:x:0:0:root:/:/bin/sh\npostgres:x:999:999::/var/lib/postgresql:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
GROUPS = "root:x:0:\npostgres:x:999:\nnobody:x:65534:\nnogroup:x:65533:\n"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def installed():
    listed = output("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}\n").splitlines()
    return {line.split()[1] for line in listed if line.startswith("ii")}


def closure(packages, without):
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    flags = [f"--no-{kind}" for kind in kinds]
    listed = output("apt-cache", "depends", "--recurse", "--installed", *flags, *packages).splitlines()
    names = {line.split(":")[0] for line in listed if line and not line.startswith((" ", "<"))}
    return sorted((names & installed()) - set(without))


def files(packages):
    for path in output("dpkg-query", "-L", *packages).splitlines():
        if path.startswith("/") and not SKIPPED.match(path):
            folder, name = os.path.split(path)
            real = os.path.join(os.path.realpath(folder), name)
            if real[1:] not in LINKS and (os.path.islink(real) or os.path.isfile(real)):
                yield real


def folder(archive, path, mode=0o755):
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)


def write(target, packages, added):
    with tarfile.open(target, "w") as archive:
        for path, mode in (("etc", 0o755), ("tmp", 0o1777), ("run", 0o755), ("var/log/nginx", 0o755), ("var/lib/nginx", 0o755)):
            folder(archive, path, mode)
        for name, to in LINKS.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, to
            folder(archive, to)
            archive.addfile(entry)
        contents = {path: path for path in files(packages)} | {path: source for source, path in added}
        for path, source in sorted(contents.items()):
            archive.add(source, path.lstrip("/"))


def main():
    target, *words = sys.argv[1:]
    given = {"": [], "-without": [], "-add": []}
    kind = ""
    for word in words:
        if word in given:
            kind = word
        else:
            given[kind].append(word)
    added = [tuple(pair.split(":", 1)) for pair in given["-add"]]
    for name, text in (("passwd", USERS), ("group", GROUPS)):
        source = f"{target}.{name}"
        with open(source, "w") as file:
            file.write(text)
        added.append((source, f"/etc/{name}"))
    write(target, closure(given[""], given["-without"]), added)


main()
