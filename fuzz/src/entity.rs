//! An entity on its way from a body into the store and back to a client: nothing
//! is altered, and nothing that breaks a limit gets in.

use rowhouse_protocol::codec::atom::read as atom_read;
use rowhouse_protocol::codec::atom::write::{Atom, Style};
use rowhouse_protocol::codec::feed::{Feed, FeedForm};
use rowhouse_protocol::codec::json::read::{self as json_read, EntityBody};
use rowhouse_protocol::codec::json::write::{self as json_write, Metadata, MetadataContext};
use rowhouse_protocol::codec::stored::{self, PropertyFinder};
use rowhouse_protocol::codec::validated::ValidatedProperties;
use rowhouse_protocol::error::Result;
use rowhouse_protocol::model::edm::utf16_len;
use rowhouse_protocol::model::entity::{Properties, StoredProperties};
use rowhouse_protocol::model::names::{
    MAX_BINARY, MAX_ENTITY, MAX_KEY, MAX_PROPERTIES, MAX_PROPERTY_NAME, MAX_STRING, ordinal,
};
use rowhouse_protocol::model::{EdmValue, Entity, IfMatch, Key, Stored};
use rowhouse_protocol::plan::write::{EntityWrite, ValidatedEntity, plan_write};
use rowhouse_protocol::plan::{Change, Write, WriteKind, decide};

use crate::{assert_refused, assert_same, now};

/// Checks what a body is read as: an entity, and the name of a table.
pub fn check_reading<T>(entity: Result<EntityBody<'_>>, name: Result<T>) {
    match entity {
        Ok(body) => check(&body),
        Err(error) => assert_refused(&error),
    }
    if let Err(error) = name {
        assert_refused(&error);
    }
}

/// Inserts the entity, and updates another with it.
fn check(body: &EntityBody<'_>) {
    for (kind, key) in
        [(WriteKind::Insert, None), (WriteKind::Merge(IfMatch::Absent), Some(Key::new("p", "r")))]
    {
        let keys = key.as_ref().map_or_else(|| body.counted_keys(), Key::counted_size);
        let EntityBody { partition, row, properties, deferred_error, has_key_of_other_type: _, timestamp: _ } =
            body.clone();
        let sent = ValidatedEntity {
            partition,
            row,
            properties: ValidatedProperties::new(keys, &properties, deferred_error),
        };
        let properties = body.clone().into_properties();
        match plan_write(EntityWrite { table: "table", kind, key, body: Some(sent) }) {
            Err(error) => assert_refused(&error),
            Ok((_, write)) => check_write(&write, &properties),
        }
    }
}

fn check_write(write: &Write, sent: &Properties) {
    check_limits(&write.key, sent);
    let (properties, modified) = match decide(write, None, now()) {
        Err(error) => return assert_refused(&error),
        Ok(Change::Delete) => panic!("a write of an entity deletes it"),
        Ok(Change::Put { properties, modified }) => (properties.into_owned(), modified),
    };
    let entity = Entity { key: write.key.clone(), properties: sent.clone() };
    assert!(entity.counted_size() <= MAX_ENTITY);
    check_stored(sent, &properties);
    let stored = Stored { key: write.key.clone(), modified, properties };
    check_json(sent, &stored);
    check_atom(sent, &stored);
    check_merge(write, &stored);
}

fn check_limits(key: &Key, properties: &Properties) {
    for part in [&key.partition, &key.row] {
        assert!(utf16_len(part) <= MAX_KEY, "a key is too long");
        assert!(!part.contains(['/', '\\', '#', '?']) && !part.contains(char::is_control), "{part:?}");
    }
    assert!(properties.len() <= MAX_PROPERTIES, "there are too many properties");
    for (name, value) in properties {
        assert!(!name.is_empty() && utf16_len(name) <= MAX_PROPERTY_NAME, "{name:?}");
        assert!(!matches!(name.as_str(), "PartitionKey" | "RowKey" | "Timestamp"), "{name:?}");
        match value {
            EdmValue::String(text) => assert!(utf16_len(text) <= MAX_STRING, "{name} is too long"),
            EdmValue::Binary(bytes) => assert!(bytes.len() <= MAX_BINARY, "{name} is too long"),
            _ => {}
        }
    }
}

