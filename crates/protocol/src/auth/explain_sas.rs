//! Explains a SAS field by field, with every reason to refuse it, for debugging. The explanation never reveals a key,
//! nor the signature that would be correct.

use schemars::JsonSchema;
use serde::Serialize;

use super::accounts::AccountKey;
use super::permissions::{Identity, allows};
use super::sas::{Claim, Use};
use crate::codec::policies::Policy;
use crate::error::{Code, Error, Result};
use crate::model::{Key, TableName};
use crate::request::OperationLabel::{self, *};
use crate::request::options::Options;
use crate::request::target::resolve_inner;
use crate::request::{Resource, Target};

/// A SAS to inspect, and the request that it is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SasQuestion {
    pub account: String,
    /// The query string with the SAS.
    pub token: String,
    /// The path below the account.
    pub resource: String,
    /// The method of the request. Without a method, the inspection checks the SAS alone.
    pub method: Option<String>,
}

impl SasQuestion {
    /// Creates a question from a URL, or from a token and an account. `is_account` returns whether an account exists.
    pub fn new(url: &str, account: Option<&str>, is_account: impl Fn(&str) -> bool) -> Option<Self> {
        let (address, token) = url.split_once('?').unwrap_or(("", url));
        let (host, path) = match address.split_once("://") {
            Some((_, rest)) => rest.split_once('/').unwrap_or((rest, "")),
            None => ("", address.trim_start_matches('/')),
        };
        let (segment, rest) = path.split_once('/').unwrap_or((path, ""));
        let label = host.split('.').next().unwrap_or_default();
        let primary = |name: &str| name.strip_suffix("-secondary").unwrap_or(name).to_owned();
        let names = |name: &str| match account {
            Some(account) => primary(name) == account,
            None => is_account(&primary(name)),
        };
        let (account, resource) = match account {
            _ if names(segment) => (primary(segment), rest),
            _ if names(label) => (primary(label), path),
            Some(account) => (account.to_owned(), path),
            None => return None,
        };
        let resource = resource.to_owned();
        Some(Self { account, token: token.trim().to_owned(), resource, method: None })
    }

    /// Parses the SAS.
    ///
    /// # Errors
    /// [`Code::AuthenticationFailed`] for a token without a signature, or a malformed token.
    pub fn claim(&self) -> Result<Claim> {
        let options = Options::parse(&self.token)?;
        let none = || Error::from(Code::AuthenticationFailed).with_reason("there is no sig in it");
        Claim::read(&options)?.ok_or_else(none)
    }

    /// Inspects the SAS. `policies` are the stored policies of the table, if the SAS names one.
    pub fn inspect(
        &self,
        claim: &Claim,
        keys: &[AccountKey],
        policies: &[Policy],
        usage: &Use,
    ) -> Result<SasReport> {
        let mut findings = claim.findings(&self.account, keys, policies, usage);
        let mut action = None;
        if let Some(method) = &self.method {
            let resource = self.resource(claim)?;
            if let (Some(table), Some(identity)) = (resource.table(), &findings.identity)
                && !identity.is_valid_for_table(table)
            {
                let reason = "tn names another table than the address";
                findings.problems.push(Error::from(Code::AuthenticationFailed).with_reason(reason));
            }
            action = self.action(findings.identity.as_ref(), method, &resource)?;
        }
        let field = |(name, value): (&str, &str)| SasField {
            name: name.to_owned(),
            value: value.to_owned(),
            meaning: meaning(name, value),
        };
        Ok(SasReport {
            account: self.account.clone(),
            kind: if claim.is_of_table() { SasScope::Table } else { SasScope::Account },
            fields: claim.fields().map(field).collect(),
            string_to_sign: claim.string_to_sign(&self.account),
            signed_by: findings.signed_by.map(|key| key + 1),
            valid: findings.problems.is_empty(),
            problems: findings.problems.iter().map(problem).collect(),
            action,
        })
    }

    /// Returns the resource of the request or, without an address, the table of the SAS.
    fn resource(&self, claim: &Claim) -> Result<Resource> {
        let table = claim.fields().find(|(name, _)| *name == "tn").map(|(_, table)| table);
        let path = table.filter(|_| self.resource.is_empty()).unwrap_or(&self.resource);
        let outer = Target {
            account: self.account.clone(),
            secondary: false,
            base: String::new(),
            path_style: true,
            resource: Resource::Service,
        };
        resolve_inner(path, &outer)
    }

    /// Returns whether the SAS allows a request, or `None` if its fields are not sufficient to decide.
    fn action(
        &self,
        identity: Option<&Identity>,
        method: &str,
        resource: &Resource,
    ) -> Result<Option<ActionReport>> {
        let Some(identity) = identity else { return Ok(None) };
        let options = Options::parse(&self.token)?;
        let is_acl = options.any_case("comp").is_some_and(|comp| comp.eq_ignore_ascii_case("acl"));
        let (operation, name) = operation_of(method, resource, is_acl).ok_or(Code::MethodNotAllowed)?;
        let verdict = verdict(identity, operation, resource);
        let problem = verdict.as_ref().err().map(problem);
        Ok(Some(ActionReport { name, allowed: verdict.is_ok(), problem }))
    }
}

