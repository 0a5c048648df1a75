//! Parses the hosts of a URL: one host, or several hosts of one PostgreSQL in libpq syntax.
//!
//! Hosts appear before the database, as in `h1:5432,[::1]:5433`, or in the parameters `host=` and `port=`. A comma
//! that is followed by a URL separates servers instead ([`PgOptions`](super::options::PgOptions)).

use std::net::Ipv6Addr;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::contract::HostRole;

const MAX_HOSTS: usize = 16;
/// The parameter for the required session type.
pub(super) const WANTED: &str = "target_session_attrs";
/// The parameter for the host's address.
const ADDRESS: &str = "hostaddr";

/// Required session types, as libpq names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WantedSession {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    /// Prefers a standby, and falls back to any session.
    PreferStandby,
}

impl WantedSession {
    fn parse(value: &str) -> Option<Self> {
        Some(match value {
            "any" => Self::Any,
            "read-write" => Self::ReadWrite,
            "read-only" => Self::ReadOnly,
            "primary" => Self::Primary,
            "standby" => Self::Standby,
            "prefer-standby" => Self::PreferStandby,
            _ => return None,
        })
    }

    /// Whether sessions on a host with this role are acceptable.
    pub(super) const fn fits(self, role: HostRole) -> bool {
        match self {
            Self::Any => true,
            Self::ReadWrite => matches!(role, HostRole::Primary),
            Self::ReadOnly => !matches!(role, HostRole::Primary),
            Self::Primary => !matches!(role, HostRole::Standby),
            Self::Standby | Self::PreferStandby => matches!(role, HostRole::Standby),
        }
    }

    /// The session type to accept if no host offers the preferred one.
    pub(super) const fn last_resort(self) -> Self {
        if matches!(self, Self::PreferStandby) { Self::Any } else { self }
    }

    /// Whether every acceptable session belongs to a primary.
    pub(crate) const fn is_of_primary(self) -> bool {
        matches!(self, Self::ReadWrite | Self::Primary)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostList {
    /// One URL for each host. A single host keeps the original URL.
    pub urls: Vec<String>,
    pub wanted: WantedSession,
}

/// A decoded host, and its own port if it has one.
struct HostPort {
    host: String,
    port: Option<String>,
}

impl HostList {
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let parts = UrlParts::of(url);
        let wanted = match &parts.wanted {
            None => WantedSession::Any,
            Some(value) => WantedSession::parse(value).ok_or_else(|| {
                format!("{WANTED} must be any, read-write, read-only, primary, standby or prefer-standby")
            })?,
        };
        if parts.scheme.is_empty() || (!parts.is_list() && parts.wanted.is_none()) {
            return Ok(Self { urls: vec![url.to_owned()], wanted });
        }
        let hosts = parts.hosts()?;
        if hosts.len() > MAX_HOSTS {
            return Err(format!("at most {MAX_HOSTS} hosts may be listed"));
        }
        Ok(Self { urls: hosts.iter().map(|host| parts.url_of(host)).collect(), wanted })
    }
}

/// A URL split at the parts that list hosts.
struct UrlParts<'u> {
    scheme: &'u str,
    /// User and password, including the `@`.
    user: &'u str,
    hosts: &'u str,
    path: &'u str,
    /// The other parameters, unchanged.
    others: Vec<&'u str>,
    host: Option<String>,
    port: Option<String>,
    wanted: Option<String>,
    has_address: bool,
}

