//! JSON files: an array of entities, an object with a list of them, or one on each line.

use std::path::Path;

use super::members;
use super::object::Object;
use super::opening::MAX_ENTITY_TEXT;
use super::options::FileOptions;
use super::splitter::Splitter;
use super::staging::Staging;
use crate::contract::Rejected;
use crate::error::TransferResult;

/// Members that hold the list of entities.
const LISTS: [&[u8]; 3] = [br#""value""#, br#""items""#, br#""entities""#];

/// Reads the entities of a file.
///
/// # Errors
/// [`TransferError`](crate::TransferError) if it is not JSON.
pub(super) fn import(path: &Path, options: &FileOptions, staging: &mut Staging) -> TransferResult<()> {
    let mut file = Splitter::open(path)?;
    let mut documents = Documents { options, staging };
    while let Some(first) = file.peek()? {
        match first {
            b'[' => documents.list(&mut file)?,
            b'{' => documents.object(&mut file)?,
            _ => return Err(file.wrong("it is not JSON: an entity is expected")),
        }
    }
    Ok(())
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

    /// Stages an entity, or those of a list in the object; an object with neither is rejected.
    fn object(&mut self, file: &mut Splitter) -> TransferResult<()> {
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
            (false, true) => is_last(&read.json).map_err(|reason| file.wrong(&reason)),
            (false, false) if read.has_empty_list => {
                is_last(&read.json).map_err(|reason| file.wrong(&reason))
            }
            (_, false) => self.add(&read.json),
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
    let link = beside.iter().any(|(name, next)| name.ends_with("odata.nextLink") && next != "null");
    match (marker, link) {
        (false, false) => Ok(()),
        _ => Err("the list continues in another file: it has a nextMarker or odata.nextLink".into()),
    }
}
