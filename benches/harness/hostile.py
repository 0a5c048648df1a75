"""Rows about what a client that means harm makes the server hold."""

import base64
import hashlib
import hmac
import select
import socket
import ssl
import struct
import time
from email.utils import formatdate

from bed import ACCOUNT, KEY
from compare import Line
from extra import MEBI, Resident
from processes import ROOT, say

CERTIFICATES = ROOT / "tests" / "fixtures" / "tls"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS, INITIAL_WINDOW_SIZE = 1, 4, 4
END_STREAM_AND_HEADERS = 5
# Streams of a client without credentials, and pages of one that may read.
STREAMS, PAGES = 100_000, 500
# Seconds in which the server answers what it answers.
SETTLING = 3


def hostile(bed):
    """What one HTTP/2 connection makes the server hold whose client takes nothing."""
    store = bed.options.stores[0]
    bed.need("still", bed.servers[store])
    encryption = ("--tls-cert", CERTIFICATES / "first.pem", "--tls-key", CERTIFICATES / "first.key.pem")
    lines = []
    for what, count, path, is_signed, most in (
        (f"{STREAMS:,} streams of a stranger".replace(",", " "), STREAMS, "/Tables", False, 16),
        (f"{PAGES} pages of 1000", PAGES, "/still()", True, 160),
    ):
        say(f"hostile, {what}")
        server = bed.server_beside(store, *encryption)
        look = Resident(server.pid)
        try:
            before = look.now()
            sent = ask(server.address, block(path, is_signed), count)
            held = (look.most - before) / MEBI
        finally:
            look.end()
            server.end()
        found = f"{held:.0f} MiB, {sent} were sent"
        what = f"memory: {what} over HTTP/2, unread"
        lines.append(Line(store, what, 1, f"≤ {most} MiB", found, held <= most))
    return lines


def ask(address, head, count):
    """Asks on so many streams and takes no answer; how many could be sent."""
    host, port = address.rsplit(":", 1)
    context = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
    context.set_alpn_protocols(["h2"])
    sent = 0
    with context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host) as line:
        line.settimeout(SETTLING)
        window = struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)
        try:
            line.sendall(PREFACE + frame(SETTINGS, 0, 0, window))
            for stream in range(1, 2 * count, 2):
                line.sendall(frame(HEADERS, END_STREAM_AND_HEADERS, stream, head))
                sent += 1
                # Refusals are read, so that the server reads on.
                if stream % 512 == 511:
                    read_all(line)
            read_for(line, SETTLING)
        except OSError:
            # The server has had enough.
            time.sleep(SETTLING)
    return sent


def read_all(line):
    while line.pending() or select.select([line], [], [], 0)[0]:
        if not line.recv(65536):
            raise ConnectionError


def read_for(line, seconds):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        read_all(line)
        time.sleep(0.05)


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def block(path, is_signed):
    """The head of a request as HPACK has it, without its tables."""
    date = formatdate(usegmt=True)
    fields = [(":method", "GET"), (":scheme", "https"), (":authority", "127.0.0.1"),
              (":path", f"/{ACCOUNT}{path}"), ("x-ms-date", date), ("x-ms-version", "2019-02-02"),
              ("accept", "application/json;odata=fullmetadata")]
    if is_signed:
        text = f"{date}\n/{ACCOUNT}/{ACCOUNT}{path}"
        signature = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        fields.append(("authorization", f"SharedKeyLite {ACCOUNT}:{base64.b64encode(signature).decode()}"))
    return b"".join(b"\0" + text_of(name) + text_of(value) for name, value in fields)


def text_of(text):
    """A text of fewer than 127 bytes, without Huffman's code."""
    return bytes([len(text)]) + text.encode()
