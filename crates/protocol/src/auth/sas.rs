//! Shared access signatures (SAS) for tables and for accounts (protocol §10.5, §10.6).

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::accounts::AccountKey;
use super::permissions::{Identity, KeyRange};
use crate::codec::policies::{Policy, is_permission, read_time};
use crate::codec::uri::escape;
use crate::error::{Code, Error, Result};
use crate::model::{TableName, Ticks};
use crate::request::head::is_date;
use crate::request::options::Options;

/// The fields that a table SAS or an account SAS may have.
const FIELDS: [&str; 18] = [
    "sv",
    "tn",
    "st",
    "se",
    "sp",
    "spk",
    "srk",
    "epk",
    "erk",
    "si",
    "sip",
    "spr",
    "sig",
    "ss",
    "srt",
    "ses",
    "api-version",
    "comp",
];
/// Fields of a user delegation SAS or of a SAS for other services. A SAS with one of these fields is refused.
const UNSUPPORTED_FIELDS: [&str; 14] = [
    "sr", "sdd", "snapshot", "rscc", "rscd", "rsce", "rscl", "rsct", "skoid", "sktid", "skt", "ske", "sks",
    "skv",
];

/// An unverified SAS, as given in a query string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    fields: Vec<(String, String)>,
    signature: Vec<u8>,
    /// The table of the SAS; `None` for a SAS of the account.
    table: Option<TableName>,
}

/// The fields of a SAS that a stored policy may supply.
struct Terms {
    start: Option<String>,
    expiry: String,
    permissions: String,
}

/// The result of checking a SAS completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SasFindings {
    /// The position of the key that signed the SAS.
    pub signed_by: Option<usize>,
    /// Every reason to refuse the SAS. The first one is the error that clients get.
    pub problems: Vec<Error>,
    /// The permissions of the SAS, valid or not, if its fields are sufficient to determine them.
    pub identity: Option<Identity>,
}

/// The circumstances in which a SAS is used.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    pub now: Ticks,
    pub secure: bool,
    pub peer: Option<IpAddr>,
}

fn failed(reason: impl Into<Box<str>>) -> Error {
    Error::from(Code::AuthenticationFailed).with_reason(reason)
}

impl Claim {
    /// Reads the SAS of a request, if it has one.
    ///
    /// # Errors
    /// [`Code::AuthenticationFailed`] for duplicate fields, fields of other services, a mixture of both kinds
    /// of SAS, and malformed values.
    pub fn read(options: &Options) -> Result<Option<Self>> {
        if options.get("sig").is_none() {
            return Ok(None);
        }
        let mut fields: Vec<(String, String)> = Vec::new();
        for (name, value) in options.pairs() {
            // The retired Java SDK sends the value of `srt` in `sr` too.
            let is_repeated = name == "sr" && options.get("srt") == Some(value);
            if UNSUPPORTED_FIELDS.contains(&name) && !is_repeated {
                return Err(failed(format!("{name} belongs to signatures of other services")));
            }
            if !FIELDS.contains(&name) {
                continue;
            }
            if fields.iter().any(|(n, _)| n == name) {
                return Err(failed(format!("{name} is given twice")));
            }
            fields.push((name.to_owned(), value.to_owned()));
        }
        let signature = fields.iter().find(|(name, _)| name == "sig");
        let signature = signature.and_then(|(_, s)| STANDARD.decode(s).ok());
        let signature = signature.ok_or_else(|| failed("sig is not base64"))?;
        Self::new(fields, signature).map(Some)
    }

    /// Checks that the combination of fields is well-formed. The signature is verified or computed later.
    pub(super) fn new(fields: Vec<(String, String)>, signature: Vec<u8>) -> Result<Self> {
        let field = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let table = match (field("tn"), field("ss").or(field("srt"))) {
            (Some(table), None) => {
                let name = TableName::parse(table);
                Some(name.map_err(|_| failed(format!("tn is {table:?}, which names no table")))?)
            }
            (None, Some(_)) => None,
            _ => return Err(failed("either tn, for a table, or ss and srt, for the account, are needed")),
        };
        let claim = Self { fields, signature, table };
        claim.check_shape()?;
        Ok(claim)
    }

