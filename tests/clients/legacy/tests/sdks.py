"""The two retired SDKs under one face, as far as they have the same methods."""

import re
from datetime import timezone

from azure.common import AzureHttpError
from azure.cosmosdb.table import TableBatch
from azure.cosmosdb.table import TableService as CosmosService
from azure.cosmosdb.table.common import models as cosmos_models
from azure.cosmosdb.table.common.retry import no_retry
from azure.storage import models as storage_models
from azure.storage.sharedaccesssignature import SharedAccessPolicy
from azure.storage.table import TableService as StorageService

CODE = re.compile(r'<(?:m:)?code>(\w+)<|"code":"(\w+)"')


def refusal(call, *arguments, **options):
    """Calls what must fail; returns the status and the service's code."""
    try:
        result = call(*arguments, **options)
    except AzureHttpError as error:
        found = CODE.search(str(error))
        # What refuses a batch has the code and no body.
        return error.status_code, (found.group(1) or found.group(2)) if found else error.code
    raise AssertionError(f"it was not refused, but answered {result!r}")


def plain(entity):
    """The entity as a dict of what was stored. Typed values are pairs, and dates are in UTC."""
    members = entity if isinstance(entity, dict) else vars(entity)
    return {name: plain_value(value) for name, value in members.items() if name not in ("Timestamp", "etag")}


def plain_value(value):
    if hasattr(value, "tzinfo"):
        return value.astimezone(timezone.utc)
    return (value.type, value.value) if hasattr(value, "type") else value


class Sdk:
    """What both have. `self.raw` is the SDK's own client; anything else is asked of it."""

    def __getattr__(self, name):
        return getattr(self.raw, name)

    def __init__(self, server, key=0, sas=None):
        self.server = server
        secret = {"sas_token": sas} if sas else {"account_key": server.keys[key]}
        self.raw = self.connect(server.account, server.origin.rsplit(":", 1)[1], secret)

    def walk(self, table, **options):
        """Every page of a query."""
        token = None
        while True:
            page, token = self.page(table, token=token, **options)
            yield page
            if token is None:
                return

    def rows(self, table, **options):
        return [plain(entity)["RowKey"] for page in self.walk(table, **options) for entity in page]


class AzureStorage(Sdk):
    """azure-storage 0.20.3: Atom, and `x-ms-version` 2014-02-14."""

    name = "azure-storage"

    @staticmethod
    def connect(account, port, secret):
        return StorageService(account, protocol="http", host_base=f".table.localhost:{port}", **secret)

    def tables(self, top=None, token=None):
        page = self.raw.query_tables(top=top, next_table_name=token)
        return [table.name for table in page], self._token(page, "NextTableName")

    def page(self, table, top=None, token=None, **options):
        partition, row = token or (None, None)
        page = self.raw.query_entities(
            table, top=top, next_partition_key=partition, next_row_key=row, **options
        )
        return list(page), self._token(page, "NextPartitionKey", "NextRowKey")

    @staticmethod
    def _token(page, *names):
        # The SDK leaves the attribute out on the last page.
        found = getattr(page, "x_ms_continuation", None)
        if found is None:
            return None
        return found[names[0]] if len(names) == 1 else tuple(found[name] for name in names)

    def insert(self, table, entity):
        return self.raw.insert_entity(table, entity).etag

    def _write(self, method, table, entity, **options):
        answer = method(table, entity["PartitionKey"], entity["RowKey"], entity, **options)
        # Nothing is known before a batch is committed.
        return answer and answer["etag"]

    def update(self, table, entity, **options):
        return self._write(self.raw.update_entity, table, entity, **options)

    def merge(self, table, entity, **options):
        return self._write(self.raw.merge_entity, table, entity, **options)

    def insert_or_replace(self, table, entity):
        return self._write(self.raw.insert_or_replace_entity, table, entity)

    def insert_or_merge(self, table, entity):
        return self._write(self.raw.insert_or_merge_entity, table, entity)

    def batch(self, table, operations):
        self.raw.begin_batch()
        for name, entity in operations:
            if name == "delete":
                self.raw.delete_entity(table, entity["PartitionKey"], entity["RowKey"])
            elif name == "insert":
                self.raw.insert_entity(table, entity)
            else:
                getattr(self, name)(table, entity)
        self.raw.commit_batch()

    def set_acl(self, table, policies):
        identifiers = storage_models.SignedIdentifiers()
        for name, (permission, start, expiry) in policies.items():
            identifier = storage_models.SignedIdentifier()
            identifier.id = name
            identifier.access_policy = storage_models.AccessPolicy(start, expiry, permission)
            identifiers.signed_identifiers.append(identifier)
        self.raw.set_table_acl(table, identifiers)

    def acl(self, table):
        return {i.id: (i.access_policy.permission, i.access_policy.expiry[:10]) for i in self.raw.get_table_acl(table)}

    def signed(self, table, permission=None, expiry="2099-01-01", policy=None, **ranges):
        access = storage_models.AccessPolicy("", expiry, permission, **ranges) if permission else None
        token = self.raw.generate_shared_access_signature(table, SharedAccessPolicy(access, policy))
        return type(self)(self.server, sas=token)

    def set_logging(self, days):
        properties = storage_models.StorageServiceProperties()
        properties.logging.read = True
        properties.logging.retention_policy.enabled = True
        properties.logging.retention_policy.days = days
        self.raw.set_table_service_properties(properties)


