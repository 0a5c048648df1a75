//! Resolves the account and the resource that a request addresses (protocol §1).

use std::borrow::Cow;

use crate::codec::split_once;
use crate::codec::uri::percent_decode;
use crate::error::{Code, Error, Result};
use crate::model::Key;
use crate::request::Head;

/// The addressed resource, with decoded keys and unchecked names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// `/`: the service's properties and stats.
    Service,
    /// `/Tables`.
    Tables,
    /// `/Tables('name')`.
    Table(String),
    /// `/name` or `/name()`.
    EntitySet(String),
    /// `/name(PartitionKey='p',RowKey='r')`.
    Entity { table: String, key: Key },
    /// `/name(PartitionKey='p')` (UNVERIFIED 2).
    Partition { table: String, partition: String },
    /// `/$batch`.
    Batch,
    /// `/$metadata`.
    Metadata,
    /// `/name/…`, from a client that uses the address of a table as the address of the service.
    BelowTable { table: String, rest: String },
}

impl Resource {
    /// Returns the name, as spelled, of the table whose entities the resource addresses.
    pub fn table(&self) -> Option<&str> {
        match self {
            Self::EntitySet(table)
            | Self::Entity { table, .. }
            | Self::Partition { table, .. }
            | Self::BelowTable { table, .. } => Some(table),
            Self::Service | Self::Tables | Self::Table(_) | Self::Batch | Self::Metadata => None,
        }
    }
}

/// The account and the resource that a request addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub account: String,
    /// Whether the address is `{account}-secondary`, which only allows reads.
    pub secondary: bool,
    /// The prefix of addresses in responses: the scheme, the host and, in path style, the account.
    pub base: String,
    /// Whether the account is the first segment of the path.
    pub path_style: bool,
    pub resource: Resource,
}

/// Maps host names to accounts.
pub trait Accounts {
    /// Returns whether an account with this name exists.
    fn exists(&self, name: &str) -> bool;
    /// Returns the suffixes of hosts whose first label is an account.
    fn host_suffixes(&self) -> &[String];
}

fn unknown_account(name: &str) -> Error {
    Error::from(Code::ResourceNotFound).with_reason(format!("this server has no account {name:?}"))
}

/// Resolves the address of a request.
///
/// # Errors
/// [`Code::HostInformationNotPresent`] without a Host header,
/// [`Code::InvalidHeaderValue`] for several Host headers or one that is too long,
/// [`Code::ResourceNotFound`] for an unknown account,
/// [`Code::QuerySyntax`] for an invalid path,
/// [`Code::KeyCountMismatch`] for key predicates that are not keys.
pub fn resolve(head: &Head, accounts: &impl Accounts) -> Result<Target> {
    let scheme = if head.secure { "https" } else { "http" };
    check_host(head)?;
    if let Some((account, secondary)) = account_of_host(head.host(), accounts) {
        if !accounts.exists(&account) {
            return Err(unknown_account(&account));
        }
        let resource = parse_resource(head.path.strip_prefix('/').unwrap_or(&head.path), &account)?;
        let base = [scheme, "://", head.host()].concat();
        return Ok(Target { account, secondary, base, path_style: false, resource });
    }
    let path = head.path.strip_prefix('/').ok_or(Code::QuerySyntax)?;
    let (segment, rest) = split_once(path, b'/').unwrap_or((path, ""));
    let (account, secondary) = split_secondary(segment);
    if !accounts.exists(account) {
        return Err(unknown_account(account));
    }
    Ok(Target {
        account: account.to_owned(),
        secondary,
        base: [scheme, "://", head.host(), "/", segment].concat(),
        path_style: true,
        resource: parse_resource(rest, account)?,
    })
}

/// Maximum bytes of a Host header, which each entity of a page may repeat. A host name has up to 253 bytes and a port
/// up to five.
const MAX_HOST_BYTES: usize = 300;

/// Requires exactly one Host header. If there were several, a proxy might have read the account from a different one.
fn check_host(head: &Head) -> Result<()> {
    let mut hosts = head.all("host");
    let host = hosts.next().unwrap_or_default();
    if host.trim().is_empty() {
        return Err(Code::HostInformationNotPresent.into());
    }
    if host.len() > MAX_HOST_BYTES || hosts.next().is_some() {
        Err(Code::InvalidHeaderValue.into())
    } else {
        Ok(())
    }
}

