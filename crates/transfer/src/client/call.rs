//! One request to a Table endpoint.

use super::address::{Address, EndpointCredentials};
use crate::protocol::codec::uri::escape;
use crate::protocol::model::Ticks;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The newest version that the recordings cover.
const VERSION: &str = "2019-02-02";

/// A request before it is signed.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientCall {
    pub method: &'static str,
    /// The path below the endpoint, escaped: `/Tables`, `/People()`.
    pub path: String,
    /// Names and values, not escaped.
    pub query: Vec<(&'static str, String)>,
    pub accept: Option<&'static str>,
    pub content_type: Option<String>,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// The statuses that mean that it was done.
    pub success: &'static [u16],
}

impl ClientCall {
    /// Returns a GET, which 200 answers.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        let accept = Some(super::answer::JSON);
        Self { method: "GET", path: path.into(), accept, success: &[200], ..Self::default() }
    }

    /// Returns a request with a body, which 204 answers.
    pub(crate) fn with_body(
        method: &'static str,
        path: impl Into<String>,
        content_type: impl Into<String>,
        body: Vec<u8>,
    ) -> Self {
        let accept = Some(super::answer::JSON);
        Self {
            method,
            path: path.into(),
            accept,
            content_type: Some(content_type.into()),
            body,
            success: &[204],
            ..Self::default()
        }
    }

    /// Sets the statuses that mean that it was done.
    pub(crate) fn succeeds_with(mut self, success: &'static [u16]) -> Self {
        self.success = success;
        self
    }

    /// Adds a parameter to the query string.
    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Asks for XML.
    pub(crate) fn accept_xml(mut self) -> Self {
        self.accept = Some("application/xml");
        self
    }

    /// Returns the full address, with the SAS if there is one.
    pub(super) fn url(&self, address: &Address) -> String {
        let mut url = format!("{}{}", address.tables, self.path);
        let mut separator = '?';
        for (name, value) in &self.query {
            url.push(separator);
            url.push_str(&format!("{name}={}", escape(value)));
            separator = '&';
        }
        if let EndpointCredentials::Sas(sas) = &address.credentials {
            url.push(separator);
            url.push_str(sas);
        }
        url
    }

    /// Returns the headers, with a signature for this time.
    pub(super) fn signed(&self, address: &Address, now: Ticks) -> Vec<(&'static str, String)> {
        let date = now.to_http_date();
        let mut headers = vec![
            ("x-ms-version", VERSION.to_owned()),
            ("DataServiceVersion", "3.0;NetFx".to_owned()),
            ("MaxDataServiceVersion", "3.0;NetFx".to_owned()),
        ];
        headers.extend(self.accept.map(|accept| ("Accept", accept.to_owned())));
        headers.extend(self.content_type.clone().map(|value| ("Content-Type", value)));
        headers.extend(self.headers.iter().cloned());
        match &address.credentials {
            EndpointCredentials::Sas(_) => {}
            EndpointCredentials::Token(token) => headers.push(("Authorization", format!("Bearer {token}"))),
            EndpointCredentials::Key(key) => {
                let account = &address.account;
                let component = self.query.iter().find(|(name, _)| *name == "comp");
                let component = component.map_or(String::new(), |(_, value)| format!("?comp={value}"));
                let text = format!("{date}\n/{account}{}{}{component}", address.path(), self.path);
                let signature = STANDARD.encode(key.sign([text.as_str()]));
                headers.push(("Authorization", format!("SharedKeyLite {account}:{signature}")));
            }
        }
        headers.push(("x-ms-date", date));
        headers
    }
}