    /// Signs the fields, and returns them with the signature as a query string.
    pub(super) fn signed(&self, account: &str, key: &AccountKey) -> String {
        let signature = STANDARD.encode(key.sign([self.string_to_sign(account).as_str()]));
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let pairs = fields.chain([("sig", signature.as_str())]);
        pairs.map(|(name, value)| format!("{name}={}", escape(value))).collect::<Vec<_>>().join("&")
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns the field, or an empty text if it is absent, as in strings to sign.
    fn text(&self, name: &str) -> &str {
        self.field(name).unwrap_or_default()
    }

    fn check_shape(&self) -> Result<()> {
        let has = |name: &str| self.field(name).is_some();
        let version = self.text("sv");
        let (oldest, foreign): (&str, &[&str]) = match self.table {
            Some(_) => ("2012-02-12", &["ss", "srt", "ses"]),
            None => ("2015-04-05", &["tn", "spk", "srk", "epk", "erk", "si"]),
        };
        // UNVERIFIED: Azure's behaviour for an empty end is not known.
        let has_no_empty_end = !["epk", "erk"].iter().any(|name| self.field(name) == Some(""));
        let rows_have_partitions = (has("spk") || !has("srk")) && (has("epk") || !has("erk"));
        // A field that the version does not sign must be refused, because anyone could add or remove it.
        let version_signs_fields = (version >= "2015-04-05" || !(has("sip") || has("spr")))
            && (version >= "2020-12-06" || !has("ses"));
        let rules = [
            (
                is_date(version) && version >= oldest,
                "sv is no version from which on there are such signatures",
            ),
            (rows_have_partitions, "srk needs spk, and erk needs epk"),
            (
                has_no_empty_end,
                "an empty epk or erk is signed as none would be, so its holder could leave it out",
            ),
            (version_signs_fields, "sip and spr came with version 2015-04-05, ses with 2020-12-06"),
            (!foreign.iter().any(|name| has(name)), "fields for tables and for accounts are mixed"),
            (matches!(self.field("spr"), None | Some("https" | "https,http")), "spr is https or https,http"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => Err(failed(rule)),
        }
    }

    /// Returns the table and the stored access policy that the SAS names.
    pub fn policy(&self) -> Option<(&TableName, &str)> {
        self.table.as_ref().zip(self.field("si").filter(|id| !id.is_empty()))
    }

    /// Verifies the SAS and returns its identity. `policies` are the stored policies of the table, if
    /// [`Claim::policy`] names one.
    ///
    /// # Errors
    /// [`Code::AuthenticationFailed`] for a wrong signature, an unknown policy, a field in both the SAS and
    /// the policy, and outside the validity period; [`Code::AuthorizationServiceMismatch`],
    /// [`Code::AuthorizationProtocolMismatch`] and [`Code::AuthorizationSourceIpMismatch`] for uses that the
    /// SAS excludes.
    pub fn verify(
        &self,
        account: &str,
        keys: &[AccountKey],
        policies: &[Policy],
        usage: &Use,
    ) -> Result<Identity> {
        self.signed_by(account, keys)?;
        let terms = self.terms(policies)?;
        terms.check_time(usage.now)?;
        self.check_protocol(usage.secure)?;
        self.check_source(usage.peer)?;
        self.identity(terms.permissions)
    }

    /// Checks the SAS like [`Claim::verify`], but returns all errors. Without a client address, every address is
    /// accepted.
    pub(crate) fn findings(
        &self,
        account: &str,
        keys: &[AccountKey],
        policies: &[Policy],
        usage: &Use,
    ) -> SasFindings {
        let (signed_by, terms) = (self.signed_by(account, keys), self.terms(policies));
        let mut problems: Vec<Error> = Vec::new();
        problems.extend(signed_by.as_ref().err().cloned());
        problems.extend(terms.as_ref().err().cloned());
        problems.extend(terms.as_ref().ok().and_then(|terms| terms.check_time(usage.now).err()));
        problems.extend(self.check_protocol(usage.secure).err());
        problems.extend(usage.peer.and_then(|peer| self.check_source(Some(peer)).err()));
        let identity = terms.ok().map(|terms| self.identity(terms.permissions));
        let identity = identity.and_then(|identity| identity.map_err(|error| problems.push(error)).ok());
        SasFindings { signed_by: signed_by.ok(), problems, identity }
    }

    /// Returns the position of the key that signed the SAS.
    ///
    /// # Errors
    /// [`Code::AuthenticationFailed`] if none of the keys signed the SAS.
    pub fn signed_by(&self, account: &str, keys: &[AccountKey]) -> Result<usize> {
        let text = self.string_to_sign(account);
        let signed = |key: &AccountKey| bool::from(key.sign([text.as_str()]).ct_eq(&self.signature));
        let unsigned = || {
            failed(format!(
                "the signature fits none of the keys of {account}; is the key right? The text to sign is {text:?}"
            ))
        };
        keys.iter().position(signed).ok_or_else(unsigned)
    }

    /// Returns the stored policy that the SAS names, if any.
    fn find_policy<'p>(&self, policies: &'p [Policy]) -> Result<Option<&'p Policy>> {
        let Some((table, id)) = self.policy() else { return Ok(None) };
        let unknown = || failed(format!("{} has no stored policy {id:?}", table.as_given()));
        policies.iter().find(|policy| policy.id == id).map(Some).ok_or_else(unknown)
    }

