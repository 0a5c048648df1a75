//! Issues SAS tokens (protocol §10.5, §10.6). [`super::sas`] reads and verifies them.

use chrono::{DateTime, TimeDelta, Utc};

use super::accounts::AccountKey;
use super::sas::{Claim, addresses};
use crate::codec::policies::read_time;
use crate::model::TableName;

/// Permission letters of a table SAS (read, add, update, delete) in the order that Azure requires.
const TABLE_PERMISSIONS: &str = "raud";
/// Permission letters of an account SAS in the order that Azure prints them.
const ACCOUNT_PERMISSIONS: &str = "rwdxylacuptfi";
/// Letters of an account's services: blobs, queues, tables, files.
const SERVICES: &str = "bqtf";
/// Letters of resource types: service, container, object.
const RESOURCE_TYPES: &str = "sco";

/// The resources that a SAS gives access to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SasSubject {
    /// One table, or a range of its keys.
    Table {
        table: String,
        /// A stored access policy, which may supply fields that are absent here.
        policy: Option<String>,
        /// Start and end of the key range, both inclusive, each with a partition key and a row key.
        start: (Option<String>, Option<String>),
        end: (Option<String>, Option<String>),
    },
    /// These resource types in these services of the account. `t` is the Table service.
    Account { services: String, resources: String },
}

/// The contents of an unsigned SAS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub subject: SasSubject,
    /// Permission letters in any order. `None` is valid only with a policy.
    pub permissions: Option<String>,
    /// Start time in the grammar of `read_time`.
    pub start: Option<String>,
    pub expiry: Option<String>,
    /// An address, or a range `low-high`.
    pub ip: Option<String>,
    /// `https` or `https,http`.
    pub protocol: Option<String>,
    /// The service version whose rules apply to the SAS, `YYYY-MM-DD`.
    pub version: String,
}

/// Why a SAS cannot be issued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    #[error("{0:?} is not the name of a table")]
    Table(String),
    #[error("a policy or a range of keys needs a table; name the table")]
    NoTable,
    #[error("services and resource types are only for a SAS of an account, but a table is named")]
    OfAccount,
    #[error("permissions {0:?}: must be some of {1}, each once")]
    Permissions(String, &'static str),
    #[error("services {0:?}: must be some of bqtf, with t for tables")]
    Services(String),
    #[error("resource types {0:?}: must be some of sco (service, container, object)")]
    Resources(String),
    #[error("{0} is required, unless a stored access policy states it")]
    Missing(&'static str),
    #[error(
        "{0:?} is not a time such as 2030-01-31 or 2030-01-31T12:00:00Z, nor seconds, minutes, hours or days such as 12h"
    )]
    Time(String),
    #[error("the token would expire before it starts")]
    Order,
    #[error("a range that starts or ends at a row key needs the partition key there too")]
    Range,
    #[error("a range cannot end with an empty key: the signature would allow a range without an end")]
    EmptyEnd,
    #[error("{0:?} is not an IP address or a range low-high of one family")]
    Ip(String),
    #[error("the protocol must be https or https,http")]
    Protocol,
    #[error("version {0:?}: not a date YYYY-MM-DD, or too old for these fields")]
    Version(String),
}