fn verdict(identity: &Identity, operation: OperationLabel, resource: &Resource) -> Result<()> {
    let (table, key): (Option<&str>, Option<&Key>) = match resource {
        Resource::Entity { table, key } => (Some(table), Some(key)),
        Resource::Table(table) => (Some(table), None),
        other => (other.table(), None),
    };
    let table = table.map(TableName::parse).transpose()?;
    allows(identity, operation, table.as_ref(), key)
}

/// Returns the operation of a method on a resource, and a description. PUT, PATCH and MERGE count as updates, although
/// they are upserts without If-Match. An upsert needs more permissions.
fn operation_of(method: &str, resource: &Resource, is_acl: bool) -> Option<(OperationLabel, &'static str)> {
    Some(match (resource, method.to_ascii_uppercase().as_str()) {
        (Resource::Service, "GET" | "HEAD") => (GetServiceProperties, "read the service properties"),
        (Resource::Service, "PUT") => (SetServiceProperties, "change the service properties"),
        (Resource::EntitySet(_), "GET" | "HEAD") if is_acl => (GetTableAcl, "read the stored policies"),
        (Resource::EntitySet(_), "PUT") if is_acl => (SetTableAcl, "change the stored policies"),
        (Resource::Tables | Resource::Table(_), "GET") => (QueryTables, "list tables"),
        (Resource::Tables, "POST") => (CreateTable, "create a table"),
        (Resource::Table(_), "DELETE") => (DeleteTable, "delete a table"),
        (Resource::EntitySet(_) | Resource::Entity { .. } | Resource::Partition { .. }, "GET")
        | (Resource::Entity { .. }, "HEAD") => (QueryEntities, "read entities"),
        (Resource::EntitySet(_), "POST") => (InsertEntity, "insert an entity"),
        (Resource::Entity { .. }, "PUT" | "PATCH" | "MERGE") => (UpdateEntity, "update an entity"),
        (Resource::Entity { .. }, "DELETE") => (DeleteEntity, "delete an entity"),
        _ => return None,
    })
}

/// An inspection as operators see it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SasReport {
    pub account: String,
    pub kind: SasScope,
    pub fields: Vec<SasField>,
    pub string_to_sign: String,
    /// The key that signed the SAS: 1, 2, or null for none.
    pub signed_by: Option<usize>,
    pub valid: bool,
    pub problems: Vec<SasProblem>,
    /// The request that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionReport>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SasScope {
    Table,
    Account,
}

/// A field of a SAS.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SasField {
    pub name: String,
    pub value: String,
    pub meaning: String,
}

/// A reason to refuse a SAS.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SasProblem {
    pub code: &'static str,
    pub message: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ActionReport {
    pub name: &'static str,
    pub allowed: bool,
    /// Why the request is refused.
    #[serde(flatten)]
    pub problem: Option<SasProblem>,
}

impl SasReport {
    /// Returns whether the SAS is valid now and, if there is a request, allows it.
    pub fn is_fine(&self) -> bool {
        self.valid && self.action.as_ref().is_none_or(|action| action.allowed)
    }
}

fn problem(error: &Error) -> SasProblem {
    let message = error.reason_or_text().to_owned();
    SasProblem { code: error.code.facts().code, message }
}

/// Describes the value of a field in words.
fn meaning(name: &str, value: &str) -> String {
    let fixed = match name {
        "sv" => "the version of the service whose rules apply",
        "tn" => "the table",
        "st" => "valid from this time on",
        "se" => "valid until before this time",
        "spk" => "the first partition key",
        "srk" => "the first row key, in the first partition",
        "epk" => "the last partition key",
        "erk" => "the last row key, in the last partition",
        "si" => "the stored policy of the table, which supplies what is missing here",
        "sip" => "the addresses that may use it",
        "spr" if value == "https" => "over HTTPS only",
        "spr" => "over HTTPS and HTTP",
        "ses" => "the encryption scope, which tables do not have",
        "api-version" => "the version of the request",
        "comp" => "a part of the address, not of the signature",
        "sp" => return letters(value, &PERMISSIONS),
        "ss" => return letters(value, &SERVICES),
        "srt" => return letters(value, &RESOURCE_TYPES),
        _ => "",
    };
    fixed.to_owned()
}

const PERMISSIONS: [(char, &str); 13] = [
    ('r', "read"),
    ('w', "write"),
    ('d', "delete"),
    ('x', "delete a version"),
    ('y', "delete for good"),
    ('l', "list"),
    ('a', "add"),
    ('c', "create"),
    ('u', "update"),
    ('p', "process"),
    ('t', "tags"),
    ('f', "find by tags"),
    ('i', "immutability"),
];
const SERVICES: [(char, &str); 4] = [('b', "blobs"), ('q', "queues"), ('t', "tables"), ('f', "files")];
const RESOURCE_TYPES: [(char, &str); 3] = [('s', "the service"), ('c', "tables"), ('o', "entities")];