impl<'u> UrlParts<'u> {
    fn of(url: &'u str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let mut parts = Self {
            scheme,
            user,
            hosts,
            path,
            others: Vec::new(),
            host: None,
            port: None,
            wanted: None,
            has_address: false,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match decoded(name).as_str() {
                "host" => parts.host = Some(decoded(value)),
                "port" => parts.port = Some(decoded(value)),
                WANTED => parts.wanted = Some(decoded(value)),
                other => {
                    parts.has_address |= other == ADDRESS;
                    parts.others.push(pair);
                }
            }
        }
        parts
    }

    /// Whether the URL lists several hosts, or one host in brackets, which the driver does not resolve.
    fn is_list(&self) -> bool {
        let has_comma = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains(','));
        self.hosts.contains(',')
            || self.hosts.starts_with('[')
            || has_comma(&self.host)
            || has_comma(&self.port)
    }

    fn hosts(&self) -> Result<Vec<HostPort>, String> {
        if self.has_address {
            return Err("hostaddr cannot be combined with a list of hosts: give addresses as hosts".into());
        }
        let mut hosts: Vec<HostPort> = match &self.host {
            Some(_) if self.hosts.contains(',') => {
                return Err("hosts are listed twice, before the database and as host=".into());
            }
            // `host=` replaces the host before the database, but keeps its port.
            Some(listed) => {
                let port = HostPort::parse(self.hosts)?.port;
                listed.split(',').map(|host| HostPort { host: host.into(), port: port.clone() }).collect()
            }
            None => self.hosts.split(',').map(HostPort::parse).collect::<Result<_, _>>()?,
        };
        let is_empty = |host: &HostPort| host.host.is_empty();
        if hosts.len() > 1 && hosts.iter().any(is_empty) {
            return Err("a host of the list is empty".into());
        }
        self.set_ports(&mut hosts)?;
        let is_number = |port: &String| port.parse::<u16>().is_ok_and(|port| port != 0);
        match hosts.iter().filter_map(|host| host.port.as_ref()).all(is_number) {
            true => Ok(hosts),
            false => Err("a port of the list is not a number from 1 to 65535".into()),
        }
    }

    /// Applies the listed ports: one port for all hosts, or one for each.
    fn set_ports(&self, hosts: &mut [HostPort]) -> Result<(), String> {
        let Some(listed) = &self.port else { return Ok(()) };
        let ports: Vec<&str> = listed.split(',').collect();
        if ports.len() != 1 && ports.len() != hosts.len() {
            return Err(format!("{} ports are listed for {} hosts", ports.len(), hosts.len()));
        }
        for (host, port) in hosts.iter_mut().zip(ports.into_iter().cycle()) {
            host.port = (!port.is_empty()).then(|| port.to_owned());
        }
        Ok(())
    }

    /// Builds the URL of a single host. The host goes into a parameter, where the driver accepts any host.
    fn url_of(&self, HostPort { host, port }: &HostPort) -> String {
        let mut query: Vec<String> = self.others.iter().map(|&pair| pair.to_owned()).collect();
        if !host.is_empty() {
            query.push(format!("host={}", utf8_percent_encode(host, NON_ALPHANUMERIC)));
        }
        query.extend(port.as_ref().map(|port| format!("port={port}")));
        let host = if self.user.is_empty() { "" } else { "localhost" };
        format!("{}://{}{host}{}?{}", self.scheme, self.user, self.path, query.join("&"))
    }
}

impl HostPort {
    fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = split_port(text)?;
        Ok(Self { host: decoded(host), port: port.filter(|port| !port.is_empty()).map(str::to_owned) })
    }
}

/// Splits `host`, `host:port` or `[address]:port`.
pub(super) fn split_port(text: &str) -> Result<(&str, Option<&str>), String> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(address) => {
            let (address, rest) = address.split_once(']').ok_or("a [ of the list has no ]")?;
            address.parse::<Ipv6Addr>().map_err(|_| "brackets must hold an IPv6 address")?;
            (address, rest)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    match rest.strip_prefix(':') {
        None if !rest.is_empty() => Err("only a port may follow an address in brackets".into()),
        Some(port) if port.contains(':') => Err("IPv6 addresses need brackets: [::1]:5432".into()),
        port => Ok((host, port)),
    }
}

/// Returns `url` with a different host and port but the same user, database and parameters.
pub(super) fn with_address(url: &str, host: &str, port: u16) -> String {
    let mut parts = UrlParts::of(url);
    parts.others.retain(|pair| pair.split_once('=').is_none_or(|(name, _)| decoded(name) != ADDRESS));
    parts.url_of(&HostPort { host: host.to_owned(), port: Some(port.to_string()) })
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Parameters that sqlx or [`HostList`] supports. sqlx ignores other parameters and logs them with their values.
const KNOWN: [&str; 19] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    WANTED,
    "user",
];
/// Maximum length of a name in messages, in characters.
const SHOWN: usize = 40;