    /// Returns the fields that a stored policy may supply.
    fn terms(&self, policies: &[Policy]) -> Result<Terms> {
        let policy = self.find_policy(policies)?;
        let merged = |name: &str, stored: Option<&str>| -> Result<Option<String>> {
            match (self.field(name).filter(|v| !v.is_empty()), stored) {
                (Some(_), Some(_)) => Err(failed(format!("{name} is in the signature and in its policy"))),
                (own, stored) => Ok(own.or(stored).map(str::to_owned)),
            }
        };
        let start = merged("st", policy.and_then(|p| p.start.as_deref()))?;
        let missing = |name: &str| failed(format!("{name} is neither in the signature nor in a policy"));
        let expiry = merged("se", policy.and_then(|p| p.expiry.as_deref()))?.ok_or_else(|| missing("se"))?;
        let permissions =
            merged("sp", policy.and_then(|p| p.permission.as_deref()))?.ok_or_else(|| missing("sp"))?;
        Ok(Terms { start, expiry, permissions })
    }

    /// Returns the identity of the holder of a valid signature with these permissions.
    fn identity(&self, permissions: String) -> Result<Identity> {
        match &self.table {
            Some(_) if !is_permission(&permissions) => {
                Err(failed(format!("sp is {permissions:?}, not r, a, u, d in this order")))
            }
            Some(table) => Ok(Identity::TableSas {
                table: table.lower().to_owned(),
                permissions,
                range: KeyRange::from_bounds(
                    self.field("spk"),
                    self.field("srk"),
                    self.field("epk"),
                    self.field("erk"),
                ),
            }),
            None if !self.text("ss").contains('t') => Err(Code::AuthorizationServiceMismatch.into()),
            None => Ok(Identity::AccountSas { permissions, resource_types: self.text("srt").to_owned() }),
        }
    }

    fn check_protocol(&self, secure: bool) -> Result<()> {
        match self.field("spr") {
            Some("https") if !secure => Err(Code::AuthorizationProtocolMismatch.into()),
            _ => Ok(()),
        }
    }