fn letters(value: &str, known: &[(char, &str)]) -> String {
    let words = value.chars().map(|letter| {
        let word = known.iter().find(|(known, _)| *known == letter).map(|(_, word)| (*word).to_owned());
        word.unwrap_or_else(|| format!("{letter:?}, which is unknown"))
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::auth::issue::{Grant, SasSubject};
    use crate::model::Ticks;

    fn key() -> AccountKey {
        AccountKey::new(vec![7; 32]).unwrap()
    }

    fn token(permissions: &str, expiry: &str, ip: Option<&str>) -> String {
        let subject = SasSubject::Table {
            table: "People".into(),
            policy: None,
            start: (Some("a".into()), None),
            end: (Some("b".into()), None),
        };
        let grant = Grant {
            subject,
            permissions: Some(permissions.into()),
            start: None,
            expiry: Some(expiry.into()),
            ip: ip.map(str::to_owned),
            protocol: Some("https".into()),
            version: "2019-02-02".into(),
        };
        grant.sign("acct", &key()).unwrap()
    }

    fn inspect(url: &str, method: Option<&str>, secure: bool, peer: Option<&str>) -> Value {
        let question = SasQuestion::new(url, None, |name| name == "acct").unwrap();
        let question = SasQuestion { method: method.map(str::to_owned), ..question };
        let now = Ticks::parse("2026-01-02T00:00:00Z").unwrap();
        let usage = Use { now, secure, peer: peer.map(|peer| peer.parse().unwrap()) };
        let inspection = question.inspect(&question.claim().unwrap(), &[key()], &[], &usage).unwrap();
        serde_json::to_value(inspection).unwrap()
    }

    #[test]
    fn a_good_one_is_told_in_words() {
        let token = token("ra", "2030-01-01", None);
        let url = format!("https://h/acct/People(PartitionKey='a',RowKey='r')?{token}");
        let shown = inspect(&url, Some("GET"), true, None);
        assert_eq!(
            (&shown["valid"], &shown["signedBy"], &shown["kind"]),
            (&json!(true), &json!(1), &json!("table"))
        );
        assert_eq!(shown["action"], json!({ "name": "read entities", "allowed": true }));
        let permissions = shown["fields"].as_array().unwrap().iter().find(|field| field["name"] == "sp");
        assert_eq!(permissions.unwrap()["meaning"], "read, add");
        assert!(!shown.to_string().contains("\"sig\""), "{shown}");
        // This key is outside the range of the SAS, and the permission is missing.
        let beyond = url.replace("='a'", "='c'");
        assert_eq!(
            inspect(&beyond, Some("DELETE"), true, None)["action"]["code"],
            "AuthorizationPermissionMismatch"
        );
        assert_eq!(inspect(&beyond, Some("GET"), true, None)["action"]["code"], "ResourceNotFound");
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let token = token("r", "2025-01-01", Some("10.0.0.1"));
        let shown = inspect(&format!("http://h/acct/People?{token}"), None, false, Some("10.0.0.2"));
        let codes: Vec<&str> =
            shown["problems"].as_array().unwrap().iter().map(|p| p["code"].as_str().unwrap()).collect();
        assert_eq!(
            codes,
            ["AuthenticationFailed", "AuthorizationProtocolMismatch", "AuthorizationSourceIPMismatch"]
        );
        let changed = token.replace("sp=r", "sp=raud");
        let shown = inspect(&format!("http://h/acct/Other?{changed}"), Some("GET"), true, None);
        let messages = shown["problems"].to_string();
        for part in ["fits none of the keys", "no longer valid", "another table"] {
            assert!(messages.contains(part), "{part}: {messages}");
        }
        assert_eq!((&shown["valid"], &shown["signedBy"]), (&json!(false), &Value::Null));
    }

    #[test]
    fn accounts_are_found_in_paths_and_host_names() {
        let found = |url: &str, account| {
            SasQuestion::new(url, account, |name| name == "acct").map(|q| (q.account, q.resource, q.token))
        };
        let own = |a: &str, b: &str, c: &str| Some((a.to_owned(), b.to_owned(), c.to_owned()));
        assert_eq!(found("http://h:1/acct/T()?sig=a", None), own("acct", "T()", "sig=a"));
        assert_eq!(found("http://h/acct-secondary/T?sig=a", None), own("acct", "T", "sig=a"));
        assert_eq!(found("https://acct.tables.example/T?sig=a", None), own("acct", "T", "sig=a"));
        assert_eq!(found("sig=a", Some("acct")), own("acct", "", "sig=a"));
        assert_eq!(found("?sig=a", Some("acct")), own("acct", "", "sig=a"));
        assert_eq!(found("http://h/other/T?sig=a", None), None);
        assert_eq!(found("sig=a", None), None);
    }

    #[test]
    fn hostile_tokens_are_refused() {
        for token in ["", "sig=%", "sig=AAAA", "sig=AAAA&tn=x\u{0}&sv=2019-02-02", "sig=AAAA&tn=abc&sv=1"] {
            let question = SasQuestion::new(token, Some("acct"), |_| false).unwrap();
            assert!(question.claim().is_err(), "{token}");
        }
    }
}
