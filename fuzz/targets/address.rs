#![no_main]
//! Addresses and key predicates: a line with the Host header, a line with the
//! path. Printed again, a resource is the same resource.

use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::{ACCOUNT, accounts, assert_refused, fields};
use rowhouse_protocol::codec::uri::{entity_address, escape};
use rowhouse_protocol::error::Result;
use rowhouse_protocol::model::Key;
use rowhouse_protocol::request::{Head, Resource, Target, target};

fuzz_target!(|data: &[u8]| {
    let Some([host, path]) = fields(data) else { return };
    let (host, path) = (host.unwrap_or_default(), path.unwrap_or_default());
    match resolve(host, path) {
        Err(error) => assert_refused(&error),
        Ok(found) => check(host, &found),
    }
    check_key(host, path);
});

fn resolve(host: &str, path: &str) -> Result<Target> {
    let head = Head { path: path.into(), headers: vec![("host".into(), host.into())], ..Head::default() };
    target::resolve(&head, &accounts())
}

fn check(host: &str, found: &Target) {
    assert_eq!(found.account, ACCOUNT);
    let below = print(&found.resource);
    let prefix = match (found.path_style, found.secondary) {
        (true, true) => "/acct-secondary/",
        (true, false) => "/acct/",
        (false, _) => "/",
    };
    let again = resolve(host, &[prefix, &below].concat()).expect("our own address is one");
    assert_eq!(found.resource, again.resource);
    assert_eq!((found.secondary, &found.base), (again.secondary, &again.base));
    for inner in [format!("http://elsewhere/acct/{below}"), format!("/acct/{below}")] {
        if found.path_style {
            assert_eq!(target::resolve_inner(&inner, found).as_ref(), Ok(&found.resource));
        }
    }
}

fn print(resource: &Resource) -> String {
    let quoted = |text: &str| escape(&text.replace('\'', "''"));
    match resource {
        Resource::Service => String::new(),
        Resource::Tables => "Tables".into(),
        Resource::Table(name) => format!("Tables('{}')", quoted(name)),
        Resource::EntitySet(name) => format!("{}()", escape(name)),
        Resource::Entity { table, key } => entity_address(&escape(table), &key.partition, &key.row),
        Resource::Partition { table, partition } => {
            format!("{}(PartitionKey='{}')", escape(table), quoted(partition))
        }
        Resource::Batch => "$batch".into(),
        Resource::Metadata => "$metadata".into(),
        Resource::BelowTable { table, rest } => format!("{}/{}", escape(table), escape(rest)),
    }
}

/// Whatever a key is, its address leads back to it.
fn check_key(partition: &str, row: &str) {
    let key = Key::new(partition, row);
    let address = format!("/acct/{}", entity_address("table", &key.partition, &key.row));
    let found = resolve("h", &address).expect("our own address is one");
    assert_eq!(found.resource, Resource::Entity { table: "table".into(), key });
}
