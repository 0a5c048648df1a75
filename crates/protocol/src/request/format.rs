//! Content negotiation: the format of the response (protocol §4.1).

use super::head::{ApiVersion, Head, Verb, WITH_JSON, WITH_MINIMAL_ETAG, WITHOUT_ATOM};
use super::options::Options;
use crate::codec::atom::write::Style;
use crate::codec::json::write::Metadata;
use crate::codec::split_once;
use crate::error::Code;

/// The negotiated format of bodies, or the error of the negotiation. Only operations that have a body report the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    chosen: Result<Representation, Code>,
    /// The format of errors if the client accepts no supported format, or accepts every format.
    fallback: Representation,
    /// Whether errors have the format `fallback` although documents have a different format.
    prefers_fallback: bool,
}

/// A format of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    Json(Metadata),
    Atom(Style),
}

impl Format {
    /// Negotiates the format from `$format` or, without it, from `Accept`, under the rules of the request's version.
    /// A read with neither gets Atom, which newer versions refuse.
    pub fn negotiate(head: &Head, options: &Options) -> Self {
        let is_blank = |value: Option<&str>| value.is_none_or(|value| value.trim().is_empty());
        if head.method == "GET"
            && is_blank(head.header("accept"))
            && is_blank(options.get("$format"))
            && let Some(refused) = Self::atom_refusal(head)
        {
            return refused;
        }
        Self::negotiate_part(head, options)
    }

    /// Returns the format that refuses Atom, in a version without Atom.
    pub(crate) fn atom_refusal(head: &Head) -> Option<Self> {
        let refusal = head.version().ok().and_then(|version| atom(version).err());
        refusal.map(|code| Self::refused(code, Representation::Atom(Style::Modern)))
    }

    /// Negotiates the format for a part of a batch. A part that names no format gets the default, also for a read
    /// (not recorded for reads).
    pub(crate) fn negotiate_part(head: &Head, options: &Options) -> Self {
        let version = match head.version() {
            Ok(version) => version,
            Err(error) => return Self::refused(error.code, Representation::Json(Metadata::Minimal)),
        };
        let requested = options.get("$format").filter(|f| !f.is_empty() && version.at_least(WITH_JSON));
        let accept = head.list("accept");
        // As recorded, a client that accepts everything gets documents in JSON and errors in XML.
        let accepts_everything = requested.is_none()
            && version.is_named()
            && version.at_least(WITHOUT_ATOM)
            && accept.as_deref().is_some_and(|accept| accept.trim() == "*/*");
        let fallback = if accepts_everything {
            Representation::Atom(Style::Modern)
        } else {
            default_representation(version)
        };
        let chosen = match (requested, accept) {
            (Some(format), _) => choose_representation(version, format),
            (None, Some(accept)) if !accept.trim().is_empty() => choose_representation(version, &accept),
            (None, _) => Ok(default_representation(version)),
        };
        Self { chosen, fallback, prefers_fallback: accepts_everything }
    }

    const fn refused(code: Code, fallback: Representation) -> Self {
        Self { chosen: Err(code), fallback, prefers_fallback: false }
    }

    /// Returns the format of a successful response.
    pub fn for_body(self) -> Result<Representation, Code> {
        self.chosen
    }

    /// Returns the format of errors.
    pub fn for_errors(self) -> Representation {
        match self.chosen {
            Ok(chosen) if !self.prefers_fallback => chosen,
            _ => self.fallback,
        }
    }
}

/// Returns the format for a client that accepts everything.
fn default_representation(version: ApiVersion) -> Representation {
    match atom(version) {
        Ok(style) => Representation::Atom(style),
        Err(_) => Representation::Json(Metadata::Minimal),
    }
}

/// Returns the layout of Atom documents in requests and responses. All refusals of Atom, from 2015-12-11 on, come from
/// here. A request without a version counts as one of the oldest version (UNVERIFIED 17).
///
/// # Errors
/// [`Code::AtomFormatNotSupported`].
pub fn atom(version: ApiVersion) -> Result<Style, Code> {
    match version.is_named() {
        true if version.at_least(WITHOUT_ATOM) => Err(Code::AtomFormatNotSupported),
        true if version.at_least(WITH_JSON) => Ok(Style::Modern),
        _ => Ok(Style::Classic),
    }
}

/// Maximum number of media types to read from an Accept header.
const MAX_MEDIA_TYPES: usize = 32;

