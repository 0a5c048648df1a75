"""Rows about what clients that mean harm cost the server."""

import os
import socket
import time
from pathlib import Path

from compare import Line
from extra import MEBI, Resident
from processes import say

CLIENTS = 100
# What each of them sends: requests of 26 bytes, without credentials.
REQUEST = b"GET / HTTP/1.1\r\nHost:x\r\n\r\n"
SENT = 1024 * 1024
# Seconds in which the server answers what fits between it and its clients, at most, and seconds after that.
SETTLING, WATCHED = 25, 1
# Processor time in a second that is no more than what a server without clients takes.
IDLE = 0.03
MOST = 16


def hostile(bed):
    """What clients that pipeline and take no answers make the server hold and do."""
    store = bed.options.stores[0]
    say(f"hostile, {CLIENTS} clients that take no answers")
    # They must not be disconnected while they are watched.
    server = bed.server_beside(store, "--body-seconds", "29")
    look, held = Resident(server.pid), []
    try:
        before = look.now()
        host, port = server.address.rsplit(":", 1)
        for _ in range(CLIENTS):
            held.append(connection(host, int(port)))
        used = settled(server.pid, held)
        grown = (look.most - before) / MEBI
    finally:
        for client in held:
            client[0].close()
        look.end()
        server.end()
    what = f"{CLIENTS} clients that pipeline 1 MB each and take no answers"
    return [
        Line(store, f"memory: {what}", CLIENTS, f"≤ {MOST} MiB", f"{grown:.0f} MiB", grown <= MOST),
        Line(store, f"CPU: {what}, once what fits is answered", CLIENTS, f"≤ {IDLE * 1000:.0f} ms a second",
             f"{used * 1000:.0f} ms a second", used <= IDLE),
    ]


def connection(host, port):
    """A connection, and what it has not sent."""
    client = socket.create_connection((host, port))
    client.setblocking(False)
    return [client, memoryview(REQUEST * (SENT // len(REQUEST)))]


def settled(pid, held):
    """Sends on whatever the server takes; the processor time of the first quiet second, or of the last."""
    ends = time.monotonic() + SETTLING
    while True:
        before = processor_time(pid)
        until = time.monotonic() + WATCHED
        while time.monotonic() < until:
            for client in held:
                send(client)
            time.sleep(0.02)
        used = processor_time(pid) - before
        if used <= IDLE or time.monotonic() > ends:
            return used


def send(client):
    try:
        while client[1]:
            client[1] = client[1][client[0].send(client[1]):]
    except BlockingIOError:
        pass


def processor_time(pid):
    """Seconds of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
