"""Requests that the load generator does not make, for a program that is to be counted."""

import base64
import hashlib
import hmac
import http.client
from email.utils import formatdate

from processes import Failure

ACCOUNT = "devstoreaccount1"
KEY = base64.b64decode("Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==")
ATOM = "application/atom+xml"
ENTRY = """<?xml version="1.0" encoding="utf-8" standalone="yes"?>
<entry xmlns:d="http://schemas.microsoft.com/ado/2007/08/dataservices"
 xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata" xmlns="http://www.w3.org/2005/Atom">
<title /><updated>2026-01-01T00:00:00Z</updated><author><name /></author><id /><content type="application/xml">
<m:properties><d:PartitionKey>{partition}</d:PartitionKey><d:RowKey>{row}</d:RowKey>
<d:Count m:type="Edm.Int32">5</d:Count><d:Total m:type="Edm.Int64">5000000000</d:Total>
<d:Share m:type="Edm.Double">0.5</d:Share><d:Seen m:type="Edm.DateTime">2026-01-01T00:00:00Z</d:Seen>
<d:Text>{text}</d:Text></m:properties></content></entry>"""


class Client:
    """One connection, signed with SharedKeyLite."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection(server.address, timeout=60)

    def ask(self, method, path, expected, accept=ATOM, body=None):
        date = formatdate(usegmt=True)
        text = f"{date}\n/{ACCOUNT}/{ACCOUNT}{path.split('?')[0]}"
        signature = base64.b64encode(hmac.new(KEY, text.encode(), hashlib.sha256).digest()).decode()
        headers = {
            "x-ms-date": date, "x-ms-version": "2013-08-15", "MaxDataServiceVersion": "3.0;NetFx", "Accept": accept,
            "DataServiceVersion": "2.0;NetFx", "Authorization": f"SharedKeyLite {ACCOUNT}:{signature}",
        }
        if body:
            headers["Content-Type"] = ATOM
        self.connection.request(method, f"/{ACCOUNT}{path}", body, headers)
        answer = self.connection.getresponse()
        answer.read()
        if answer.status != expected:
            raise Failure(f"{method} {path}: {answer.status} instead of {expected}")


def work(server, table, rows=300, pages=30):
    """Atom, lists of tables and refusals; `table` has entities."""
    client = Client(server)
    for row in range(rows):
        entry = ENTRY.format(partition="atom", row=row, text="x" * 500)
        address = f"/{table}(PartitionKey='atom',RowKey='{row}')"
        client.ask("POST", f"/{table}", 201, body=entry)
        client.ask("POST", f"/{table}", 409, body=entry)
        client.ask("PUT", address, 204, body=entry)
        client.ask("GET", address, 200)
        client.ask("GET", f"/{table}(PartitionKey='atom',RowKey='none')", 404, accept="application/json")
        client.ask("GET", "/Tables", 200, accept="application/json")
    for _ in range(pages):
        client.ask("GET", f"/{table}", 200)
        client.ask("GET", f"/{table}?$filter=PartitionKey%20eq%20'atom'%20and%20Count%20gt%203", 200)
    client.connection.close()
