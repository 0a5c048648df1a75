//! Where clients find the server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::Args;

use super::output::{Done, Problem};
use crate::config::ListenSettings;

/// How clients reach the server.
#[derive(Debug, Clone, Args)]
pub struct EndpointSettings {
    /// What clients reach the server by, such as https://tables.example.com [default: http:// and the address to listen on]
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,

    #[command(flatten)]
    pub listen: ListenSettings,
}

impl EndpointSettings {
    /// Scheme, host and port, without a slash at the end.
    ///
    /// # Errors
    /// [`Problem`] for what is no address of a server.
    pub fn origin(&self) -> Done<String> {
        match &self.endpoint {
            None => Ok(format!("http://{}", reachable(self.listen.address()?))),
            Some(given) => {
                let origin = given.trim_end_matches('/');
                let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
                match host {
                    Some(host) if !host.is_empty() && !host.contains(['?', '#', ';', ' ']) => {
                        Ok(origin.into())
                    }
                    _ => Err(Problem(format!("--endpoint {given}: must begin with http:// or https://"))),
                }
            }
        }
    }
}

/// An address that stands for all of the machine's is reached by its own.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// As SDKs take it.
pub fn connection_string(origin: &str, account: &str, key: &str) -> String {
    let scheme = if origin.starts_with("https:") { "https" } else { "http" };
    format!(
        "DefaultEndpointsProtocol={scheme};AccountName={account};AccountKey={key};TableEndpoint={origin}/{account};"
    )
}
