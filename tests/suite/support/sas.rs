//! Shared access signatures, written from protocol §10.5 and §10.6 on their
//! own, so that an error shared with the server cannot hide itself.

use super::client::{Account, Client};
use super::encode::escape;
use super::sign::hmac_base64;

/// A signature under construction: its fields in the order of the query.
#[derive(Clone)]
pub struct Sas {
    fields: Vec<(String, String)>,
    /// Which of the account's keys signs.
    key: usize,
}

impl Sas {
    /// For one table, valid for some time.
    pub fn table(name: &str, permissions: &str) -> Self {
        let sas = Self { fields: Vec::new(), key: 0 };
        sas.set("sv", "2019-02-02").set("tn", name).set("se", &time(3600)).set("sp", permissions)
    }

    /// For the table service of an account, valid for some time.
    pub fn account(resource_types: &str, permissions: &str) -> Self {
        let sas = Self { fields: Vec::new(), key: 0 };
        let sas = sas.set("sv", "2019-02-02").set("ss", "t").set("srt", resource_types);
        sas.set("se", &time(3600)).set("sp", permissions)
    }

    /// From the query of a request whose signature is unknown.
    pub fn from_fields<'f>(fields: impl IntoIterator<Item = (&'f str, &'f str)>) -> Self {
        let sas = Self { fields: Vec::new(), key: 0 };
        fields.into_iter().fold(sas, |sas, (name, value)| sas.set(name, value))
    }

    /// Sets a field in place of what was there.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        match self.fields.iter_mut().find(|(n, _)| n == name) {
            Some(field) => field.1 = value.into(),
            None => self.fields.push((name.into(), value.into())),
        }
        self
    }

    /// Leaves a field out.
    pub fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(n, _)| n != name);
        self
    }

    /// Signs with the account's second key.
    pub fn with_second_key(mut self) -> Self {
        self.key = 1;
        self
    }

    /// Relies on a stored policy for whatever is left out.
    pub fn with_policy(self, id: &str) -> Self {
        self.without("se").without("sp").set("si", id)
    }

    /// Restricts it to keys between two ends, which are among them.
    pub fn range(self, start: (Option<&str>, Option<&str>), end: (Option<&str>, Option<&str>)) -> Self {
        let bounds = [("spk", start.0), ("srk", start.1), ("epk", end.0), ("erk", end.1)];
        let given = bounds.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.fold(self, |sas, (name, value)| sas.set(name, value))
    }

    fn text(&self, name: &str) -> &str {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).unwrap_or_default()
    }

    fn string_to_sign(&self, account: &str) -> String {
        let version = self.text("sv");
        if self.fields.iter().any(|(name, _)| name == "ss") {
            let mut lines = vec![account];
            lines.extend(["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"].map(|name| self.text(name)));
            if version >= "2020-12-06" {
                lines.push(self.text("ses"));
            }
            return lines.iter().map(|line| format!("{line}\n")).collect();
        }
        let service = if version < "2015-02-21" { "" } else { "/table" };
        let resource = format!("{service}/{account}/{}", self.text("tn").to_lowercase());
        let mut lines = vec![self.text("sp"), self.text("st"), self.text("se"), &resource, self.text("si")];
        if version >= "2015-04-05" {
            lines.extend([self.text("sip"), self.text("spr")]);
        }
        lines.extend(["sv", "spk", "srk", "epk", "erk"].map(|name| self.text(name)));
        lines.join("\n")
    }

    /// The signature itself.
    pub fn signature(&self, account: &Account) -> String {
        hmac_base64(&account.keys[self.key], &self.string_to_sign(&account.name))
    }

    /// The query, with a signature for these fields.
    pub fn query(&self, account: &Account) -> String {
        self.query_signed(&self.signature(account))
    }

    /// The query, with this signature.
    pub fn query_signed(&self, signature: &str) -> String {
        let mut pairs: Vec<String> =
            self.fields.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect();
        pairs.push(format!("sig={}", escape(signature)));
        pairs.join("&")
    }

    /// A client of the same account that has only this.
    pub fn of(&self, client: &Client) -> Client {
        client.bearing(&self.query(&client.account))
    }
}

/// The current time, `seconds` later, as signatures write it.
pub fn time(seconds: i64) -> String {
    let time = chrono::Utc::now() + chrono::TimeDelta::seconds(seconds);
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[test]
fn each_generation_signs_its_own_string() {
    let sas = Sas::table("MyTable", "r").set("se", "E").range((Some("a"), None), (Some("b"), Some("c")));
    let signed = |version: &str| sas.clone().set("sv", version).string_to_sign("acct");
    assert_eq!(signed("2014-02-14"), "r\n\nE\n/acct/mytable\n\n2014-02-14\na\n\nb\nc");
    assert_eq!(signed("2015-02-21"), "r\n\nE\n/table/acct/mytable\n\n2015-02-21\na\n\nb\nc");
    assert_eq!(signed("2015-04-05"), "r\n\nE\n/table/acct/mytable\n\n\n\n2015-04-05\na\n\nb\nc");
    let sas = Sas::account("o", "r").set("se", "E");
    assert_eq!(sas.string_to_sign("acct"), "acct\nr\nt\no\n\nE\n\n\n2019-02-02\n");
    let sas = sas.set("sv", "2020-12-06");
    assert_eq!(sas.string_to_sign("acct"), "acct\nr\nt\no\n\nE\n\n\n2020-12-06\n\n");
}
