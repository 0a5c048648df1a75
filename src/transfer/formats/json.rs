//! JSON files: an array of entities, an object with a list of them, or one on each line.

use std::path::Path;

use serde_json::Value;

use super::members;
use super::object::Object;
use super::opening::{self, MAX_ENTITY_TEXT};
use super::options::FileOptions;
use super::splitter::Splitter;
use super::staging::Staging;
use crate::transfer::contract::Rejected;
use crate::transfer::error::TransferResult;

/// Members that hold the list of entities.
const LISTS: [&[u8]; 3] = [br#""value""#, br#""items""#, br#""entities""#];

/// Reads the entities of a file.
///
/// # Errors
/// [`TransferError`](crate::transfer::TransferError) if it is not JSON.
pub(super) fn import(path: &Path, options: &FileOptions, staging: &mut Staging) -> TransferResult<()> {
    let mut about = AboutFile { before: staging.taken(), documents: 0, last: None };
    let mut file = Splitter::open(path)?;
    let mut documents = Documents { options, staging };
    while let Some(first) = file.peek()? {
        let no_entity = match first {
            b'[' => documents.list(&mut file).map(|()| None)?,
            b'{' => documents.object(&mut file)?,
            _ => return Err(file.wrong("it is not JSON: an entity is expected")),
        };
        about.next(no_entity, documents.staging)?;
    }
    about.check(staging).map_err(|reason| opening::named(path, &reason))
}

/// Documents that are no entities: some dumps begin and end with what they tell about the file.
struct AboutFile {
    documents: u64,
    last: Option<Vec<u8>>,
    /// Entities that were staged before the file.
    before: u64,
}

impl AboutFile {
    /// Takes the next document, if it is no entity. One between entities is rejected.
    fn next(&mut self, document: Option<Vec<u8>>, staging: &mut Staging) -> TransferResult<()> {
        if let Some(between) = self.last.take().filter(|_| self.documents > 1) {
            staging.add_no_entity(Rejected::of(&between, NO_KEYS.to_owned()))?;
        }
        self.documents += 1;
        self.last = document;
        Ok(())
    }

    /// Checks that there are entities, and as many as the end of the file states, if it does.
    fn check(&self, staging: &Staging) -> Result<(), String> {
        let Some(last) = &self.last else { return Ok(()) };
        let has = staging.taken() - self.before;
        if self.documents == 1 {
            return Err("it has no entities".into());
        }
        let stated = serde_json::from_slice(last).ok().and_then(|last| number(&last, "RecordCount"));
        match stated.filter(|stated| *stated != has) {
            Some(stated) => Err(format!("it states {stated} entities, and has {has}")),
            None => Ok(()),
        }
    }
}

/// Finds a number by its name, in an object or in a member of it.
fn number(value: &Value, name: &str) -> Option<u64> {
    let members = value.as_object()?;
    let own = members
        .get(name)
        .and_then(|found| found.as_u64().or_else(|| found.as_str().and_then(|text| text.parse().ok())));
    own.or_else(|| members.values().find_map(|member| number(member, name)))
}

const NO_KEYS: &str = "it has no PartitionKey and RowKey";

/// The documents of a file.
struct Documents<'a, 's> {
    options: &'a FileOptions,
    staging: &'s mut Staging,
}

/// What was read of a document that is an object.
#[derive(Default)]
struct ObjectText {
    json: Vec<u8>,
    has_key: bool,
    /// It has a list of entities, which are not in the text.
    has_list: bool,
    has_empty_list: bool,
}

impl Documents<'_, '_> {
    /// Stages the entities of a list.
    fn list(&mut self, file: &mut Splitter) -> TransferResult<()> {
        file.elements(|file| self.add(&file.value()?))
    }

    fn add(&mut self, json: &[u8]) -> TransferResult<()> {
        let reject = |reason| Rejected::of(json, reason);
        match Object::of(json) {
            Ok(object) if !object.has_key() => self.staging.add_no_entity(reject(NO_KEYS.to_owned())),
            Ok(object) => {
                let row = members::entity(&object, self.options, self.staging.notes());
                self.staging.add(row.map_err(reject))
            }
            Err(reason) if json.starts_with(b"{") => self.staging.add(Err(reject(reason))),
            Err(reason) => self.staging.add_no_entity(reject(reason)),
        }
    }

    /// Stages an entity, or those of a list in the object; returns the text of an object with neither.
    fn object(&mut self, file: &mut Splitter) -> TransferResult<Option<Vec<u8>>> {
        let mut read = ObjectText::default();
        file.members(|file, name| {
            read.has_key |= matches!(name, br#""PartitionKey""# | br#""RowKey""#);
            let may_be_list = !read.has_key && LISTS.contains(&name) && file.peek()? == Some(b'[');
            let value = if may_be_list { self.list_or_bytes(file, &mut read)? } else { Some(file.value()?) };
            value.map_or(Ok(()), |value| read.push(name, &value, file))
        })?;
        read.json.extend_from_slice(if read.json.is_empty() { b"{}" } else { b"}" });
        match (read.has_key, read.has_list) {
            (true, true) => Err(file.wrong("an entity has a list of objects")),
            (true, false) => self.add(&read.json).map(|()| None),
            (false, false) if !read.has_empty_list => Ok(Some(read.json)),
            (false, _) => is_last(&read.json).map(|()| None).map_err(|reason| file.wrong(&reason)),
        }
    }

    /// Stages a list of entities, or returns the text of one of something else.
    fn list_or_bytes(
        &mut self,
        file: &mut Splitter,
        read: &mut ObjectText,
    ) -> TransferResult<Option<Vec<u8>>> {
        let (mut text, mut is_list) = (vec![b'['], false);
        file.elements(|file| {
            is_list |= text.len() == 1 && file.peek()? == Some(b'{');
            if is_list {
                return self.add(&file.value()?);
            }
            if text.len() > 1 {
                text.push(b',');
            }
            text.append(&mut file.value()?);
            within_limit(&text, file)
        })?;
        read.has_list |= is_list;
        read.has_empty_list |= !is_list && text.len() == 1;
        text.push(b']');
        Ok((!is_list).then_some(text))
    }
}

impl ObjectText {
    fn push(&mut self, name: &[u8], value: &[u8], file: &Splitter) -> TransferResult<()> {
        let before: &[u8] = if self.json.is_empty() { b"{" } else { b"," };
        [before, name, b":", value].iter().for_each(|part| self.json.extend_from_slice(part));
        within_limit(&self.json, file)
    }
}

fn within_limit(text: &[u8], file: &Splitter) -> TransferResult<()> {
    let is_within = text.len() as u64 <= MAX_ENTITY_TEXT;
    is_within
        .then_some(())
        .ok_or_else(|| file.wrong(&format!("an entity of more than {MAX_ENTITY_TEXT} bytes")))
}

/// Checks that no other file continues a list, by what stands beside it.
fn is_last(json: &[u8]) -> Result<(), String> {
    let beside = Object::of(json)?;
    let marker = beside.get("nextMarker").is_some_and(|next| next.starts_with('{') && next.contains('"'));
    let link = beside.get("odata.nextLink").is_some_and(|next| next != "null");
    match (marker, link) {
        (false, false) => Ok(()),
        _ => Err("the list continues in another file: it has a nextMarker or odata.nextLink".into()),
    }
}
