//! Settings of the admin listener and of traces.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use ureq::http::{HeaderName, HeaderValue};

use super::{ConfigError, Settings, address, is_address, secret};
use crate::observe::trace::TraceSettings;
use crate::protocol::codec::uri::percent_decode;
use crate::server::admin::{AdminToken, ConsoleMode};

/// The default address of the admin listener.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 10_003));

/// The settings of the admin listener.
#[derive(Debug, Clone)]
pub(crate) struct AdminAddress {
    pub listen: SocketAddr,
    /// Whether the operator chose the address. Otherwise the server takes a different port if this one is in use.
    pub is_chosen: bool,
    /// Always set if other machines can reach the address.
    pub token: Option<AdminToken>,
    /// Whether test suites may reset and restore the stored data.
    pub test_mode: bool,
    pub console: ConsoleMode,
}

impl Settings {
    pub(super) fn traces(&self) -> Result<Option<TraceSettings>, ConfigError> {
        if !(0.0..=1.0).contains(&self.trace_ratio) {
            return Err(ConfigError::TraceRatio);
        }
        let Some(endpoint) = self.otlp_endpoint.as_deref().map(str::trim).filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        if !is_address(endpoint, &["http", "https"]) {
            return Err(ConfigError::OtlpEndpoint);
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
        Ok(Some(TraceSettings {
            endpoint: endpoint.to_owned(),
            headers: headers.collect::<Option<_>>().ok_or(ConfigError::OtlpHeaders)?,
            service: self.otlp_service_name.clone(),
            ratio: self.trace_ratio,
        }))
    }

    pub(super) fn admin(&self) -> Result<Option<AdminAddress>, ConfigError> {
        let chosen = self.admin_listen.as_deref().map(str::trim);
        let listen = match chosen {
            None if self.console == ConsoleMode::Off => None,
            None => Some(DEFAULT_LISTEN),
            Some("") => None,
            Some(text) => Some(address(text).ok_or_else(|| ConfigError::AdminListen(text.to_owned()))?),
        };
        let is_chosen = chosen.is_some();
        let test_mode = self.test_mode;
        if test_mode && !(is_chosen && listen.is_some()) {
            return Err(ConfigError::TestMode);
        }
        let Some(listen) = listen else { return Ok(None) };
        let token = self.admin_token(is_chosen)?;
        if token.is_none() && !listen.ip().is_loopback() {
            return Err(ConfigError::AdminToken(listen));
        }
        Ok(Some(AdminAddress { listen, is_chosen, token, test_mode, console: self.console }))
    }

    fn admin_token(&self, is_chosen: bool) -> Result<Option<AdminToken>, ConfigError> {
        let given = secret("--admin-token", &self.admin_token, &self.admin_token_file)?;
        // A blank token with an address is a mistake, because the operator intended to protect the listener.
        let is_blank = given.is_none() && (self.admin_token.is_some() || self.admin_token_file.is_some());
        match given.map(|text| AdminToken::new(&text)) {
            Some(Some(token)) => Ok(Some(token)),
            None if !(is_blank && is_chosen) => Ok(None),
            _ => Err(ConfigError::WeakToken),
        }
    }
}