class AzureCosmosdbTable(Sdk):
    """azure-cosmosdb-table 1.0.6: JSON, and `x-ms-version` 2017-04-17."""

    name = "azure-cosmosdb-table"

    @staticmethod
    def connect(account, port, secret):
        service = CosmosService(account, protocol="http", endpoint_suffix=f"localhost:{port}", **secret)
        # No failure is hidden.
        service.retry = no_retry
        return service

    def tables(self, top=None, token=None):
        page = self.raw.list_tables(num_results=top, marker=token)
        return [table.name for table in page], page.next_marker

    def page(self, table, top=None, token=None, **options):
        # A walk by the SDK goes on until it has as many as it is told to get.
        page = self.raw._query_entities(table, max_results=top, marker=token, **options)
        return list(page), page.next_marker or None

    def insert(self, table, entity):
        return self.raw.insert_entity(table, entity)

    def update(self, table, entity, **options):
        return self.raw.update_entity(table, entity, **options)

    def merge(self, table, entity, **options):
        return self.raw.merge_entity(table, entity, **options)

    def insert_or_replace(self, table, entity):
        return self.raw.insert_or_replace_entity(table, entity)

    def insert_or_merge(self, table, entity):
        return self.raw.insert_or_merge_entity(table, entity)

    def batch(self, table, operations):
        batch = TableBatch()
        for name, entity in operations:
            if name == "delete":
                batch.delete_entity(entity["PartitionKey"], entity["RowKey"])
            else:
                getattr(batch, f"{name}_entity")(entity)
        self.raw.commit_batch(table, batch)

    def set_acl(self, table, policies):
        self.raw.set_table_acl(
            table,
            {
                name: cosmos_models.AccessPolicy(permission, expiry, start)
                for name, (permission, start, expiry) in policies.items()
            },
        )

    def acl(self, table):
        found = self.raw.get_table_acl(table)
        return {name: (policy.permission, f"{policy.expiry:%Y-%m-%d}") for name, policy in found.items()}

    def signed(self, table, permission=None, expiry="2099-01-01", policy=None, **ranges):
        token = self.raw.generate_table_shared_access_signature(
            table, permission=permission, expiry=expiry if permission else None, id=policy, **ranges
        )
        return type(self)(self.server, sas=token)

    def set_logging(self, days):
        retention = cosmos_models.RetentionPolicy(True, days)
        self.raw.set_table_service_properties(logging=cosmos_models.Logging(read=True, retention_policy=retention))


SDKS = [AzureStorage, AzureCosmosdbTable]