impl Grant {
    /// Returns the SAS as a query string, signed with a key of the account.
    ///
    /// # Errors
    /// [`GrantError`] for a SAS that the server would refuse.
    pub fn sign(&self, account: &str, key: &AccountKey) -> Result<String, GrantError> {
        let fields: Vec<(String, String)> = self
            .fields()?
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name.to_owned(), value)))
            .collect();
        // `fields` has reported all other errors.
        let claim = Claim::new(fields, Vec::new());
        Ok(claim.map_err(|_| GrantError::Version(self.version.clone()))?.signed(account, key))
    }

    fn fields(&self) -> Result<Vec<(&'static str, Option<String>)>, GrantError> {
        self.check()?;
        let mut fields = vec![("sv", Some(self.version.clone()))];
        let letters = match &self.subject {
            SasSubject::Table { table, policy, start, end } => {
                TableName::parse(table).map_err(|_| GrantError::Table(table.clone()))?;
                if [start, end].iter().any(|(partition, row)| row.is_some() && partition.is_none()) {
                    return Err(GrantError::Range);
                }
                if [&end.0, &end.1].into_iter().flatten().any(String::is_empty) {
                    return Err(GrantError::EmptyEnd);
                }
                fields.extend([("tn", Some(table.clone())), ("si", policy.clone())]);
                fields.extend([("spk", start.0.clone()), ("srk", start.1.clone())]);
                fields.extend([("epk", end.0.clone()), ("erk", end.1.clone())]);
                TABLE_PERMISSIONS
            }
            SasSubject::Account { services, resources } => {
                let known = sort_letters(services, SERVICES).filter(|letters| letters.contains('t'));
                let known = known.ok_or_else(|| GrantError::Services(services.clone()))?;
                let types = sort_letters(resources, RESOURCE_TYPES);
                let types = types.ok_or_else(|| GrantError::Resources(resources.clone()))?;
                fields.extend([("ss", Some(known)), ("srt", Some(types))]);
                ACCOUNT_PERMISSIONS
            }
        };
        let permissions = self.permissions.as_ref().map(|given| {
            sort_letters(given, letters).ok_or_else(|| GrantError::Permissions(given.clone(), letters))
        });
        fields.extend([("st", self.start.clone()), ("se", self.expiry.clone())]);
        fields.push(("sp", permissions.transpose()?));
        fields.extend([("sip", self.ip.clone()), ("spr", self.protocol.clone())]);
        Ok(fields)
    }

    fn check(&self) -> Result<(), GrantError> {
        let has_policy = matches!(&self.subject, SasSubject::Table { policy: Some(_), .. });
        for (name, given) in [("the expiry", &self.expiry), ("permissions", &self.permissions)] {
            if given.is_none() && !has_policy {
                return Err(GrantError::Missing(name));
            }
        }
        let time = |given: &Option<String>| {
            given
                .as_ref()
                .map(|text| read_time(text).ok_or_else(|| GrantError::Time(text.clone())))
                .transpose()
        };
        if let (Some(start), Some(expiry)) = (time(&self.start)?, time(&self.expiry)?)
            && start >= expiry
        {
            return Err(GrantError::Order);
        }
        if let Some(range) = &self.ip {
            let ends = addresses(range).filter(|(low, high)| low <= high);
            ends.ok_or_else(|| GrantError::Ip(range.clone()))?;
        }
        match self.protocol.as_deref() {
            None | Some("https" | "https,http") => Ok(()),
            Some(_) => Err(GrantError::Protocol),
        }
    }
}

/// Sorts the letters into the order of `known`. Returns `None` for unknown or duplicate letters and for an
/// empty text.
fn sort_letters(given: &str, known: &str) -> Option<String> {
    let kept: String = known.chars().filter(|letter| given.contains(*letter)).collect();
    (kept.len() == given.len() && !kept.is_empty()).then_some(kept)
}

