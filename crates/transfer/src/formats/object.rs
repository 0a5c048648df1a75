//! A JSON object whose values are still text: nothing is altered, or refused, before its type is known.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::protocol::codec::json_object;

/// Maximum members of an object: more than any entity has, with annotations.
const MAX_MEMBERS: usize = 2048;

/// The members of an object in their order, with the JSON text of their values.
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Object<'a> {
    /// Splits an object.
    pub(super) fn of(json: &'a [u8]) -> Result<Self, String> {
        let json = std::str::from_utf8(json).map_err(|_| "it is not UTF-8")?;
        if !json.trim_start().starts_with('{') {
            return Err("it is not a JSON object".into());
        }
        let mut object = Self(Vec::new());
        let add = |name, raw| {
            if object.0.len() == MAX_MEMBERS {
                return Err(format!("it has more than {MAX_MEMBERS} members"));
            }
            object.0.push((name, raw));
            Ok(())
        };
        json_object::each_member(json, add).map_err(|error| error.to_string())?;
        let mut names = BTreeSet::new();
        match object.0.iter().find(|(name, _)| !names.insert(name.as_ref())) {
            Some((name, _)) => Err(format!("{name} stands twice")),
            None => Ok(object),
        }
    }

    /// Returns the text of a member.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(member, _)| member == name).map(|(_, raw)| *raw)
    }

    /// Returns the content of a member that is a string.
    pub(super) fn string(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(json_object::string)
    }

    /// Returns the members.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, raw)| (name.as_ref(), *raw))
    }

    /// Whether it has a key, and so is an entity.
    pub(super) fn has_key(&self) -> bool {
        self.get("PartitionKey").is_some() || self.get("RowKey").is_some()
    }
}
