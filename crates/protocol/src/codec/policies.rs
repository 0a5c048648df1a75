//! Stored access policies as XML and as stored JSON (protocol §3.5).

use serde::{Deserialize, Serialize};

use super::xml::{self, Element, push_element};
use crate::error::{Code, Result};
use crate::model::Ticks;
use crate::model::edm::is_within;

/// Maximum policies of a table.
const MAX_POLICIES: usize = 5;
/// Maximum length of an id in UTF-16 units.
const MAX_ID_UNITS: usize = 64;

/// A stored access policy, which supplies fields to a SAS that names the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub id: String,
    /// `start` and `expiry` are in canonical form, as printed by [`Ticks::to_canonical`], not in the client's spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission: Option<String>,
}

/// Parses a time in the form that SAS and policies use: a date, or a date and a time with a zone.
pub fn read_time(text: &str) -> Option<Ticks> {
    let has_zone = match text.split_once('T') {
        None => true,
        Some((_, time)) => time.ends_with('Z') || time.contains(['+', '-']),
    };
    let fraction = text.split_once('.').map_or(0, |(_, f)| f.bytes().take_while(u8::is_ascii_digit).count());
    (has_zone && fraction <= 7).then(|| Ticks::parse(text).ok()).flatten()
}

/// Returns whether a text is a subset of the table permissions, each once and in the order `raud`.
pub(crate) fn is_permission(text: &str) -> bool {
    let mut rest = "raud".chars();
    text.chars().all(|c| rest.any(|r| r == c))
}

/// Reads a SignedIdentifiers document. An empty body means no policies.
///
/// # Errors
/// [`Code::InvalidXmlDocument`] for an invalid document, too many entries or a duplicate id;
/// [`Code::InvalidXmlNodeValue`] for invalid times, permissions and ids.
pub fn read(body: &[u8]) -> Result<Vec<Policy>> {
    if body.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let root = xml::parse_strictly(body).map_err(|_| Code::InvalidXmlDocument)?;
    let is_entry = |e: &Element| e.name == "SignedIdentifier";
    if root.name != "SignedIdentifiers"
        || !root.children.iter().all(is_entry)
        || root.children.len() > MAX_POLICIES
    {
        return Err(Code::InvalidXmlDocument.into());
    }
    let policies = root.children.iter().map(parse_policy).collect::<Result<Vec<_>>>()?;
    let is_duplicate = |(at, policy): (usize, &Policy)| policies[..at].iter().any(|p| p.id == policy.id);
    if policies.iter().enumerate().any(is_duplicate) {
        return Err(Code::InvalidXmlDocument.into());
    }
    Ok(policies)
}

fn parse_policy(element: &Element) -> Result<Policy> {
    let id = element.child("Id").map(|id| id.text.clone()).ok_or(Code::InvalidXmlDocument)?;
    if id.is_empty() || !is_within(&id, MAX_ID_UNITS) {
        return Err(Code::InvalidXmlNodeValue.into());
    }
    let access = element.child("AccessPolicy");
    let value =
        |name: &str| access.and_then(|a| a.child(name)).map(Element::trimmed).filter(|text| !text.is_empty());
    let time = |name: &str| -> Result<Option<String>> {
        value(name)
            .map(|text| read_time(text).ok_or(Code::InvalidXmlNodeValue).map(Ticks::to_canonical))
            .transpose()
            .map_err(Into::into)
    };
    let permission = value("Permission").map(str::to_owned);
    if !permission.as_deref().is_none_or(is_permission) {
        return Err(Code::InvalidXmlNodeValue.into());
    }
    Ok(Policy { id, start: time("Start")?, expiry: time("Expiry")?, permission })
}

/// Prints the document as recorded from Azure: with a byte order mark, seven digits in the fraction of each time, and
/// no AccessPolicy element for a policy without fields.
pub fn write(policies: &[Policy]) -> String {
    let mut out = String::from(xml::DECLARATION);
    if policies.is_empty() {
        out.push_str("<SignedIdentifiers />");
        return out;
    }
    out.push_str("<SignedIdentifiers>");
    for policy in policies {
        out.push_str("<SignedIdentifier>");
        push_element(&mut out, "Id", &policy.id);
        let time = |text: &Option<String>| {
            text.as_deref().and_then(|t| Ticks::parse(t).ok()).map(Ticks::to_seven_digits)
        };
        let parts = [
            ("Start", time(&policy.start)),
            ("Expiry", time(&policy.expiry)),
            ("Permission", policy.permission.clone()),
        ];
        if parts.iter().any(|(_, value)| value.is_some()) {
            out.push_str("<AccessPolicy>");
            for (name, value) in parts {
                if let Some(value) = value {
                    push_element(&mut out, name, &value);
                }
            }
            out.push_str("</AccessPolicy>");
        }
        out.push_str("</SignedIdentifier>");
    }
    out.push_str("</SignedIdentifiers>");
    out
}

