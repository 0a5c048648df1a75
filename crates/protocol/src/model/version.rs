//! ETags, and the conditions of requests on the stored version (protocol §9).

use super::ticks::{Ticks, TimeText};
use crate::error::{Code, Error, Result};

/// Returns the ETag of an entity that was last written at `modified`, as header text.
pub fn etag(modified: Ticks) -> String {
    let mut out = String::with_capacity(48);
    write_etag(&modified.to_text(), &mut out, "\"");
    out
}

/// Appends an ETag with `quote` in place of each double quote, so that the ETag can be embedded in JSON.
pub(crate) fn write_etag(modified: &TimeText, out: &mut String, quote: &str) {
    out.push_str("W/");
    out.push_str(quote);
    out.push_str("datetime'");
    modified.write(out, "%3A");
    out.push('\'');
    out.push_str(quote);
}

/// The condition of a request on the stored version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMatch {
    /// No condition: an upsert where the verb allows it.
    Absent,
    /// `*`: any version, but the entity must exist.
    Any,
    /// This version. `None` stands for a well-formed tag that Rowhouse cannot have issued. It matches no version.
    Version(Option<Ticks>),
}

impl IfMatch {
    /// Returns whether a stored version satisfies the condition.
    pub fn admits(self, stored: Ticks) -> bool {
        match self {
            IfMatch::Absent | IfMatch::Any => true,
            IfMatch::Version(required) => required == Some(stored),
        }
    }

    /// Returns the error of a write whose condition does not hold. As recorded for `W/"datetime''…''"`, the error for a
    /// tag that names no version has a different code.
    pub(crate) const fn refusal(self) -> Code {
        match self {
            IfMatch::Version(None) => Code::ConditionNotMet,
            _ => Code::UpdateConditionNotSatisfied,
        }
    }

    /// Parses the header's value: `*` or one weak tag.
    ///
    /// # Errors
    /// [`Code::InvalidEtag`] for strong tags, bare text, an empty value or several tags.
    pub fn parse(header: Option<&str>) -> Result<Self> {
        let Some(raw) = header else { return Ok(IfMatch::Absent) };
        let value = raw.trim();
        if value == "*" {
            return Ok(IfMatch::Any);
        }
        let tag = value
            .strip_prefix("W/")
            .or_else(|| value.strip_prefix("w/"))
            .and_then(|t| t.strip_prefix('"'))
            .and_then(|t| t.strip_suffix('"'))
            .filter(|t| !t.contains('"'))
            .ok_or_else(|| invalid_etag(raw))?;
        Ok(IfMatch::Version(parse_version(tag)))
    }
}

/// The versions of an entity that a client already has (`If-None-Match`), which are not sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IfNoneMatch {
    /// `*`: every version.
    Any,
    /// These versions. Tags that Rowhouse cannot have issued are left out, because they match nothing.
    Versions(Vec<Ticks>),
}

impl IfNoneMatch {
    /// Parses the header's value: `*` or a list of weak or strong tags, which are compared weakly (RFC 9110,
    /// 13.1.2).
    pub fn parse(list: &str) -> Self {
        if list.trim() == "*" {
            return Self::Any;
        }
        let tags = list.split(',').map(str::trim);
        let opaque = tags.filter_map(|tag| {
            let weak = tag.strip_prefix("W/").or_else(|| tag.strip_prefix("w/"));
            weak.unwrap_or(tag).strip_prefix('"')?.strip_suffix('"')
        });
        Self::Versions(opaque.filter_map(parse_version).collect())
    }

    /// Returns whether the client already has this version.
    pub fn has(&self, stored: Ticks) -> bool {
        match self {
            Self::Any => true,
            Self::Versions(known) => known.contains(&stored),
        }
    }
}

fn invalid_etag(value: &str) -> Error {
    Error::with_message(
        Code::InvalidEtag,
        format!(
            "The etag value '{value}' specified in one of the request headers is not valid. \
             Please make sure only one etag value is specified and is valid."
        ),
    )
}