    fn check_source(&self, peer: Option<IpAddr>) -> Result<()> {
        let Some(range) = self.field("sip").filter(|range| !range.is_empty()) else { return Ok(()) };
        let unreadable = || failed(format!("sip is {range:?}, neither an address nor a range of one kind"));
        let (low, high) = addresses(range).ok_or_else(unreadable)?;
        let peer = peer.map(|peer| peer.to_canonical());
        if peer.is_some_and(|peer| low.is_ipv4() == peer.is_ipv4() && (low..=high).contains(&peer)) {
            return Ok(());
        }
        let address = peer.map(|peer| peer.to_string()).unwrap_or_default();
        Err(Error::with_message(
            Code::AuthorizationSourceIpMismatch,
            format!(
                "This request is not authorized to perform this operation using this source IP {address}."
            ),
        ))
    }

    /// Returns the fields as given, without the signature.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.fields.iter().filter(|(name, _)| name != "sig");
        fields.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns whether this is a table SAS rather than an account SAS.
    pub(crate) const fn is_of_table(&self) -> bool {
        self.table.is_some()
    }

    /// Builds the string to sign for the kind and version of this SAS.
    pub(crate) fn string_to_sign(&self, account: &str) -> String {
        let version = self.text("sv");
        let join = |names: &[&str]| names.iter().map(|n| self.text(n)).collect::<Vec<_>>().join("\n");
        match &self.table {
            None => {
                let tail =
                    if version >= "2020-12-06" { format!("{}\n", self.text("ses")) } else { String::new() };
                let fields = join(&["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"]);
                format!("{account}\n{fields}\n{tail}")
            }
            Some(table) => {
                let prefix = if version >= "2015-02-21" { "/table" } else { "" };
                let resource = format!("{prefix}/{account}/{}", table.lower());
                let restrictions: &[&str] = if version >= "2015-04-05" { &["sip", "spr"] } else { &[] };
                let middle = [&["si"][..], restrictions, &["sv", "spk", "srk", "epk", "erk"]].concat();
                format!("{}\n{resource}\n{}", join(&["sp", "st", "se"]), join(&middle))
            }
        }
    }
}

/// Parses one address, or a range `low-high` of one address family. IPv4-mapped IPv6 addresses count as IPv4.
/// A range with reversed ends is empty.
pub(super) fn addresses(range: &str) -> Option<(IpAddr, IpAddr)> {
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    let read = |text: &str| text.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let (low, high) = (read(low)?, read(high)?);
    (low.is_ipv4() == high.is_ipv4()).then_some((low, high))
}

