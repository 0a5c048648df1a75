//! Entries of Atom as old clients send them, and answers to such clients.

use super::answer::Answer;
use super::client::{Client, Request};
use super::refusals::Refusal;

/// Versions whose entries are laid out as in 2009.
pub const CLASSIC: [Option<&str>; 4] = [None, Some("2009-09-19"), Some("2011-08-18"), Some("2012-02-12")];
/// Versions that know JSON and Atom.
pub const MODERN: [Option<&str>; 3] = [Some("2013-08-15"), Some("2014-02-14"), Some("2015-07-08")];

/// What stands before every document.
pub const PROLOG: &str = "<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?>";
const METADATA: &str = "http://schemas.microsoft.com/ado/2007/08/dataservices/metadata";

/// A request of a client that knows nothing but Atom.
pub fn request<'a>(client: &'a Client, version: Option<&str>, verb: &str, path: &str) -> Request<'a> {
    let request = client.request(verb, path).without("DataServiceVersion").without("x-ms-version");
    let request = request.header("Accept", "application/atom+xml,application/xml");
    match version {
        Some(version) => request.version(version),
        None => request,
    }
}

/// The same with an entry.
pub fn sending<'a>(
    client: &'a Client,
    version: Option<&str>,
    verb: &str,
    path: &str,
    properties: &str,
) -> Request<'a> {
    let request = request(client, version, verb, path);
    request.header("Content-Type", "application/atom+xml").body(entry(properties))
}

/// An entry as the old client libraries write it.
pub fn entry(properties: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?>\n\
         <entry xmlns:d=\"http://schemas.microsoft.com/ado/2007/08/dataservices\" xmlns:m=\"{METADATA}\" \
         xmlns=\"http://www.w3.org/2005/Atom\">\n  <title />\n  <updated>2011-05-01T00:00:00Z</updated>\n  \
         <author>\n    <name />\n  </author>\n  <id />\n  <content type=\"application/xml\">\n    \
         <m:properties>{properties}</m:properties>\n  </content>\n</entry>"
    )
}

/// Keys as properties.
pub fn keys(partition: &str, row: &str) -> String {
    format!("<d:PartitionKey>{partition}</d:PartitionKey><d:RowKey>{row}</d:RowKey>")
}

/// Whether a version has the layout of 2009.
pub fn is_classic(version: Option<&str>) -> bool {
    CLASSIC.contains(&version)
}

/// The content type of a document; `kind` is `entry` or `feed`.
pub fn content_type(version: Option<&str>, kind: &str) -> String {
    let kind = if is_classic(version) { String::new() } else { format!("type={kind};") };
    format!("application/atom+xml;{kind}charset=utf-8")
}

/// What documents of a version begin with.
pub fn prolog(version: Option<&str>) -> &'static str {
    if is_classic(version) { PROLOG } else { "<?xml version=\"1.0\" encoding=\"utf-8\"?>" }
}

/// Demands a document and returns what follows the prolog.
#[track_caller]
pub fn document(answer: Answer, status: u16, version: Option<&str>, kind: &str) -> String {
    let answer = answer.expect(status);
    assert_eq!(answer.need("Content-Type"), content_type(version, kind), "{answer}");
    let rest = answer.text().strip_prefix(prolog(version));
    rest.unwrap_or_else(|| panic!("no prolog: {answer}")).to_owned()
}

/// Demands an error in the form of the version (protocol §4.7).
#[track_caller]
pub fn refused(answer: Answer, version: Option<&str>, refusal: Refusal) {
    if !is_classic(version) {
        answer.refused_in_table_xml(refusal);
        return;
    }
    let (status, code, message) = refusal;
    assert_eq!(answer.status, status, "{answer}");
    assert_eq!(answer.need("Content-Type"), "application/xml", "{answer}");
    let whole = format!(
        "{PROLOG}<error xmlns=\"{METADATA}\"><code>{code}</code>\
         <message xml:lang=\"en-US\">{message}</message></error>"
    );
    assert_eq!(answer.text(), whole, "{answer}");
}
