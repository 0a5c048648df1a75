//! Settings of the admin listener and of traces.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use ureq::http::{HeaderName, HeaderValue};

use super::{Mistakes, Settings, is_url, resolve, secret};
use crate::observe::trace::TraceSettings;
use crate::protocol::codec::uri::percent_decode;
use crate::server::admin::{AdminToken, ConsoleMode};

/// The default address of the admin listener.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 10_003));

/// The settings of the admin listener.
#[derive(Debug, Clone)]
pub(crate) struct AdminAddress {
    pub listen: SocketAddr,
    /// Whether the operator chose the address. The server replaces the port of the default address if it is in use.
    pub is_chosen: bool,
    /// Always set if other machines can reach the address.
    pub token: Option<AdminToken>,
    /// Whether test suites may reset and restore the stored data.
    pub test_mode: bool,
    pub console: ConsoleMode,
}

impl Settings {
    pub(super) fn parse_traces(&self) -> Result<Option<TraceSettings>, String> {
        if !(0.0..=1.0).contains(&self.trace_ratio) {
            return Err("--trace-ratio: must be a number from 0 to 1".into());
        }
        let Some(endpoint) = self.otlp_endpoint.as_deref().map(str::trim).filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        if !is_url(endpoint, &["http", "https"]) {
            let problem = "--otlp-endpoint: must be an address that begins with http:// or https://";
            return Err(problem.into());
        }
        let pairs = self.otlp_headers.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let headers = pairs.map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let (name, value) = (name.trim(), percent_decode(value.trim())?);
            // An invalid header would make every batch of traces fail.
            HeaderName::from_bytes(name.as_bytes()).ok()?;
            HeaderValue::from_str(&value).ok()?;
            Some((name.to_owned(), value.into_owned()))
        });
        let headers = headers.collect::<Option<_>>().ok_or(
            "--otlp-headers: must be valid HTTP headers as name=value, separated by ',', with percent-encoded values",
        )?;
        Ok(Some(TraceSettings {
            endpoint: endpoint.to_owned(),
            headers,
            service: self.otlp_service_name.clone(),
            ratio: self.trace_ratio,
        }))
    }

    pub(super) fn parse_admin(&self) -> Result<Option<AdminAddress>, Mistakes> {
        let chosen = self.admin_listen.as_deref().map(str::trim);
        let listen = match chosen {
            None if self.console == ConsoleMode::Off => None,
            None => Some(DEFAULT_LISTEN),
            Some("") => None,
            Some(text) => Some(resolve(text).ok_or_else(|| {
                format!("--admin-listen {text}: not an address with a port, such as 127.0.0.1:10003")
            })?),
        };
        let is_chosen = chosen.is_some();
        let test_mode = self.test_mode;
        if test_mode && !(is_chosen && listen.is_some()) {
            let problem =
                "--test-mode: needs --admin-listen, the address to which test suites send their requests";
            return Err(problem.into());
        }
        let Some(listen) = listen else { return Ok(None) };
        let token = self.admin_token(is_chosen)?;
        if token.is_none() && !listen.ip().is_loopback() {
            return Err(format!(
                "--admin-listen {listen}: other machines can reach this address, so --admin-token is required"
            )
            .into());
        }
        Ok(Some(AdminAddress { listen, is_chosen, token, test_mode, console: self.console }))
    }

    fn admin_token(&self, is_chosen: bool) -> Result<Option<AdminToken>, Mistakes> {
        let given = secret("--admin-token", &self.admin_token, &self.admin_token_file)?;
        // A blank token with an address is a mistake, because the operator intended to protect the listener.
        let is_blank = given.is_none() && (self.admin_token.is_some() || self.admin_token_file.is_some());
        match given.map(|text| AdminToken::new(&text)) {
            Some(Some(token)) => Ok(Some(token)),
            None if !(is_blank && is_chosen) => Ok(None),
            _ => Err("--admin-token: must have at least 16 characters and no spaces; `openssl rand -hex 16` generates a \
                      token"
                .into()),
        }
    }
}