/// Resolves the address inside a part of a batch: an absolute URL, or a path with or without the account.
/// Host and scheme need not match the outer request.
pub fn resolve_inner(target: &str, outer: &Target) -> Result<Resource> {
    let absolute = without_scheme(target).map(|after| split_once(after, b'/').map_or("", |(_, path)| path));
    let path = absolute.unwrap_or(target.strip_prefix('/').unwrap_or(target));
    let is_account = |segment: &str| outer.path_style && split_secondary(segment).0 == outer.account;
    let path = match split_once(path, b'/') {
        Some((segment, rest)) if is_account(segment) => rest,
        // A single segment without a host could also be the name of a table.
        None if absolute.is_some() && is_account(path) => "",
        _ => path,
    };
    parse_resource(path, &outer.account)
}

/// Returns the part of an absolute address after the scheme. A key may contain `://` too.
fn without_scheme(address: &str) -> Option<&str> {
    let colon = memchr::memchr(b':', address.as_bytes())?;
    let (scheme, rest) = address.split_at(colon);
    let is_scheme = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    rest.strip_prefix("://").filter(|_| is_scheme)
}

fn split_secondary(name: &str) -> (&str, bool) {
    name.strip_suffix("-secondary").map_or((name, false), |primary| (primary, true))
}

/// The text after `account.` in Azure's own host names.
const AZURE_LABEL: &str = "table.";

/// Returns the account in a host name, and whether the host is its secondary. The account is the first label before a
/// configured suffix, or before `.table.` if the account exists.
fn account_of_host(host: &str, accounts: &impl Accounts) -> Option<(String, bool)> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let (label, rest) = split_once(name, b'.')?;
    let is_configured = accounts.host_suffixes().iter().any(|suffix| suffix.eq_ignore_ascii_case(rest));
    let is_conventional = rest.get(..AZURE_LABEL.len()).is_some_and(|r| r.eq_ignore_ascii_case(AZURE_LABEL));
    if !is_configured && !is_conventional {
        return None;
    }
    let label = label.to_ascii_lowercase();
    let (account, secondary) = split_secondary(&label);
    (is_configured || accounts.exists(account)).then(|| (account.to_owned(), secondary))
}

/// Parses the path below the account. The path is decoded first, so `%27%27` is a doubled quote. Between quotes, all
/// other characters are literal. A trailing slash is ignored, as recorded.
fn parse_resource(path: &str, account: &str) -> Result<Resource> {
    // The Java SDK adds a second slash if the endpoint ends with one.
    let path = path.strip_prefix('/').unwrap_or(path);
    let decoded = percent_decode(path).ok_or(Code::QuerySyntax)?;
    let split = memchr::memchr2(b'(', b'/', decoded.as_bytes()).unwrap_or(decoded.len());
    let (name, rest) = decoded.split_at(split);
    if name.is_empty() {
        return if rest.is_empty() { Ok(Resource::Service) } else { Err(Code::QuerySyntax.into()) };
    }
    let is_tables = name.eq_ignore_ascii_case("tables");
    match rest {
        "" | "()" | "/" | "()/" if is_tables => Ok(Resource::Tables),
        "" | "/" if name == "$batch" => Ok(Resource::Batch),
        "" | "/" if name == "$metadata" => Ok(Resource::Metadata),
        "" | "()" | "/" | "()/" => Ok(Resource::EntitySet(name.to_owned())),
        _ if rest.starts_with('/') => {
            Ok(Resource::BelowTable { table: name.to_owned(), rest: rest[1..].to_owned() })
        }
        _ => parse_key_address(name, rest, is_tables)?.ok_or_else(|| key_count_mismatch(account, name)),
    }
}

/// Returns the error of invalid key predicates, as recorded.
pub fn key_count_mismatch(account: &str, table: &str) -> Error {
    Error::with_message(
        Code::KeyCountMismatch,
        format!(
            "The number of keys specified in the URI does not match number of key properties for the \
             resource '{account}.{table}'."
        ),
    )
}

/// Parses an address with key predicates. Returns `None` if the predicates are not the keys of an entity.
fn parse_key_address(name: &str, rest: &str, is_tables: bool) -> Result<Option<Resource>> {
    let (keys, tail) = parse_keys(rest)?;
    if !matches!(tail, "" | "/") {
        return Err(Code::QuerySyntax.into());
    }
    if is_tables {
        return match keys.as_slice() {
            [(None | Some("TableName"), table)] => Ok(Some(Resource::Table(table.to_string()))),
            _ => Err(Code::KeyCountMismatch.into()),
        };
    }
    let find = |key_name: &str| keys.iter().find(|(name, _)| *name == Some(key_name));
    let table = name.to_owned();
    Ok(match (keys.len(), find("PartitionKey"), find("RowKey")) {
        (2, Some((_, partition)), Some((_, row))) => {
            Some(Resource::Entity { table, key: Key::new(partition.as_ref(), row.as_ref()) })
        }
        (1, Some((_, partition)), None) => {
            Some(Resource::Partition { table, partition: partition.to_string() })
        }
        _ => None,
    })
}