/// Returns the version that a tag names. Colons may be unescaped, and a fraction may end with zeros. A tag with a time
/// in any other spelling names no version.
fn parse_version(tag: &str) -> Option<Ticks> {
    const WHOLE_SECONDS: usize = "YYYY-MM-DDThh:mm:ss".len();
    let time = tag.strip_prefix("datetime'")?.strip_suffix('\'')?;
    let time = time.replace("%3A", ":").replace("%3a", ":");
    let ticks = Ticks::parse(&time).ok()?;
    let digits = time.strip_suffix('Z').filter(|digits| digits.len() >= WHOLE_SECONDS)?;
    ticks.to_seven_digits().starts_with(digits).then_some(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Ticks {
        Ticks::parse(text).unwrap()
    }

    #[test]
    fn tags_look_as_recorded() {
        let tag = etag(at("2017-08-30T13:20:50.530149Z"));
        assert_eq!(tag, "W/\"datetime'2017-08-30T13%3A20%3A50.530149Z'\"");
        assert_eq!(
            IfMatch::parse(Some(&tag)).unwrap(),
            IfMatch::Version(Some(at("2017-08-30T13:20:50.530149Z")))
        );
    }

    #[test]
    fn conditions_read_as_the_table_in_the_protocol_says() {
        let now = at("2020-01-01T00:00:00Z");
        assert_eq!(IfMatch::parse(None), Ok(IfMatch::Absent));
        assert_eq!(IfMatch::parse(Some(" * ")), Ok(IfMatch::Any));
        for (tag, admits) in [
            ("W/\"datetime'2020-01-01T00%3A00%3A00Z'\"", true),
            ("w/\"datetime'2020-01-01T00:00:00.000Z'\"", true),
            ("W/\"datetime'2020-01-01T00%3A00%3A00.0000001Z'\"", false),
            ("W/\"datetime'2020-01-01T00%3A00%3A00.00000009Z'\"", false),
            ("W/\"datetime'2020-01-01T00%3A00%3A00'\"", false),
            ("W/\"datetime'2020-01-01T00%3A00%3A00+00%3A00'\"", false),
            ("W/\"datetime'2020-01-01T01%3A00%3A00+01%3A00'\"", false),
            ("W/\"datetime'2020-01-01T00%3A00Z'\"", false),
            ("W/\"datetime'2020-01-01Z'\"", false),
            ("W/\"anything\"", false),
            ("W/\"\"", false),
        ] {
            assert_eq!(IfMatch::parse(Some(tag)).unwrap().admits(now), admits, "{tag}");
        }
        for bad in ["", "\"strong\"", "text", "\"", "W/\"", "W/\"a\",W/\"b\"", "W/\"a\" W/\"b\"", "W/a", "**"]
        {
            let error = IfMatch::parse(Some(bad)).unwrap_err();
            assert_eq!(error.code, Code::InvalidEtag, "{bad}");
        }
    }

    #[test]
    fn a_reader_has_what_its_list_names() {
        let now = at("2020-01-01T00:00:00Z");
        let (ours, other) = (etag(now), etag(at("2020-01-01T00:00:01Z")));
        let strong = ours.trim_start_matches("W/");
        for (list, has) in [
            ("*", true),
            (" * ", true),
            (ours.as_str(), true),
            (strong, true),
            (&format!("{other}, {ours}"), true),
            (&format!("\"a,b\",,{ours}"), true),
            ("W/\"datetime'2020-01-01T00:00:00.000Z'\"", true),
            (other.as_str(), false),
            (&format!("*, {other}"), false),
            (strong.trim_matches('"'), false),
            ("W/\"anything\"", false),
            ("\"", false),
            ("", false),
        ] {
            assert_eq!(IfNoneMatch::parse(list).has(now), has, "{list}");
        }
    }
}
