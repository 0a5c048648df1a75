//! Which form the answer takes (protocol §4.1).

use super::head::{ApiVersion, Head, JSON, JSON_ONLY};
use super::options::Options;
use crate::codec::json::write::Metadata;
use crate::error::Code;

/// The negotiated form of bodies. A refusal is kept until a body is needed:
/// operations without one never look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format(Result<Metadata, Code>);

impl Format {
    /// Reads `$format`, else `Accept`, under the rules of the request's version.
    pub fn negotiate(head: &Head, options: &Options) -> Self {
        let version = match head.version() {
            Ok(version) => version,
            Err(error) => return Self(Err(error.code)),
        };
        let wanted = options.get("$format").filter(|f| !f.is_empty() && version.at_least(JSON));
        Self(match (wanted, head.header("accept")) {
            (Some(format), _) => choose(&version, format),
            (None, Some(accept)) if !accept.trim().is_empty() => choose(&version, accept),
            (None, _) => default(&version),
        })
    }

    /// The level at which a successful answer is printed.
    ///
    /// # Errors
    /// Why nothing acceptable can be produced.
    pub fn for_body(self) -> Result<Metadata, Code> {
        self.0
    }

    /// The level at which errors are printed.
    pub fn for_errors(self) -> Metadata {
        self.0.unwrap_or(Metadata::Minimal)
    }
}

fn default(version: &ApiVersion) -> Result<Metadata, Code> {
    if version.is_named() && version.at_least(JSON_ONLY) { Ok(Metadata::Minimal) } else { Err(atom(version)) }
}

/// Why Atom is not the answer: since 2015-12-11 by rule.
fn atom(version: &ApiVersion) -> Code {
    if version.is_named() && !version.at_least(JSON_ONLY) || !version.is_named() {
        Code::NotImplemented
    } else {
        Code::AtomFormatNotSupported
    }
}

/// The first media type, by quality and then by position, that can be served;
/// if none can, the reason for the first.
fn choose(version: &ApiVersion, accept: &str) -> Result<Metadata, Code> {
    let mut types: Vec<(f32, &str)> =
        accept.split(',').take(32).map(|t| (quality(t), t)).filter(|(q, _)| *q > 0.0).collect();
    types.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut refusal = None;
    for (_, media_type) in types {
        match serve(version, media_type) {
            Ok(metadata) => return Ok(metadata),
            Err(code) => refusal = refusal.or(Some(code)),
        }
    }
    Err(refusal.unwrap_or(Code::MediaTypeNotSupported))
}

fn quality(media_type: &str) -> f32 {
    parameter(media_type, "q").and_then(|q| q.parse().ok()).unwrap_or(1.0)
}

fn parameter<'a>(media_type: &'a str, name: &str) -> Option<&'a str> {
    media_type.split(';').skip(1).find_map(|p| {
        let (n, value) = p.split_once('=')?;
        n.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn serve(version: &ApiVersion, media_type: &str) -> Result<Metadata, Code> {
    let name = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match name.as_str() {
        "application/json" | "json" => json(version, parameter(media_type, "odata")),
        "application/atom+xml" | "application/xml" | "text/xml" | "atom" => Err(atom(version)),
        "*/*" | "application/*" => default(version),
        _ => Err(Code::MediaTypeNotSupported),
    }
}

fn json(version: &ApiVersion, level: Option<&str>) -> Result<Metadata, Code> {
    if !version.at_least(JSON) {
        return Err(Code::JsonFormatNotSupported);
    }
    match level.map(str::to_ascii_lowercase).as_deref() {
        None | Some("minimalmetadata") => Ok(Metadata::Minimal),
        Some("nometadata") => Ok(Metadata::None),
        Some("fullmetadata") => Ok(Metadata::Full),
        Some("verbose") => Err(Code::JsonVerboseFormatNotSupported),
        Some(_) => Err(Code::MediaTypeNotSupported),
    }
}

/// Whether the client wants created entities and tables back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefer {
    Content,
    NoContent,
}

impl Prefer {
    /// Reads the Prefer header, which means something since 2013-08-15.
    pub fn of(head: &Head) -> Option<Self> {
        let applies = head.version().is_ok_and(|version| version.at_least(JSON));
        head.header("prefer").filter(|_| applies).and_then(Self::parse)
    }

    /// Reads a Prefer header's value; unknown preferences are ignored.
    pub fn parse(value: &str) -> Option<Self> {
        value.split(',').find_map(|preference| match preference.trim() {
            "return-content" => Some(Prefer::Content),
            "return-no-content" => Some(Prefer::NoContent),
            _ => None,
        })
    }

    /// What Preference-Applied says.
    pub const fn applied(self) -> &'static str {
        match self {
            Prefer::Content => "return-content",
            Prefer::NoContent => "return-no-content",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(version: Option<&str>, accept: Option<&str>, format: &str) -> Result<Metadata, Code> {
        let header = |name: &str, value: Option<&str>| value.map(|v| (name.to_owned(), v.to_owned()));
        let headers = [header("x-ms-version", version), header("accept", accept)];
        let head = Head { headers: headers.into_iter().flatten().collect(), ..Head::default() };
        Format::negotiate(&head, &Options::parse(format).unwrap()).for_body()
    }

    #[test]
    fn formats_follow_the_table() {
        use Metadata::{Full, Minimal, None as NoMeta};
        let v = Some("2019-02-02");
        let old = Some("2014-02-14");
        for (version, accept, format, result) in [
            (v, Some("application/json;odata=nometadata"), "", Ok(NoMeta)),
            (v, Some("application/json; odata=minimalmetadata"), "", Ok(Minimal)),
            (v, Some("application/json;odata=fullmetadata"), "", Ok(Full)),
            (v, Some("application/json"), "", Ok(Minimal)),
            (v, Some("application/json;odata=verbose"), "", Err(Code::JsonVerboseFormatNotSupported)),
            (v, Some("application/atom+xml"), "", Err(Code::AtomFormatNotSupported)),
            (v, Some("application/atom+xml,application/json;odata=fullmetadata"), "", Ok(Full)),
            (v, Some("application/json;q=0.5,application/json;odata=nometadata;q=0.9"), "", Ok(NoMeta)),
            (v, Some("text/html"), "", Err(Code::MediaTypeNotSupported)),
            (v, Some("*/*"), "", Ok(Minimal)),
            (v, None, "", Ok(Minimal)),
            (v, Some("text/html"), "$format=json", Ok(Minimal)),
            (v, None, "$format=application%2Fjson%3Bodata%3Dfullmetadata", Ok(Full)),
            (old, Some("application/json"), "", Ok(Minimal)),
            (old, None, "", Err(Code::NotImplemented)),
            (old, Some("application/atom+xml"), "", Err(Code::NotImplemented)),
            (Some("2011-08-18"), Some("application/json"), "", Err(Code::JsonFormatNotSupported)),
            (None, Some("application/json"), "", Ok(Minimal)),
            (None, None, "", Err(Code::NotImplemented)),
        ] {
            assert_eq!(negotiated(version, accept, format), result, "{version:?} {accept:?} {format}");
        }
    }

    #[test]
    fn preferences_are_read_from_lists() {
        assert_eq!(Prefer::parse("return-no-content"), Some(Prefer::NoContent));
        assert_eq!(Prefer::parse("wait=5, return-content"), Some(Prefer::Content));
        assert_eq!(Prefer::parse("return=minimal"), None);
    }
}
