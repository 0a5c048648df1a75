//! The parameters of a database URL.

use percent_encoding::percent_decode_str;

use crate::postgres::connections::host_list::{HostList, WANTED};

/// The parameters that sqlx or [`HostList`] knows. sqlx ignores others, and logs them with their values.
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
/// Maximum characters of a name in messages.
const SHOWN: usize = 40;

/// What is wrong with a URL, for a message.
pub(crate) fn mistake_in(url: &str) -> Option<String> {
    let unknown = unknown_parameter(url);
    let unknown = unknown.map(|name| format!("the parameter {name} after the question mark is not known"));
    unknown.or_else(|| HostList::parse(url).err())
}

/// Returns the name of the first unknown parameter for a message, never with its value: that may be a
/// password whose name is misspelt.
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

/// A name with other characters is not printed: it may be part of a password with an unescaped `?` or `&`.
fn without_secrets(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.len() <= SHOWN && name.chars().all(is_word) { name.to_owned() } else { "…".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

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