pub fn to_stored(policies: &[Policy]) -> Result<String> {
    serde_json::to_string(policies).map_err(|_| Code::InternalError.into())
}

/// Reads the stored JSON.
///
/// # Errors
/// [`Code::InternalError`] for text that [`to_stored`] did not print.
pub fn from_stored(text: &str) -> Result<Vec<Policy>> {
    serde_json::from_str(text).map_err(|_| Code::InternalError.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &str) -> Option<Code> {
        read(body.as_bytes()).err().map(|e| e.code)
    }

    #[test]
    fn policies_come_back_as_recorded() {
        let body = "<?xml version='1.0' encoding='utf-8'?><SignedIdentifiers>\
            <SignedIdentifier><Id>null</Id></SignedIdentifier>\
            <SignedIdentifier><Id>empty</Id><AccessPolicy /></SignedIdentifier>\
            <SignedIdentifier><Id>partial</Id><AccessPolicy><Permission>r</Permission></AccessPolicy></SignedIdentifier>\
            <SignedIdentifier><Id>full</Id><AccessPolicy><Start>2011-10-11</Start><Expiry>2021-06-08T02:10:09Z</Expiry>\
            <Permission>raud</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>";
        let policies = read(body.as_bytes()).unwrap();
        assert_eq!(from_stored(&to_stored(&policies).unwrap()).unwrap(), policies);
        assert_eq!(
            write(&policies),
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers>\
            <SignedIdentifier><Id>null</Id></SignedIdentifier><SignedIdentifier><Id>empty</Id></SignedIdentifier>\
            <SignedIdentifier><Id>partial</Id><AccessPolicy><Permission>r</Permission></AccessPolicy></SignedIdentifier>\
            <SignedIdentifier><Id>full</Id><AccessPolicy><Start>2011-10-11T00:00:00.0000000Z</Start>\
            <Expiry>2021-06-08T02:10:09.0000000Z</Expiry><Permission>raud</Permission></AccessPolicy></SignedIdentifier>\
            </SignedIdentifiers>"
        );
        assert_eq!(write(&[]), "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers />");
        assert_eq!(read(b"  ").unwrap(), vec![]);
        assert_eq!(read(b"<SignedIdentifiers/>").unwrap(), vec![]);
    }

    #[test]
    fn limits_and_values_are_checked() {
        let list = |inner: &str| format!("<SignedIdentifiers>{inner}</SignedIdentifiers>");
        let id = |id: &str| format!("<SignedIdentifier><Id>{id}</Id></SignedIdentifier>");
        let with = |p: &str| {
            list(&format!("<SignedIdentifier><Id>a</Id><AccessPolicy>{p}</AccessPolicy></SignedIdentifier>"))
        };
        let six: String = (0..6).map(|n| id(&n.to_string())).collect();
        let document = Some(Code::InvalidXmlDocument);
        let value = Some(Code::InvalidXmlNodeValue);
        for (body, expected) in [
            (list(&six), document),
            ("<Other/>".into(), document),
            ("nonsense".into(), document),
            (list("<Other/>"), document),
            (list("<SignedIdentifier/>"), document),
            (list(&(id("a") + &id("a"))), document),
            (list(&id("")), value),
            (list(&id(&"x".repeat(65))), value),
            (list(&id(&"x".repeat(64))), None),
            (with("<Permission>x</Permission>"), value),
            (with("<Permission>ar</Permission>"), value),
            (with("<Permission>rr</Permission>"), value),
            (with("<Start>yesterday</Start>"), value),
            (with("<Expiry>2020-01-01T00:00</Expiry>"), value),
            (with("<Expiry>2020-01-01T00:00:00.12345678Z</Expiry>"), value),
            (with("<Start></Start><Permission/>"), None),
            (with("<Start>2020-01-01T00:00+02:00</Start>"), None),
        ] {
            assert_eq!(code(&body), expected, "{body}");
        }
    }
}
