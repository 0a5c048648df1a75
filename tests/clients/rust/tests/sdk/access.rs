//! Shared access signatures for the account; the SDK has none for tables.

use crate::server::{Server, on_server, refused};
use azure_data_tables::prelude::*;
use azure_storage::StorageCredentials;
use azure_storage::shared_access_signature::account_sas::{
    AccountSasPermissions, AccountSasResource, AccountSasResourceType, AccountSharedAccessSignature,
};
use azure_storage::shared_access_signature::{SasProtocol, SasToken};
use futures::TryStreamExt;
use serde_json::{Value, json};
use std::time::Duration;
use time::OffsetDateTime;

fn signature(server: &Server, permissions: AccountSasPermissions) -> AccountSharedAccessSignature {
    AccountSharedAccessSignature::new(
        server.account.clone(),
        server.key.clone().into(),
        AccountSasResource::Table,
        AccountSasResourceType::Object,
        OffsetDateTime::now_utc() + Duration::from_secs(3600),
        permissions,
    )
}

fn holder(server: &Server, signature: &AccountSharedAccessSignature) -> TableClient {
    let token = signature.token().unwrap();
    server.service(StorageCredentials::sas_token(token).unwrap()).table_client("People")
}

#[tokio::test]
async fn account_signatures() {
    on_server(|server| async move {
        server.with_key().table_client("People").create().await.unwrap();
        let body = json!({"PartitionKey": "p", "RowKey": "r"});
        let adder =
            holder(&server, &signature(&server, AccountSasPermissions { add: true, ..Default::default() }));
        adder.insert::<_, Value>(&body).unwrap().await.unwrap();
        let mismatch = "AuthorizationPermissionMismatch";
        refused(adder.query().into_stream::<Value>().try_next().await, 403, mismatch);
        let read = AccountSasPermissions { read: true, ..Default::default() };
        let reader = holder(&server, &signature(&server, read));
        let page = reader.query().into_stream::<Value>().try_next().await.unwrap().unwrap();
        assert_eq!(page.entities.len(), 1);
        refused(reader.partition_key_client("p").entity_client("r").delete().await, 403, mismatch);
        refused(reader.delete().await, 403, "AuthorizationResourceTypeMismatch");
        let ahead = OffsetDateTime::now_utc() + Duration::from_secs(600);
        let early = holder(&server, &signature(&server, read).start(ahead));
        refused(early.query().into_stream::<Value>().try_next().await, 403, "AuthenticationFailed");
        let https = holder(&server, &signature(&server, read).protocol(SasProtocol::Https));
        refused(https.query().into_stream::<Value>().try_next().await, 403, "AuthorizationProtocolMismatch");
    })
    .await;
}