impl Terms {
    /// Checks the validity period: from the start, inclusive, until the expiry, exclusive.
    fn check_time(&self, now: Ticks) -> Result<()> {
        let read = |name: &str, text: &str| {
            read_time(text).ok_or_else(|| failed(format!("{name} is {text:?}, which is no time")))
        };
        let (start, expiry) = (self.start.as_deref(), self.expiry.as_str());
        if start.map(|text| read("st", text)).transpose()?.is_some_and(|start| start > now) {
            return Err(failed(format!("not valid yet: st is {start:?}")));
        }
        if read("se", expiry)? <= now {
            return Err(failed(format!("no longer valid: se is {expiry:?}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(query: &str) -> Result<Claim, Code> {
        let options = Options::parse(query).unwrap();
        Claim::read(&options).map_err(|e| e.code).map(|c| c.expect("a signature"))
    }

    #[test]
    fn each_version_signs_its_own_string() {
        let table =
            "tn=MyTable&sp=raud&st=2020-01-01&se=2030-01-01T00:00:00Z&si=id&spk=a&srk=b&epk=c&erk=d&sig=AAAA";
        let string = |rest: &str| claim(&format!("{table}&{rest}")).unwrap().string_to_sign("acct");
        let head = "raud\n2020-01-01\n2030-01-01T00:00:00Z";
        assert_eq!(string("sv=2014-02-14"), format!("{head}\n/acct/mytable\nid\n2014-02-14\na\nb\nc\nd"));
        assert_eq!(
            string("sv=2015-02-21"),
            format!("{head}\n/table/acct/mytable\nid\n2015-02-21\na\nb\nc\nd")
        );
        assert_eq!(
            string("sv=2019-02-02&sip=1.2.3.4&spr=https"),
            format!("{head}\n/table/acct/mytable\nid\n1.2.3.4\nhttps\n2019-02-02\na\nb\nc\nd")
        );
        let bare = claim("tn=abc&sv=2019-02-02&se=2030-01-01&sp=r&sig=AAAA").unwrap();
        assert_eq!(bare.string_to_sign("acct"), "r\n\n2030-01-01\n/table/acct/abc\n\n\n\n2019-02-02\n\n\n\n");
        let account = "ss=bt&srt=sco&sp=rl&st=x&se=2030-01-01&sip=1.1.1.1&spr=https,http&sig=AAAA";
        let string = |rest: &str| claim(&format!("{account}&{rest}")).unwrap().string_to_sign("acct");
        let fields = "acct\nrl\nbt\nsco\nx\n2030-01-01\n1.1.1.1\nhttps,http";
        assert_eq!(string("sv=2019-02-02"), format!("{fields}\n2019-02-02\n"));
        assert_eq!(string("sv=2020-12-06"), format!("{fields}\n2020-12-06\n\n"));
        assert_eq!(string("sv=2020-12-06&ses=scope"), format!("{fields}\n2020-12-06\nscope\n"));
    }

    #[test]
    fn malformed_signatures_are_refused_before_anything_is_computed() {
        for query in [
            "sig=AAAA",
            "sig=!&tn=abc&sv=2019-02-02",
            "tn=abc&sig=AAAA",
            "tn=abc&sv=latest&sig=AAAA",
            "tn=abc&sv=2011-08-18&sig=AAAA",
            "tn=a&sv=2019-02-02&sig=AAAA",
            "tn=abc&sv=2019-02-02&sig=AAAA&sig=AAAA",
            "tn=abc&sv=2019-02-02&sp=r&sp=raud&sig=AAAA",
            "tn=abc&sv=2019-02-02&srk=x&sig=AAAA",
            "tn=abc&sv=2019-02-02&erk=x&sig=AAAA",
            "tn=abc&ss=t&sv=2019-02-02&sig=AAAA",
            "ss=t&srt=o&spk=a&sv=2019-02-02&sig=AAAA",
            "ss=t&srt=o&sv=2014-02-14&sig=AAAA",
            "tn=abc&sv=2019-02-02&skoid=x&sig=AAAA",
            "tn=abc&sv=2019-02-02&sr=b&sig=AAAA",
            "ss=t&srt=o&sv=2019-02-02&sr=c&sig=AAAA",
            "tn=abc&srt=o&sv=2019-02-02&sr=o&sig=AAAA",
            "tn=abc&sv=2019-02-02&spr=http&sig=AAAA",
            "tn=abc&sv=2014-02-14&sip=1.1.1.1&sig=AAAA",
            "ss=t&srt=o&sv=2019-02-02&ses=scope&sig=AAAA",
        ] {
            assert_eq!(claim(query).unwrap_err(), Code::AuthenticationFailed, "{query}");
        }
        assert_eq!(Claim::read(&Options::parse("tn=abc&sv=2019-02-02").unwrap()), Ok(None));
    }

    fn used(query: &str, policies: &[Policy], usage: &Use) -> Result<Identity, Code> {
        let key = [7_u8; 32];
        let text = claim(&format!("{query}&sig=AAAA")).unwrap().string_to_sign("acct");
        let signature =
            STANDARD.encode(AccountKey::new(key.to_vec()).unwrap().sign([text.as_str()])).replace('+', "%2B");
        let keys = crate::auth::AccountSet::parse(&format!("acct:{}", STANDARD.encode(key)), vec![]).unwrap();
        claim(&format!("{query}&sig={signature}"))
            .unwrap()
            .verify("acct", keys.keys("acct").unwrap(), policies, usage)
            .map_err(|e| e.code)
    }

    fn at(time: &str, secure: bool, peer: &str) -> Use {
        Use { now: Ticks::parse(time).unwrap(), secure, peer: Some(peer.parse().unwrap()) }
    }

    #[test]
    fn time_protocol_and_source_are_enforced() {
        let now = at("2026-01-02T00:00:00Z", false, "10.0.0.5");
        let table = "tn=abc&sv=2019-02-02&sp=r";
        let failed = Err(Code::AuthenticationFailed);
        let outcome = |rest: &str| used(&format!("{table}&{rest}"), &[], &now).map(drop);
        assert_eq!(outcome("se=2026-01-03"), Ok(()));
        assert_eq!(outcome("se=2026-01-03&st=2026-01-02"), Ok(()));
        assert_eq!(outcome("se=2026-01-02T00:00:00Z"), failed);
        assert_eq!(outcome("se=2026-01-03&st=2026-01-02T00:00:01Z"), failed);
        assert_eq!(outcome("se=nonsense"), failed);
        assert_eq!(outcome("st=2026-01-01"), failed);
        assert_eq!(outcome("se=2026-01-03&spr=https"), Err(Code::AuthorizationProtocolMismatch));
        assert_eq!(outcome("se=2026-01-03&spr=https,http"), Ok(()));
        assert_eq!(outcome("se=2026-01-03&sip=10.0.0.5"), Ok(()));
        assert_eq!(outcome("se=2026-01-03&sip=10.0.0.1-10.0.0.9"), Ok(()));
        assert_eq!(outcome("se=2026-01-03&sip=10.0.0.6"), Err(Code::AuthorizationSourceIpMismatch));
        assert_eq!(outcome("se=2026-01-03&sip=nonsense"), failed);
        let account = "ss=b&srt=o&sv=2019-02-02&sp=r&se=2026-01-03";
        assert_eq!(used(account, &[], &now), Err(Code::AuthorizationServiceMismatch));
    }

    #[test]
    fn sources_are_compared_within_their_family() {
        let (yes, no) = (Ok(()), Err(Code::AuthorizationSourceIpMismatch));
        let malformed = Err(Code::AuthenticationFailed);
        for (range, peer, expected) in [
            ("10.0.0.5", "10.0.0.5", yes),
            ("10.0.0.5", "::ffff:10.0.0.5", yes),
            ("::ffff:10.0.0.5", "10.0.0.5", yes),
            ("::ffff:10.0.0.1-::ffff:10.0.0.9", "10.0.0.9", yes),
            ("10.0.0.1-::ffff:10.0.0.9", "::ffff:10.0.0.1", yes),
            ("10.0.0.1-10.0.0.4", "::ffff:10.0.0.5", no),
            ("::ffff:10.0.0.6", "10.0.0.5", no),
            ("2001:db8::1-2001:db8::ff", "2001:db8::1", yes),
            ("2001:db8::1-2001:db8::ff", "2001:db8::ff", yes),
            ("2001:db8::1-2001:db8::ff", "2001:db8::100", no),
            ("2001:DB8:0:0::a", "2001:db8::a", yes),
            ("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "10.0.0.5", no),
            ("0.0.0.0-255.255.255.255", "::1", no),
            ("0.0.0.0-255.255.255.255", "10.0.0.5", yes),
            // Reversed ends: the range is empty.
            ("10.0.0.9-10.0.0.1", "10.0.0.5", no),
            ("2001:db8::ff-2001:db8::1", "2001:db8::5", no),
            // Two address families: invalid as a range.
            ("0.0.0.0-::1", "10.0.0.5", malformed),
            ("::1-255.255.255.255", "10.0.0.5", malformed),
            ("0.0.0.0-ffff::", "::1", malformed),
            ("10.0.0.1-10.0.0.9-10.0.0.11", "10.0.0.5", malformed),
            ("[::1]", "::1", malformed),
            ("fe80::1%eth0", "fe80::1", malformed),
            ("10.0.0.1 - 10.0.0.9", "10.0.0.5", malformed),
            ("010.0.0.5", "10.0.0.5", malformed),
        ] {
            let range = range.replace('%', "%25");
            let query = format!("tn=abc&sv=2019-02-02&sp=r&se=2026-01-03&sip={range}");
            let found = used(&query, &[], &at("2026-01-02T00:00:00Z", true, peer)).map(drop);
            assert_eq!(found, expected, "{peer} in {range}");
        }
        let nowhere = Use { peer: None, ..at("2026-01-02T00:00:00Z", true, "::1") };
        assert_eq!(used("tn=abc&sv=2019-02-02&sp=r&se=2026-01-03&sip=10.0.0.5", &[], &nowhere).map(drop), no);
    }

    #[test]
    fn policies_fill_what_the_signature_leaves_out_and_nothing_twice() {
        let now = at("2026-01-02T00:00:00Z", true, "::1");
        let policy = |expiry: Option<&str>, permission: Option<&str>| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            vec![Policy { id: "id".into(), start: None, expiry: own(expiry), permission: own(permission) }]
        };
        let full = policy(Some("2026-01-03"), Some("r"));
        let base = "tn=abc&sv=2019-02-02";
        let failed = Err(Code::AuthenticationFailed);
        let outcome =
            |rest: &str, policies: &[Policy]| used(&format!("{base}&{rest}"), policies, &now).map(drop);
        assert_eq!(outcome("si=id", &full), Ok(()));
        assert_eq!(outcome("si=id&sp=r", &policy(Some("2026-01-03"), None)), Ok(()));
        assert_eq!(outcome("si=id&sp=r", &full), failed);
        assert_eq!(outcome("si=id&se=2026-01-03", &full), failed);
        assert_eq!(outcome("si=other", &full), failed);
        assert_eq!(outcome("si=id", &[]), failed);
        assert_eq!(outcome("si=id", &policy(Some("2026-01-01"), Some("r"))), failed);
        assert_eq!(outcome("si=id", &policy(None, Some("r"))), failed);
        assert_eq!(outcome("si=id", &policy(Some("2026-01-03"), None)), failed);
    }

    #[test]
    fn a_signature_covers_every_field() {
        let now = at("2026-01-02T00:00:00Z", true, "::1");
        let keys = crate::auth::AccountSet::parse("acct:AQID", vec![]).unwrap();
        let query = "tn=abc&sv=2019-02-02&sp=r&se=2026-01-03&spk=a&srk=b&epk=c&erk=d";
        let text = claim(&format!("{query}&sig=AAAA")).unwrap().string_to_sign("acct");
        let signature = STANDARD
            .encode(AccountKey::new(vec![1, 2, 3]).unwrap().sign([text.as_str()]))
            .replace('+', "%2B");
        let verify = |query: &str| {
            claim(&format!("{query}&sig={signature}"))
                .and_then(|c| c.verify("acct", keys.keys("acct").unwrap(), &[], &now).map_err(|e| e.code))
        };
        assert!(verify(query).is_ok());
        for (from, to) in [
            ("tn=abc", "tn=abd"),
            ("sp=r", "sp=raud"),
            ("se=2026-01-03", "se=2027-01-03"),
            ("spk=a", "spk="),
            ("&srk=b", ""),
            ("epk=c", "epk=z"),
            ("erk=d", "erk=z"),
            ("sv=2019-02-02", "sv=2020-12-06"),
            ("sp=r", "sp=r&st=2025-01-01"),
            ("sp=r", "sp=r&si=x"),
        ] {
            assert!(verify(&query.replace(from, to)).is_err(), "{from} became {to}");
        }
    }
}
