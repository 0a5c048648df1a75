//! Requests as bytes, each one signed.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::options::{Options, Scheme};

/// The part of a request that differs between requests.
#[derive(Debug, Default, Clone, Copy)]
pub struct Ask<'a> {
    pub method: &'a str,
    /// Below the account, with its slash.
    pub path: &'a str,
    /// Without the question mark.
    pub query: &'a str,
    pub accept: &'a str,
    pub content_type: &'a str,
    pub if_match: &'a str,
    pub body: &'a [u8],
}

pub const JSON: &str = "application/json";
pub const NO_METADATA: &str = "application/json;odata=nometadata";

/// Writes and signs requests for one account.
pub struct Writer {
    key: Hmac<Sha256>,
    scheme: Scheme,
    account: String,
    host: String,
    base: String,
    /// The second that `date` shows.
    second: u64,
    date: String,
    buffer: Vec<u8>,
}

impl Writer {
    pub fn new(options: &Options) -> Result<Self, String> {
        let rest = options.endpoint.strip_prefix("http://").ok_or("--endpoint must begin with http://")?;
        let (host, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let key = STANDARD.decode(&options.key).map_err(|error| format!("--key: {error}"))?;
        Ok(Self {
            key: Hmac::new_from_slice(&key).map_err(|error| format!("--key: {error}"))?,
            scheme: options.scheme,
            account: options.account.clone(),
            host: host.to_owned(),
            base: base.trim_end_matches('/').to_owned(),
            second: 0,
            date: String::new(),
            buffer: Vec::new(),
        })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    /// What addresses of this account start with.
    pub fn address(&self) -> String {
        format!("http://{}{}", self.host, self.base)
    }

    pub fn write(&mut self, ask: &Ask<'_>) -> &[u8] {
        self.look_at_clock();
        let signature = self.sign(ask);
        let out = &mut self.buffer;
        out.clear();
        let mark = if ask.query.is_empty() { "" } else { "?" };
        let scheme = match self.scheme {
            Scheme::Lite => "SharedKeyLite",
            Scheme::Full => "SharedKey",
        };
        let _ = write!(
            out,
            "{} {}{}{mark}{} HTTP/1.1\r\nHost: {}\r\nx-ms-date: {}\r\nx-ms-version: 2019-02-02\r\n\
             Authorization: {scheme} {}:{signature}\r\nAccept: {}\r\nDataServiceVersion: 3.0\r\n\
             Content-Length: {}\r\n",
            ask.method,
            self.base,
            ask.path,
            ask.query,
            self.host,
            self.date,
            self.account,
            if ask.accept.is_empty() { NO_METADATA } else { ask.accept },
            ask.body.len(),
        );
        let prefer = if ask.method == "POST" { "return-no-content" } else { "" };
        let some = [("Content-Type", ask.content_type), ("If-Match", ask.if_match), ("Prefer", prefer)];
        for (name, value) in some {
            if !value.is_empty() {
                let _ = write!(out, "{name}: {value}\r\n");
            }
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(ask.body);
        out
    }

    fn sign(&self, ask: &Ask<'_>) -> String {
        let mut mac = self.key.clone();
        let mut update = |piece: &str| mac.update(piece.as_bytes());
        if self.scheme == Scheme::Full {
            [ask.method, "\n\n", ask.content_type, "\n"].into_iter().for_each(&mut update);
        }
        [self.date.as_str(), "\n/", &self.account, &self.base, ask.path].into_iter().for_each(update);
        STANDARD.encode(mac.finalize().into_bytes())
    }

    fn look_at_clock(&mut self) {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second {
            self.second = second;
            self.date = DateTime::from_timestamp_secs(i64::try_from(second).unwrap_or(0))
                .unwrap_or_default()
                .format("%a, %d %b %Y %H:%M:%S GMT")
                .to_string();
        }
    }
}