/// A key in a predicate: its name, if it has one, and its value.
type NamedKey<'a> = (Option<&'a str>, Cow<'a, str>);

/// Parses `(name='value',…)` or `('value')`, and returns the remaining text.
fn parse_keys(text: &str) -> Result<(Vec<NamedKey<'_>>, &str)> {
    let mut rest = text.strip_prefix('(').ok_or(Code::QuerySyntax)?;
    let mut keys = Vec::with_capacity(2);
    loop {
        let (name, after) = split_once(rest, b'\'').ok_or(Code::QuerySyntax)?;
        let name = name.trim();
        let name = match name.strip_suffix('=').map(str::trim) {
            Some(name) if !name.is_empty() => Some(name),
            None if name.is_empty() => None,
            _ => return Err(Code::QuerySyntax.into()),
        };
        let (value, tail) = parse_quoted(after)?;
        keys.push((name, value));
        let tail = tail.trim_start();
        match tail.as_bytes().first() {
            Some(b',') if keys.len() < 4 => rest = &tail[1..],
            Some(b')') => return Ok((keys, &tail[1..])),
            _ => return Err(Code::QuerySyntax.into()),
        }
    }
}

/// Parses a text up to the closing quote. Quotes inside are doubled.
fn parse_quoted(text: &str) -> Result<(Cow<'_, str>, &str)> {
    let mut value = Cow::Borrowed("");
    let mut rest = text;
    loop {
        let (piece, after) = split_once(rest, b'\'').ok_or(Code::QuerySyntax)?;
        value += piece;
        rest = after;
        match rest.strip_prefix('\'') {
            Some(after) => {
                value += "'";
                rest = after;
            }
            None => return Ok((value, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Known(Vec<String>);
    impl Accounts for Known {
        fn exists(&self, name: &str) -> bool {
            name == "acct"
        }
        fn host_suffixes(&self) -> &[String] {
            &self.0
        }
    }

    fn at(host: &str, path: &str) -> Result<Target> {
        let head = Head { path: path.into(), headers: vec![("host".into(), host.into())], ..Head::default() };
        resolve(&head, &Known(vec!["tables.corp".into()]))
    }
    fn below(path: &str) -> Result<Resource, Code> {
        at("127.0.0.1:10002", &format!("/acct/{path}")).map(|t| t.resource).map_err(|e| e.code)
    }
    fn entity(partition: &str, row: &str) -> Result<Resource, Code> {
        Ok(Resource::Entity { table: "T".into(), key: Key::new(partition, row) })
    }

    #[test]
    fn accounts_come_from_the_host_or_the_path() {
        for (host, path, secondary, base) in [
            ("127.0.0.1:10002", "/acct/T", false, "http://127.0.0.1:10002/acct"),
            ("localhost", "/acct-secondary/T", true, "http://localhost/acct-secondary"),
            ("acct.table.core.windows.net", "/T", false, "http://acct.table.core.windows.net"),
            ("acct-secondary.table.localhost:8080", "/T", true, "http://acct-secondary.table.localhost:8080"),
            ("ACCT.tables.corp", "/T", false, "http://ACCT.tables.corp"),
            ("gateway.corp", "/acct/T", false, "http://gateway.corp/acct"),
        ] {
            let target = at(host, path).unwrap();
            assert_eq!(
                (target.account.as_str(), target.secondary, target.base.as_str()),
                ("acct", secondary, base)
            );
            assert_eq!(target.resource, Resource::EntitySet("T".into()));
        }
        for (host, path) in [("h", "/nobody/T"), ("h", "/"), ("nobody.tables.corp", "/T")] {
            assert_eq!(at(host, path).unwrap_err().code, Code::ResourceNotFound, "{host}{path}");
        }
        assert!(at(&"h".repeat(MAX_HOST_BYTES), "/acct/T").is_ok());
        let code = at(&"h".repeat(MAX_HOST_BYTES + 1), "/acct/T").unwrap_err().code;
        assert_eq!(code, Code::InvalidHeaderValue);
    }

    #[test]
    fn resources_have_the_documented_forms() {
        for (path, resource) in [
            ("", Resource::Service),
            ("Tables", Resource::Tables),
            ("/Tables", Resource::Tables),
            ("tables()", Resource::Tables),
            ("Tables/", Resource::Tables),
            ("T/", Resource::EntitySet("T".into())),
            ("T()/", Resource::EntitySet("T".into())),
            ("Tables('abc')/", Resource::Table("abc".into())),
            ("$batch/", Resource::Batch),
            ("Tables('abc')", Resource::Table("abc".into())),
            ("Tables(%27abc%27)", Resource::Table("abc".into())),
            ("T", Resource::EntitySet("T".into())),
            ("T()", Resource::EntitySet("T".into())),
            ("$batch", Resource::Batch),
            ("$metadata", Resource::Metadata),
            ("T(PartitionKey='p')", Resource::Partition { table: "T".into(), partition: "p".into() }),
            ("T//", Resource::BelowTable { table: "T".into(), rest: "/".into() }),
            ("T/$batch", Resource::BelowTable { table: "T".into(), rest: "$batch".into() }),
            ("T/Tables('T')", Resource::BelowTable { table: "T".into(), rest: "Tables('T')".into() }),
        ] {
            assert_eq!(below(path), Ok(resource), "{path}");
        }
    }

    #[test]
    fn keys_decode_exactly_once_and_quotes_protect_everything() {
        assert_eq!(below("T(PartitionKey='p',RowKey='r')"), entity("p", "r"));
        assert_eq!(below("T(RowKey='r',PartitionKey='p')"), entity("p", "r"));
        assert_eq!(below("T(PartitionKey=%27p%27, RowKey = %27r%27)"), entity("p", "r"));
        assert_eq!(below("T(PartitionKey='',RowKey='')"), entity("", ""));
        assert_eq!(below("T(PartitionKey='it''s',RowKey='%27%27')"), entity("it's", "'"));
        assert_eq!(below("T(PartitionKey='%2520',RowKey='a+b')"), entity("%20", "a+b"));
        assert_eq!(below("T(PartitionKey='a,b=(c)',RowKey='x%2Fy')"), entity("a,b=(c)", "x/y"));
        assert_eq!(below("T(PartitionKey='%C3%B4',RowKey='%F0%9F%98%80')"), entity("ô", "😀"));
        assert_eq!(below("T(PartitionKey='a/b',RowKey='r')"), entity("a/b", "r"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in [
            "T(",
            "T(PartitionKey='p'",
            "T(PartitionKey=p,RowKey=r)",
            "T(PartitionKey='p',RowKey='r')x",
            "T('%zz')",
            "T(PartitionKey='%ff',RowKey='r')",
            "T(='p')",
            "T(PartitionKey='p';RowKey='r')",
            "T(PartitionKey='p' 'r')",
        ] {
            assert_eq!(below(bad), Err(Code::QuerySyntax), "{bad}");
        }
        for bad in [
            "T('p')",
            "T(PartitionKey='p',Row='r')",
            "T(RowKey='r')",
            "T(PartitionKey='p',PartitionKey='p')",
            "T(PartitionKey='p',RowKey='r',X='x')",
            "Tables('a','b')",
            "Tables(X='a')",
        ] {
            assert_eq!(below(bad), Err(Code::KeyCountMismatch), "{bad}");
        }
    }

    #[test]
    fn inner_addresses_may_be_absolute_or_paths() {
        let outer = at("127.0.0.1:10002", "/acct/$batch").unwrap();
        for inner in [
            "https://other:1/acct/T",
            "/acct/T",
            "/T",
            "T",
            "http://h/acct-secondary/T",
            "https://acct.table.x/T",
        ] {
            assert_eq!(resolve_inner(inner, &outer), Ok(Resource::EntitySet("T".into())), "{inner}");
        }
        for root in ["http://127.0.0.1:10002/acct", "http://127.0.0.1:10002/acct/", "/"] {
            assert_eq!(resolve_inner(root, &outer), Ok(Resource::Service), "{root}");
        }
        assert_eq!(resolve_inner("/acct", &outer), Ok(Resource::EntitySet("acct".into())));
        let host_style = at("acct.table.x", "/$batch").unwrap();
        assert_eq!(
            resolve_inner("http://acct.table.x/acct/T", &host_style),
            Ok(Resource::BelowTable { table: "acct".into(), rest: "T".into() })
        );
    }

    proptest! {
        #[test]
        fn no_path_makes_the_resolver_panic(path in "\\PC{0,60}") {
            let _ = below(&path);
            let _ = below(&format!("T({path}"));
        }
    }
}