/// Returns the first supported media type, by quality and then by position. If none is supported, returns the
/// error of the first media type.
fn choose_representation(version: ApiVersion, accept: &str) -> Result<Representation, Code> {
    let mut best: Option<(f32, Result<Representation, Code>)> = None;
    for media_type in accept.split(',').take(MAX_MEDIA_TYPES) {
        let quality = quality(media_type);
        let is_better = |(so_far, found): &(f32, Result<_, _>), new: &Result<_, _>| match (found, new) {
            (Ok(_), Err(_)) => false,
            (Err(_), Ok(_)) => true,
            _ => quality > *so_far,
        };
        if quality > 0.0 {
            let new = representation_of(version, media_type);
            if best.as_ref().is_none_or(|best| is_better(best, &new)) {
                best = Some((quality, new));
            }
        }
    }
    best.map_or(Err(Code::MediaTypeNotSupported), |(_, found)| found)
}

fn quality(media_type: &str) -> f32 {
    parameter(media_type, "q").and_then(|q| q.parse().ok()).unwrap_or(1.0)
}

/// Returns a media type without its parameters.
pub(crate) fn name_of(media_type: &str) -> &str {
    split_once(media_type, b';').map_or(media_type, |(name, _)| name).trim()
}

/// Returns a parameter of a media type.
pub(crate) fn parameter<'a>(media_type: &'a str, name: &str) -> Option<&'a str> {
    let (_, parameters) = split_once(media_type, b';')?;
    parameters.split(';').find_map(|p| {
        let (n, value) = split_once(p, b'=')?;
        n.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn representation_of(version: ApiVersion, media_type: &str) -> Result<Representation, Code> {
    let name = name_of(media_type);
    if is_one_of(name, &["application/json", "json"]) {
        json_metadata(version, parameter(media_type, "odata")).map(Representation::Json)
    } else if is_one_of(name, &["application/atom+xml", "application/xml", "text/xml", "atom"]) {
        atom(version).map(Representation::Atom)
    } else if is_one_of(name, &["*/*", "application/*"]) {
        Ok(default_representation(version))
    } else {
        Err(Code::MediaTypeNotSupported)
    }
}

/// Returns whether a name is among `known`, ignoring case.
fn is_one_of(name: &str, known: &[&str]) -> bool {
    known.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Requires a version with JSON, for a request or a response. All refusals of JSON come from here.
///
/// # Errors
/// [`Code::JsonFormatNotSupported`] before 2013-08-15.
pub(crate) fn require_json(version: ApiVersion) -> Result<(), Code> {
    if version.at_least(WITH_JSON) { Ok(()) } else { Err(Code::JsonFormatNotSupported) }
}

fn minimal_metadata(version: ApiVersion) -> Metadata {
    if version.at_least(WITH_MINIMAL_ETAG) { Metadata::Minimal } else { Metadata::MinimalWithoutEtag }
}

fn json_metadata(version: ApiVersion, level: Option<&str>) -> Result<Metadata, Code> {
    require_json(version)?;
    match level {
        None => Ok(minimal_metadata(version)),
        Some(level) if is_one_of(level, &["minimalmetadata"]) => Ok(minimal_metadata(version)),
        Some(level) if is_one_of(level, &["nometadata"]) => Ok(Metadata::None),
        Some(level) if is_one_of(level, &["fullmetadata"]) => Ok(Metadata::Full),
        Some(level) if is_one_of(level, &["verbose"]) => Err(Code::JsonVerboseFormatNotSupported),
        Some(_) => Err(Code::MediaTypeNotSupported),
    }
}

named_enum! {
    /// Whether the client wants the response to contain created entities and tables, with the value of the
    /// Preference-Applied header.
    Prefer, applied {
        Content => "return-content",
        NoContent => "return-no-content",
    }
}

impl Prefer {
    /// Reads the Prefer header, which has an effect since 2013-08-15. For POST, it decides whether the response has
    /// content. As recorded, the response to an update never has content, and confirms only return-no-content.
    pub fn of(head: &Head) -> Option<Self> {
        let prefer = head.list("prefer")?;
        let has_prefer = head.version().is_ok_and(|version| version.at_least(WITH_JSON));
        Self::parse(&prefer).filter(|prefer| match Verb::of(head) {
            Ok(Verb::Post) => has_prefer,
            Ok(Verb::Put | Verb::Merge) => has_prefer && *prefer == Self::NoContent,
            _ => false,
        })
    }

    /// Parses the value of a Prefer header. Unknown preferences are ignored.
    pub(crate) fn parse(value: &str) -> Option<Self> {
        let known = |given: &str| Self::ALL.into_iter().find(|prefer| prefer.applied() == given.trim());
        known(value).or_else(|| value.split(',').find_map(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(version: Option<&str>, accept: Option<&str>, format: &str) -> Result<Representation, Code> {
        let headers = [("x-ms-version", version), ("accept", accept)];
        let given = headers.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into())));
        let head = Head { method: "GET".into(), headers: given.collect(), ..Head::default() };
        Format::negotiate(&head, &Options::parse(format).unwrap()).for_body()
    }

    #[test]
    fn formats_follow_the_table() {
        let json = |metadata| Ok(Representation::Json(metadata));
        let (none, minimal, full) = (json(Metadata::None), json(Metadata::Minimal), json(Metadata::Full));
        let classic = Ok(Representation::Atom(Style::Classic));
        let modern = Ok(Representation::Atom(Style::Modern));
        let v = Some("2019-02-02");
        let old = Some("2014-02-14");
        let oldest = Some("2011-08-18");
        for (version, accept, format, result) in [
            (v, Some("application/json;odata=nometadata"), "", none),
            (v, Some("application/json; odata=minimalmetadata"), "", minimal),
            (v, Some("application/json;odata=fullmetadata"), "", full),
            (v, Some("application/json"), "", minimal),
            (v, Some("application/json;odata=verbose"), "", Err(Code::JsonVerboseFormatNotSupported)),
            (v, Some("application/atom+xml"), "", Err(Code::AtomFormatNotSupported)),
            (v, Some("application/atom+xml,application/json;odata=fullmetadata"), "", full),
            (v, Some("application/json;q=0.5,application/json;odata=nometadata;q=0.9"), "", none),
            (v, Some("text/html"), "", Err(Code::MediaTypeNotSupported)),
            (v, Some("*/*"), "", minimal),
            (v, None, "", Err(Code::AtomFormatNotSupported)),
            (v, Some(" "), "", Err(Code::AtomFormatNotSupported)),
            (Some("2015-12-11"), None, "", Err(Code::AtomFormatNotSupported)),
            (v, None, "$format=json", minimal),
            (v, Some("text/html"), "$format=json", minimal),
            (v, None, "$format=application%2Fjson%3Bodata%3Dfullmetadata", full),
            (old, Some("application/json"), "", json(Metadata::MinimalWithoutEtag)),
            (Some("2015-04-05"), Some("application/json"), "", minimal),
            (old, None, "", modern),
            (old, Some("application/atom+xml,application/xml"), "", modern),
            (old, Some("application/json;odata=nometadata"), "$format=atom", modern),
            (oldest, Some("application/atom+xml"), "", classic),
            (oldest, None, "", classic),
            (oldest, Some("*/*"), "", classic),
            (oldest, Some("application/json"), "", Err(Code::JsonFormatNotSupported)),
            (oldest, Some("application/atom+xml"), "$format=json", classic),
            (None, Some("application/json"), "", minimal),
            (None, None, "", classic),
        ] {
            assert_eq!(negotiated(version, accept, format), result, "{version:?} {accept:?} {format}");
        }
    }

    #[test]
    fn whoever_takes_anything_gets_errors_in_xml() {
        let json = Representation::Json(Metadata::Minimal);
        let xml = Representation::Atom(Style::Modern);
        for (version, accept, format, for_errors) in [
            ("2019-02-02", "*/*", "", xml),
            ("2019-02-02", "*/*", "$format=json", json),
            ("2019-02-02", "application/json,*/*", "", json),
            ("2015-04-05", "application/json", "", json),
        ] {
            let headers = vec![("x-ms-version".into(), version.into()), ("accept".into(), accept.into())];
            let head = Head { headers, ..Head::default() };
            let negotiated = Format::negotiate(&head, &Options::parse(format).unwrap());
            assert_eq!((negotiated.for_body(), negotiated.for_errors()), (Ok(json), for_errors), "{accept}");
        }
    }

    #[test]
    fn preferences_are_read_from_lists() {
        assert_eq!(Prefer::parse("return-no-content"), Some(Prefer::NoContent));
        assert_eq!(Prefer::parse("wait=5, return-content"), Some(Prefer::Content));
        assert_eq!(Prefer::parse("return=minimal"), None);
    }
}
