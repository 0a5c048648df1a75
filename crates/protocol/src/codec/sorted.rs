//! Sorts members into the order of jsonb.
//!
//! PostgreSQL sorts members that arrive in a different order, which takes a twentieth of the cost of a change
//! set of inserts. Sorting here costs less, because the names are compared in place.

use super::json_object::{Member, each_stored_member};

/// Initial capacity for members.
const ROOM: usize = 32;

/// Appends the text of an object with shorter names first, and names of equal length ordered by their bytes.
/// Any other text, and an object that contains objects, is appended unchanged. Names with escapes may be
/// misplaced, which is allowed.
pub fn push_sorted(out: &mut Vec<u8>, text: &str) {
    match members(text) {
        Some(mut members) if !members.is_sorted_by_key(place) => {
            // The sort is stable, because the last of several members with one name counts.
            members.sort_by_key(place);
            push_members(out, &members);
        }
        _ => out.extend_from_slice(text.as_bytes()),
    }
}

fn members(text: &str) -> Option<Vec<Member<'_>>> {
    let mut members = Vec::with_capacity(ROOM);
    each_stored_member(text, |member| {
        members.push(member);
        Some(())
    })?;
    Some(members)
}

fn push_members(out: &mut Vec<u8>, members: &[Member<'_>]) {
    let mut before = b'{';
    for member in members {
        out.push(before);
        out.extend_from_slice(member.name.as_bytes());
        out.push(b':');
        out.extend_from_slice(member.value.as_bytes());
        before = b',';
    }
    out.push(b'}');
}

const fn place<'a>(member: &Member<'a>) -> (usize, &'a str) {
    (member.name.len(), member.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn sorted(text: &str) -> String {
        let mut out = Vec::new();
        push_sorted(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn shorter_names_come_first() {
        assert_eq!(sorted(r#"{"bb":1,"a":"x","ab":true}"#), r#"{"a":"x","ab":true,"bb":1}"#);
        assert_eq!(
            sorted(r#"{"N@odata.type":"Edm.Int64","N":"5","é":1,"ab":2}"#),
            r#"{"N":"5","ab":2,"é":1,"N@odata.type":"Edm.Int64"}"#
        );
    }

    #[test]
    fn the_last_of_members_with_one_name_stays_the_last() {
        assert_eq!(sorted(r#"{"b":1,"a":2,"b":3}"#), r#"{"a":2,"b":1,"b":3}"#);
    }

    #[test]
    fn what_is_sorted_or_no_flat_object_stays_as_it_is() {
        for text in ["{}", "{\"a\": 1, \"b\":2}", "{\"b\":{\"c\":1},\"a\":2}", "[2,1]", "", "{\"b\":1,\"a\""]
        {
            assert_eq!(sorted(text), text);
        }
    }

    proptest! {
        #[test]
        fn an_object_says_what_it_said(
            members in prop::collection::hash_map("[a-c\"é\\\\]{0,3}", any::<Option<String>>(), 0..8),
        ) {
            let text = serde_json::to_string(&members).unwrap();
            let sorted = sorted(&text);
            let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            prop_assert_eq!(value(&sorted), value(&text));
            let mut names: Vec<(usize, String)> = Vec::new();
            each_stored_member(&sorted, |m| {
                names.push((m.name.len(), m.name.to_owned()));
                Some(())
            }).unwrap();
            prop_assert!(names.is_sorted());
        }
    }
}
