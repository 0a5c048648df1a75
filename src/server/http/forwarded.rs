//! The client's address and scheme, as reported by trusted proxies.
//!
//! Only `X-Forwarded-For` and `X-Forwarded-Proto` are read. Proxies pass on headers that they do not set themselves.
//! Most proxies do not set `Forwarded`, so this header could come from the client.

use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};

use crate::protocol::request::Head;

/// Trusted proxies; none by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proxies(Vec<IpNet>);

/// Maximum number of ranges.
const MAX_RANGES: usize = 256;

impl Proxies {
    /// Parses addresses and ranges (`10.0.0.0/8`), and skips blank texts.
    pub(crate) fn parse(given: &[String]) -> Result<Self, String> {
        let given: Vec<&str> = given.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
        if given.len() > MAX_RANGES {
            return Err(format!("no more than {MAX_RANGES} are allowed"));
        }
        given.into_iter().map(parse_range).collect::<Result<_, _>>().map(Self)
    }

    fn trust(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|range| range.contains(&address))
    }

    /// Replaces the facts of the connection with the report of a trusted proxy about its client. Facts that
    /// the proxy omits or sends in an unknown form count as unknown: no address, and not encrypted.
    pub(crate) fn apply_forwarded_headers(&self, head: &mut Head<'_>) {
        if head.peer.is_some_and(|peer| self.trust(peer)) {
            head.peer = self.client_address(head);
            head.secure = is_https(head);
        }
    }

    /// Returns the rightmost address that is not trusted, or the first address if all are trusted.
    fn client_address(&self, head: &Head<'_>) -> Option<IpAddr> {
        let lines: Vec<&str> = head.all("x-forwarded-for").collect();
        let mut client = None;
        for text in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
            let reported = parse_address(text.trim())?;
            client = Some(reported);
            if !self.trust(reported) {
                break;
            }
        }
        client
    }
}

/// Returns whether every proxy in the chain was reached over HTTPS.
fn is_https(head: &Head<'_>) -> bool {
    let mut schemes = head.all("x-forwarded-proto").flat_map(|line| line.split(',')).peekable();
    schemes.peek().is_some() && schemes.all(|scheme| scheme.trim().eq_ignore_ascii_case("https"))
}

fn parse_range(text: &str) -> Result<IpNet, String> {
    let read = || text.parse::<IpAddr>().map(|address| address.to_canonical().into()).ok();
    match text.parse::<IpNet>().ok().or_else(read).map(unmap_ipv4) {
        Some(range) if range.prefix_len() == 0 => Err(format!("{text} is everybody")),
        Some(range) => Ok(range),
        None => Err(format!("{text} is neither an address nor a range such as 10.0.0.0/8")),
    }
}

/// Converts an IPv4 range in IPv6 notation to its IPv4 form, in which addresses are compared.
fn unmap_ipv4(range: IpNet) -> IpNet {
    let mapped = || {
        let prefix = range.prefix_len().checked_sub(96)?;
        match range.addr().to_canonical() {
            IpAddr::V4(address) => Ipv4Net::new(address, prefix).ok(),
            IpAddr::V6(_) => None,
        }
    };
    match range {
        IpNet::V4(_) => range,
        IpNet::V6(_) => mapped().map_or(range, IpNet::V4),
    }
}

