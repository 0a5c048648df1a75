"""Who may come in."""

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError
from azure.data.tables import TableClient, TableServiceClient
from rowhouse import Server, code_of, new_key


def tables(server, credential):
    with TableServiceClient(server.endpoint, credential=credential, retry_total=0) as service:
        return [table.name for table in service.list_tables()]


def test_both_keys_open_the_door(server, service, new_name):
    name = new_name()
    service.create_table(name)
    for key in (0, 1):
        assert name in tables(server, server.credential(key))
    service.delete_table(name)


def test_a_wrong_key_does_not(server, service, new_name):
    with pytest.raises(ClientAuthenticationError) as caught:
        tables(server, AzureNamedKeyCredential(server.account, new_key()))
    assert (caught.value.status_code, code_of(caught.value)) == (403, "AuthenticationFailed")
    name = new_name()
    wrong = AzureNamedKeyCredential(server.account, new_key())
    with TableServiceClient(server.endpoint, credential=wrong, retry_total=0) as stranger:
        with pytest.raises(ClientAuthenticationError):
            stranger.create_table(name)
        with pytest.raises(ClientAuthenticationError):
            stranger.get_table_client(name).submit_transaction([("create", {"PartitionKey": "p", "RowKey": "r"})])
    assert name not in [table.name for table in service.list_tables()]


def test_the_key_of_another_account_does_not(server):
    with pytest.raises(ClientAuthenticationError):
        tables(server, AzureNamedKeyCredential("someoneelse", server.keys[0]))


def test_an_unknown_account_is_not_there(server):
    endpoint = f"{server.origin}/nobodyhere"
    credential = AzureNamedKeyCredential("nobodyhere", new_key())
    with TableServiceClient(endpoint, credential=credential, retry_total=0) as service:
        with pytest.raises(ResourceNotFoundError):
            list(service.list_tables())


def test_a_key_may_be_changed_in_place(server):
    credential = AzureNamedKeyCredential(server.account, new_key())
    with TableServiceClient(server.endpoint, credential=credential, retry_total=0) as service:
        with pytest.raises(ClientAuthenticationError):
            list(service.list_tables())
        credential.update(server.account, server.keys[1])
        list(service.list_tables())


@pytest.mark.parametrize("version", ["2019-02-02", "2019-07-07", "2020-12-06"])
def test_every_version_that_the_sdk_knows(server, version, new_name):
    name = new_name("Version")
    with TableServiceClient(
        server.endpoint, credential=server.credential(), api_version=version, retry_total=0
    ) as service:
        table = service.create_table(name)
        written = table.create_entity({"PartitionKey": "p", "RowKey": "r"})
        assert written["version"] == version
        service.delete_table(name)


def test_accounts_do_not_see_each_other(tmp_path, database_url):
    keys = [new_key(), new_key()]
    server = Server(tmp_path, database_url)
    names = [server.account + "a", server.account + "b"]
    server.start(";".join(f"{name}:{key}" for name, key in zip(names, keys, strict=True)))
    try:
        services = [
            TableServiceClient(f"{server.origin}/{name}", credential=AzureNamedKeyCredential(name, key), retry_total=0)
            for name, key in zip(names, keys, strict=True)
        ]
        with services[0], services[1]:
            services[0].create_table("Shared").create_entity({"PartitionKey": "p", "RowKey": "r", "Of": "a"})
            assert [table.name for table in services[1].list_tables()] == []
            services[1].create_table("shared").create_entity({"PartitionKey": "p", "RowKey": "r", "Of": "b"})
            for service, owner in zip(services, "ab", strict=True):
                assert service.get_table_client("Shared").get_entity("p", "r")["Of"] == owner
        with TableServiceClient(
            f"{server.origin}/{names[1]}", credential=AzureNamedKeyCredential(names[1], keys[0]), retry_total=0
        ) as thief:
            with pytest.raises(ClientAuthenticationError):
                list(thief.list_tables())
    finally:
        assert server.stop() == 0


def test_the_connection_string_that_the_server_prints_works(tmp_path):
    server = Server(tmp_path, account="devstoreaccount1").start(accounts="")
    try:
        connection_string = server.connection_line[server.connection_line.index("DefaultEndpointsProtocol=") :].strip()
        with TableServiceClient.from_connection_string(connection_string, retry_total=0) as service:
            table = service.create_table("FromString")
            table.create_entity({"PartitionKey": "p", "RowKey": "r"})
            assert len(list(table.list_entities())) == 1
        with TableClient.from_connection_string(connection_string, "FromString", retry_total=0) as table:
            assert table.get_entity("p", "r")["RowKey"] == "r"
    finally:
        assert server.stop() == 0