/// The stored form reads back whole and one by one, and jsonb can hold it.
fn check_stored(sent: &Properties, stored: &StoredProperties) {
    let decoded = stored::decode(stored).expect("it is in stored form");
    assert_same(sent, &decoded, "stored and sent differ");
    for (name, value) in sent {
        let picked = stored::pick(stored.as_str().as_bytes(), &[PropertyFinder::new(name)])
            .expect("it is in stored form");
        assert_same(&vec![(name, value)], &picked, "picked and sent differ");
    }
    let json: serde_json::Value = serde_json::from_str(stored.as_str()).expect("it is JSON");
    for value in json.as_object().expect("it is an object").values() {
        assert!(!value.as_str().is_some_and(|text| text.contains('\0')), "jsonb cannot hold {value}");
    }
}

fn context(metadata: Metadata) -> MetadataContext<'static> {
    MetadataContext { metadata, base: "http://h/acct", account: "acct", table: "table", select: None }
}

/// Clients read what was sent; without metadata, types are lost but not names.
fn check_json(sent: &Properties, stored: &Stored) {
    for metadata in [Metadata::None, Metadata::Minimal, Metadata::Full] {
        let document = json_write::entity_document(&context(metadata), stored).expect("it is in stored form");
        check_page(metadata, stored, &document);
        let read = json_read::entity(document.as_bytes()).expect("our own JSON is read");
        check_key(&read, &stored.key);
        if metadata == Metadata::None {
            let names = |properties: &Properties| -> Vec<String> {
                properties.iter().map(|(name, _)| name.clone()).collect()
            };
            assert_eq!(names(sent), names(&read.into_properties()));
        } else {
            assert_same(sent, &read.into_properties(), "JSON and sent differ");
        }
    }
}

/// On a page, where it is printed like the one before, an entity is what it is alone.
fn check_page(metadata: Metadata, stored: &Stored, document: &str) {
    let alone = document.replacen("\"odata.metadata\":\"http://h/acct/$metadata#table/@Element\",", "", 1);
    let mut feed = Feed::open(FeedForm::Json(context(metadata)), 2);
    (0..2).for_each(|_| feed.push(stored.into()).expect("it is in stored form"));
    let page = feed.close();
    assert!(page.ends_with(&format!("\"value\":[{alone},{alone}]}}")), "{page} of {alone}");
}

/// XML has no way to write U+0000.
fn check_atom(sent: &Properties, stored: &Stored) {
    if sent.iter().any(|(_, value)| matches!(value, EdmValue::String(text) if text.contains('\0'))) {
        return;
    }
    for style in [Style::Classic, Style::Modern] {
        let atom = Atom { context: context(Metadata::None), style, now: now() };
        let document = atom.entity_document(stored).expect("it is in stored form");
        let read = atom_read::entity(document.as_bytes()).expect("our own Atom is read");
        check_key(&read, &stored.key);
        assert_same(sent, &read.into_properties(), "Atom and sent differ");
    }
}

fn check_key(read: &EntityBody<'_>, key: &Key) {
    assert_eq!(read.deferred_error, None);
    assert_eq!(read.partition.as_ref(), Some(&key.partition));
    assert_eq!(read.row.as_ref(), Some(&key.row));
}

/// Merged into itself an entity keeps its properties, in ordinal order, under a new version.
fn check_merge(write: &Write, stored: &Stored) {
    let again = Write { kind: WriteKind::Merge(IfMatch::Version(Some(stored.modified))), ..write.clone() };
    match decide(&again, Some(stored), now()) {
        Ok(Change::Put { properties, modified }) => {
            let decoded = |properties| stored::decode(properties).expect("it is in stored form");
            let mut before = decoded(&stored.properties);
            before.sort_by(|(a, _), (b, _)| ordinal(a, b));
            assert_same(&before, &decoded(&properties), "merged and stored differ");
            assert!(modified > stored.modified, "a version is used twice");
        }
        other => panic!("merged into itself: {other:?}"),
    }
}