/// Parses an address with or without a port, which some proxies append.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().map(|address| address.ip());
    bare.parse::<IpAddr>().or_else(|_| with_port()).ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(given: &[&str]) -> Result<Proxies, String> {
        Proxies::parse(&given.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    /// Returns the address and encryption of a request over an encrypted connection.
    fn forwarded(peer: &str, headers: &[(&'static str, &'static str)]) -> (String, bool) {
        let mut head = Head {
            headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            secure: true,
            peer: Some(peer.parse().unwrap()),
            ..Head::default()
        };
        proxies(&["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]).unwrap().apply_forwarded_headers(&mut head);
        (head.peer.map(|peer| peer.to_string()).unwrap_or_default(), head.secure)
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        const FOR: &str = "x-forwarded-for";
        for (peer, reported, client) in [
            ("203.0.113.9", &["1.2.3.4"][..], "203.0.113.9"),
            ("11.0.0.1", &["1.2.3.4"], "11.0.0.1"),
            ("10.0.0.1", &["1.2.3.4"], "1.2.3.4"),
            ("::ffff:10.0.0.1", &["1.2.3.4"], "1.2.3.4"),
            ("2001:db8::1", &["2001:db9::5"], "2001:db9::5"),
            // The client's own entries are further to the left.
            ("10.0.0.1", &["5.5.5.5, 1.2.3.4"], "1.2.3.4"),
            ("10.0.0.1", &["5.5.5.5", "1.2.3.4,10.0.0.2 , 192.0.2.7"], "1.2.3.4"),
            ("10.0.0.1", &["5.5.5.5", "1.2.3.4", "::ffff:10.9.9.9"], "1.2.3.4"),
            ("10.0.0.1", &["rubbish, 1.2.3.4"], "1.2.3.4"),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &["1.2.3.4:5678"], "1.2.3.4"),
            ("10.0.0.1", &["[2001:db9::5]:443"], "2001:db9::5"),
            ("10.0.0.1", &["[2001:db9::5]"], "2001:db9::5"),
            // Unknown addresses.
            ("10.0.0.1", &[], ""),
            ("10.0.0.1", &[""], ""),
            ("10.0.0.1", &["1.2.3.4, "], ""),
            ("10.0.0.1", &["1.2.3.4, unknown"], ""),
            ("10.0.0.1", &["1.2.3.4, rubbish, 10.0.0.2"], ""),
            ("10.0.0.1", &["1.2.3.4/32"], ""),
            ("10.0.0.1", &["[1.2.3.4"], ""),
        ] {
            let headers: Vec<_> = reported.iter().map(|value| (FOR, *value)).collect();
            assert_eq!(forwarded(peer, &headers).0, client, "{peer} {reported:?}");
        }
    }

    #[test]
    fn https_requires_https_at_every_proxy() {
        const PROTO: &str = "x-forwarded-proto";
        for (reported, secure) in [
            (&["https"][..], true),
            (&["HTTPS"], true),
            (&["https, https"], true),
            (&["https", "https"], true),
            (&[], false),
            (&[""], false),
            (&["http"], false),
            (&["https, http"], false),
            (&["http", "https"], false),
            (&["https,"], false),
            (&["wss"], false),
        ] {
            let headers: Vec<_> = reported.iter().map(|value| (PROTO, *value)).collect();
            assert_eq!(forwarded("10.0.0.1", &headers).1, secure, "{reported:?}");
        }
        // Without a trusted proxy, the connection decides, which is encrypted here.
        assert!(forwarded("203.0.113.9", &[(PROTO, "http")]).1);
        assert!(!forwarded("10.0.0.1", &[("forwarded", "for=1.2.3.4;proto=https")]).1);
    }

    #[test]
    fn only_listed_proxies_are_trusted() {
        for given in [&[][..], &[""], &[" "]] {
            assert!(proxies(given).unwrap().0.is_empty());
        }
        assert_eq!(proxies(&[" 10.0.0.1 ", "::1", "::ffff:1.2.3.4"]).unwrap().0.len(), 3);
        assert!(proxies(&["::ffff:1.2.3.4"]).unwrap().trust("1.2.3.4".parse().unwrap()));
        let mapped = proxies(&["::ffff:10.0.0.0/104"]).unwrap();
        for (address, trusted) in [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("11.0.0.1", false)] {
            assert_eq!(mapped.trust(address.parse().unwrap()), trusted, "{address}");
        }
        assert!(proxies(&["::ffff:0.0.0.0/96"]).unwrap_err().contains("everybody"));
        for bad in ["x", "10.0.0.0/33", "10.0.0/8", "0.0.0.0/0", "::/0", "10.0.0.1-10.0.0.9", "10.0.0.1:80"] {
            assert!(proxies(&["10.0.0.1", bad]).unwrap_err().contains(bad), "{bad}");
        }
        assert!(proxies(&["10.0.0.1"; 257]).is_err());
    }
}