/// Describes the first mistake in a URL, for an error message.
pub(crate) fn mistake_in(url: &str) -> Option<String> {
    let unknown = unknown_parameter(url);
    let unknown = unknown.map(|name| format!("the parameter {name} after the question mark is not known"));
    unknown.or_else(|| HostList::parse(url).err())
}

/// Returns the name of the first unknown parameter, for a message. Its value is omitted because it may be a password
/// with a misspelt parameter name.
fn unknown_parameter(url: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let query = query.split_once('#').map_or(query, |(query, _)| query);
    let mut names = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    names.find_map(|name| {
        let name = percent_decode_str(name).decode_utf8_lossy();
        (!name.is_empty() && !is_known(&name)).then(|| without_secrets(&name))
    })
}

fn is_known(name: &str) -> bool {
    let is_session_setting = name.starts_with("options[") && name.ends_with(']');
    is_session_setting || KNOWN.contains(&name)
}

/// Hides a name with other characters: it may be part of a password with an unescaped `?` or `&`.
fn without_secrets(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.len() <= SHOWN && name.chars().all(is_word) { name.to_owned() } else { "…".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::PgOptions;

    /// Returns `host:port` or the folder of each host, and the required session type.
    fn read(url: &str) -> (Vec<String>, WantedSession) {
        let list = HostList::parse(url).expect(url);
        let place = |url: &String| {
            let options = PgOptions::connect_options(url).expect(url);
            match options.get_socket() {
                Some(folder) => folder.display().to_string(),
                None => format!("{} {}", options.get_host(), options.get_port()),
            }
        };
        (list.urls.iter().map(place).collect(), list.wanted)
    }

    #[test]
    fn the_url_of_a_single_host_is_left_as_it_is() {
        for url in [
            "postgres://u:p,w@h/d",
            "postgres:///d?host=%2Frun&options=-c%20a%3Db,c",
            "postgres://u:p@h:1/a,b?sslmode=disable#x,y",
            "postgres://%2Frun%2Fpg/d",
            "not a URL",
        ] {
            let list = HostList::parse(url).expect(url);
            assert_eq!(list, HostList { urls: vec![url.to_owned()], wanted: WantedSession::Any });
        }
    }

    #[test]
    fn lists_are_read_as_libpq_reads_them() {
        for (url, places) in [
            ("postgres://a:1,b:2/d", &["a 1", "b 2"][..]),
            ("postgres://a,b", &["a 5432", "b 5432"]),
            ("postgres://a,b?sslmode=disable", &["a 5432", "b 5432"]),
            ("postgres://u:p@a,b:2/d", &["a 5432", "b 2"]),
            ("postgres://a:,b/d", &["a 5432", "b 5432"]),
            ("postgresql://u@[::1]:1,[fe80::2],c", &["::1 1", "fe80::2 5432", "c 5432"]),
            ("postgres://[::1]:7/d", &["::1 7"]),
            ("postgres://%2Frun%2Fa,h%2D2:3/d", &["/run/a", "h-2 3"]),
            ("postgres:///d?host=a,b&port=1,2", &["a 1", "b 2"]),
            ("postgres:///d?host=a%2Cb&port=7", &["a 7", "b 7"]),
            ("postgres://x:9/d?host=a,b", &["a 9", "b 9"]),
            ("postgres://a,b:2/d?port=,8", &["a 5432", "b 8"]),
            ("postgres:///d?host=/run/a,::1", &["/run/a", "::1 5432"]),
            ("postgres://u:a,b%40@h1,h2/d?options=-c%20a%3Db,c", &["h1 5432", "h2 5432"]),
        ] {
            assert_eq!(
                read(url),
                (places.iter().map(|&p| p.to_owned()).collect(), WantedSession::Any),
                "{url}"
            );
        }
    }

    #[test]
    fn each_host_has_what_the_url_says_besides() {
        let url = "postgres://u%40:p%2Cw@a,b/d%2Fe?application_name=x&target_session_attrs=primary&user=w";
        let list = HostList::parse(url).expect("a list");
        assert_eq!(list.wanted, WantedSession::Primary);
        for url in &list.urls {
            let options = PgOptions::connect_options(url).expect("a URL");
            assert_eq!((options.get_username(), options.get_database()), ("w", Some("d/e")));
            assert!(url.starts_with("postgres://u%40:p%2Cw@") && !url.contains(WANTED), "{url}");
        }
    }

    #[test]
    fn every_kind_of_session_is_known() {
        use WantedSession::*;
        for (value, wanted, fitting) in [
            ("any", Any, [true, true, true]),
            ("read-write", ReadWrite, [true, false, false]),
            ("read-only", ReadOnly, [false, true, true]),
            ("primary", Primary, [true, true, false]),
            ("standby", Standby, [false, false, true]),
            ("prefer-standby", PreferStandby, [false, false, true]),
        ] {
            assert_eq!(read(&format!("postgres://h/d?{WANTED}={value}")).1, wanted, "{value}");
            let roles = [HostRole::Primary, HostRole::ReadOnly, HostRole::Standby];
            assert_eq!(roles.map(|role| wanted.fits(role)), fitting);
        }
    }

    #[test]
    fn another_server_is_reached_as_the_one_that_is_listed() {
        for url in [
            "postgres://u:s%40@h:5432/d?sslmode=disable",
            "postgres://u:s%40@h,i:5433/d?sslmode=disable&target_session_attrs=read-write",
            "postgres://u:s%40@/d?host=/run/postgresql&port=5433&hostaddr=::1&sslmode=disable",
        ] {
            let url = with_address(url, "worker-3", 6432);
            assert_eq!(read(&url), (vec!["worker-3 6432".to_owned()], WantedSession::Any));
            let options = PgOptions::connect_options(&url).expect(&url);
            assert_eq!((options.get_username(), options.get_database()), ("u", Some("d")));
            assert!(url.contains("u:s%40@") && url.contains("sslmode=disable") && !url.contains("hostaddr"));
        }
    }

    #[test]
    fn a_bad_list_is_refused_without_its_text() {
        let many = format!("postgres://u:secret@{}h/d", "h,".repeat(MAX_HOSTS));
        for (url, why) in [
            (many.as_str(), "at most 16 hosts"),
            ("postgres://u:secret@a,,b/d", "empty"),
            ("postgres://u:secret@a,b,/d", "empty"),
            ("postgres:///d?host=a,b&port=1,2,3", "3 ports are listed for 2 hosts"),
            ("postgres://u:secret@a:x,b/d", "not a number"),
            ("postgres://u:secret@a:0,b/d", "not a number"),
            ("postgres://u:secret@a:65536,b/d", "not a number"),
            ("postgres://u:secret@::1,b/d", "need brackets"),
            ("postgres://u:secret@[::1,b/d", "has no ]"),
            ("postgres://u:secret@[::1]x,b/d", "only a port"),
            ("postgres://u:secret@[secret],b/d", "must hold an IPv6 address"),
            ("postgres://u:secret@a,b/d?host=c", "listed twice"),
            ("postgres://u:secret@a,b/d?hostaddr=::1", "hostaddr"),
            ("postgres://u:secret@h/d?target_session_attrs=secret", "must be any, read-write"),
            ("postgres://u:secret@a,b/d?target_session_attrs=", "must be any, read-write"),
        ] {
            let error = HostList::parse(url).expect_err(url);
            assert!(error.contains(why) && !error.contains("secret"), "{url}: {error}");
        }
    }

    #[test]
    fn a_parameter_that_is_not_known_is_named_without_its_value() {
        for (url, found) in [
            ("postgres://u:p@h/d", None),
            ("postgres://u:p@h/d?", None),
            ("postgres:///d?host=%2Frun&sslmode=require&options[geqo]=off&user=u#x?y=1", None),
            ("postgres://h/d?host=/run&pasword=secret", Some("pasword")),
            ("postgres://h/d?Password=secret", Some("Password")),
            ("postgres://h/d?pass%77ord=secret", None),
            ("postgres://h/d?pas%2Bword=secret", Some("…")),
            ("postgres://u:half?other@h/d", Some("…")),
            ("postgres://h/d?options[=x", Some("…")),
            ("postgres://h/d?secret", Some("secret")),
        ] {
            assert_eq!(unknown_parameter(url).as_deref(), found, "{url}");
        }
    }
}
