//! Request signing, written from protocol §10.1 to §10.3 on its own, so that
//! an error shared with the server cannot hide itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The parts of a request that a signature covers.
pub struct Signed<'a> {
    pub verb: &'a str,
    pub content_md5: &'a str,
    pub content_type: &'a str,
    /// `x-ms-date` if present, else `Date`, else empty.
    pub date: &'a str,
    pub account: &'a str,
    /// The request target exactly as sent.
    pub target: &'a str,
}

impl Signed<'_> {
    /// `/account` + raw path + `?comp=…` (protocol §10.3).
    fn resource(&self) -> String {
        let (path, query) = self.target.split_once('?').unwrap_or((self.target, ""));
        let comp = query.split('&').find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            name.eq_ignore_ascii_case("comp").then_some(value)
        });
        let suffix = comp.map(|value| format!("?comp={value}")).unwrap_or_default();
        format!("/{}{path}{suffix}", self.account)
    }

    /// The value of `Authorization` in the SharedKey scheme.
    pub fn shared_key(&self, key: &str) -> String {
        let text = format!(
            "{}\n{}\n{}\n{}\n{}",
            self.verb,
            self.content_md5,
            self.content_type,
            self.date,
            self.resource()
        );
        format!("SharedKey {}:{}", self.account, hmac_base64(key, &text))
    }

    /// The value of `Authorization` in the SharedKeyLite scheme.
    pub fn shared_key_lite(&self, key: &str) -> String {
        let text = format!("{}\n{}", self.date, self.resource());
        format!("SharedKeyLite {}:{}", self.account, hmac_base64(key, &text))
    }
}

/// base64(HMAC-SHA256(key, text)).
pub fn hmac_base64(key: &str, text: &str) -> String {
    let key = STANDARD.decode(key).expect("account keys are base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

/// The current time, `seconds` later, as HTTP writes dates.
pub fn http_date(seconds: i64) -> String {
    let time = chrono::Utc::now() + chrono::TimeDelta::seconds(seconds);
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[test]
fn the_resource_doubles_the_account_in_path_style_and_keeps_only_comp() {
    let mut request = Signed {
        verb: "GET",
        content_md5: "",
        content_type: "",
        date: "D",
        account: "acct",
        target: "/acct/T(PartitionKey='a%27%27b',RowKey='')?$filter=x&COMP=acl&restype=service",
    };
    assert_eq!(request.resource(), "/acct/acct/T(PartitionKey='a%27%27b',RowKey='')?comp=acl");
    request.target = "/Tables";
    assert_eq!(request.resource(), "/acct/Tables");
}
