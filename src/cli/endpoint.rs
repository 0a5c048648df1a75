//! Settings for the address of the server, and connection strings.

use std::path::PathBuf;

use clap::Args;

use super::output::{Done, Problem};
use crate::server::config::ListenSettings;
use crate::server::http::reachable;
use crate::transfer::client::address::is_origin;

/// The address by which clients reach the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct EndpointSettings {
    /// Address by which clients reach the server, such as https://tables.example.com [default: the
    /// address to listen on]
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,

    #[command(flatten)]
    pub port: Port,
}

/// The port that the server listens on, and whether it uses TLS.
#[derive(Debug, Clone, Args)]
pub(crate) struct Port {
    #[command(flatten)]
    pub listen: ListenSettings,

    /// PEM file with the server's certificate; with it, the address begins with https://
    #[arg(long, env = "ROWHOUSE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
}

impl Port {
    /// Returns the scheme, host and port at which this machine reaches the server.
    pub(crate) fn origin(&self) -> Done<String> {
        let encrypted = self.tls_cert.as_ref().is_some_and(|path| !path.as_os_str().is_empty());
        let scheme = if encrypted { "https" } else { "http" };
        Ok(format!("{scheme}://{}", reachable(self.listen.address()?)))
    }
}

impl EndpointSettings {
    /// Returns the scheme, host and port, without a trailing slash.
    pub(crate) fn origin(&self) -> Done<String> {
        match &self.endpoint {
            None => self.port.origin(),
            Some(given) => {
                let origin = given.trim_end_matches('/');
                let refuse = |must: &str| Err(Problem(format!("--endpoint {given}: must {must}")));
                match origin.split_once("://") {
                    _ if !is_origin(origin) => refuse("begin with http:// or https://"),
                    // The account is appended as the path.
                    Some((_, host)) if host.contains('/') => refuse("have no path"),
                    _ => Ok(origin.to_owned()),
                }
            }
        }
    }
}

/// Builds the connection string for SDKs.
pub(crate) fn connection_string(origin: &str, account: &str, key: &str) -> String {
    let scheme = if origin.starts_with("https:") { "https" } else { "http" };
    format!(
        "DefaultEndpointsProtocol={scheme};AccountName={account};AccountKey={key};TableEndpoint={origin}/{account};"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(endpoint: Option<&str>, listen: &str) -> Result<String, String> {
        let listen = ListenSettings { listen: listen.into() };
        let port = Port { listen, tls_cert: None };
        let settings = EndpointSettings { endpoint: endpoint.map(str::to_owned), port };
        settings.origin().map_err(|problem| problem.0)
    }

    #[test]
    fn the_endpoint_is_what_is_given_or_where_the_server_listens() {
        assert_eq!(origin(None, "0.0.0.0:80").as_deref(), Ok("http://127.0.0.1:80"));
        assert_eq!(origin(None, "[::]:80").as_deref(), Ok("http://[::1]:80"));
        assert_eq!(origin(None, "10.1.2.3:80").as_deref(), Ok("http://10.1.2.3:80"));
        assert_eq!(origin(Some("https://a.b/"), "x").as_deref(), Ok("https://a.b"));
        for wrong in ["a.b", "ftp://a", "https://", "http://a;AccountKey=x", "http://a?b", "http://h:1/abc"] {
            assert!(
                origin(Some(wrong), "127.0.0.1:1").is_err_and(|text| text.contains("--endpoint")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn connection_strings_take_the_scheme_of_the_endpoint() {
        let text = connection_string("https://a.b", "abc", "k==");
        let expected =
            "DefaultEndpointsProtocol=https;AccountName=abc;AccountKey=k==;TableEndpoint=https://a.b/abc;";
        assert_eq!(text, expected);
        assert!(connection_string("http://h:1", "abc", "k").starts_with("DefaultEndpointsProtocol=http;"));
    }
}