/// Returns a time as given, or converts a number of seconds, minutes, hours or days from now.
///
/// # Errors
/// [`GrantError::Time`] for an invalid or too large number.
pub fn at_or_after(text: &str, now: DateTime<Utc>) -> Result<String, GrantError> {
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => return Ok(text.to_owned()),
    };
    let count: Option<i64> = text.get(..text.len() - 1).and_then(|number| number.parse().ok());
    let after = count.and_then(|count| TimeDelta::try_seconds(count.checked_mul(unit)?));
    let at = after.and_then(|after| now.checked_add_signed(after));
    let at = at.ok_or_else(|| GrantError::Time(text.to_owned()))?;
    Ok(at.format("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_be_relative() {
        let now = DateTime::from_timestamp(1_900_000_000, 0).unwrap();
        let expiry = |text| at_or_after(text, now);
        assert_eq!(expiry("90s").as_deref(), Ok("2030-03-17T17:48:10Z"));
        assert_eq!(expiry("2h").as_deref(), Ok("2030-03-17T19:46:40Z"));
        assert_eq!(expiry("1d").as_deref(), Ok("2030-03-18T17:46:40Z"));
        assert_eq!(expiry("2030-01-31").as_deref(), Ok("2030-01-31"));
        for wrong in ["d", "xd", "1.5h", "9223372036854775807d", "999999999999m"] {
            assert!(expiry(wrong).is_err(), "{wrong}");
        }
    }

    fn table() -> Grant {
        Grant {
            subject: SasSubject::Table {
                table: "People".into(),
                policy: None,
                start: (Some("a'b".into()), None),
                end: (None, None),
            },
            permissions: Some("dr".into()),
            start: None,
            expiry: Some("2030-01-01".into()),
            ip: None,
            protocol: None,
            version: "2019-02-02".into(),
        }
    }

    fn sign(change: impl FnOnce(&mut Grant)) -> Result<String, GrantError> {
        let mut grant = table();
        change(&mut grant);
        grant.sign("acct", &AccountKey::new(vec![7; 32]).unwrap())
    }

    #[test]
    fn letters_are_ordered_and_values_escaped() {
        let token = sign(|_| {}).unwrap();
        assert!(token.starts_with("sv=2019-02-02&tn=People&spk=a%27b&se=2030-01-01&sp=rd&sig="), "{token}");
        let token = sign(|g| {
            g.subject = SasSubject::Account { services: "tb".into(), resources: "os".into() };
            g.permissions = Some("lwr".into());
        });
        assert!(token.unwrap().starts_with("sv=2019-02-02&ss=bt&srt=so&se=2030-01-01&sp=rwl&sig="));
    }

    #[test]
    fn what_the_server_would_refuse_is_named() {
        let subject = |g: &mut Grant, s: &str, r: &str| {
            g.subject = SasSubject::Account { services: s.into(), resources: r.into() };
        };
        let text = |text: &str| text.to_owned();
        assert_eq!(
            sign(|g| g.permissions = Some(text("rx"))),
            Err(GrantError::Permissions(text("rx"), "raud"))
        );
        assert_eq!(
            sign(|g| g.permissions = Some(text("rr"))),
            Err(GrantError::Permissions(text("rr"), "raud"))
        );
        assert_eq!(sign(|g| g.permissions = None), Err(GrantError::Missing("permissions")));
        assert_eq!(sign(|g| g.expiry = None), Err(GrantError::Missing("the expiry")));
        for empty in [(Some(text("")), None), (Some(text("a")), Some(text("")))] {
            let outcome = sign(|g| match &mut g.subject {
                SasSubject::Table { end, .. } => *end = empty.clone(),
                SasSubject::Account { .. } => {}
            });
            assert_eq!(outcome, Err(GrantError::EmptyEnd));
        }
        assert_eq!(sign(|g| g.expiry = Some(text("soon"))), Err(GrantError::Time(text("soon"))));
        assert_eq!(sign(|g| g.start = Some(text("2031-01-01"))), Err(GrantError::Order));
        assert_eq!(sign(|g| g.ip = Some(text("1.1.1.1-::1"))), Err(GrantError::Ip(text("1.1.1.1-::1"))));
        assert_eq!(
            sign(|g| g.ip = Some(text("2.1.1.1-1.1.1.1"))),
            Err(GrantError::Ip(text("2.1.1.1-1.1.1.1")))
        );
        assert_eq!(sign(|g| g.protocol = Some(text("http"))), Err(GrantError::Protocol));
        assert_eq!(sign(|g| g.version = text("x")), Err(GrantError::Version(text("x"))));
        assert_eq!(sign(|g| subject(g, "b", "s")), Err(GrantError::Services(text("b"))));
        assert_eq!(sign(|g| subject(g, "t", "z")), Err(GrantError::Resources(text("z"))));
        let range = |table: &str, start| SasSubject::Table {
            table: text(table),
            policy: None,
            start,
            end: (None, None),
        };
        assert_eq!(sign(|g| g.subject = range("a", (None, None))), Err(GrantError::Table(text("a"))));
        assert_eq!(sign(|g| g.subject = range("abc", (None, Some(text("r"))))), Err(GrantError::Range));
    }
}
