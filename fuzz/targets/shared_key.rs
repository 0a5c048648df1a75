#![no_main]
//! Authorization headers: what does not have the key is refused, what has it is
//! let in, and a signature of one request is worth nothing for another.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::{ACCOUNT, accounts, assert_refused, http, now};
use rowhouse_protocol::auth::{self, AccountSet, Credentials, Identity};
use rowhouse_protocol::error::{Code, Result};
use rowhouse_protocol::request::options::NO_OPTIONS;
use rowhouse_protocol::request::{Head, Target, target};

/// Seconds that a date may be off.
const SKEW: i64 = 15 * 60;

fuzz_target!(|data: &[u8]| {
    let Some((mut head, _)) = http(data) else { return };
    let accounts = accounts();
    let Ok(target) = target::resolve(&head, &accounts) else { return };
    match ask(&head, &target, &accounts) {
        Ok(Credentials::Verified(_)) => panic!("nobody has the key"),
        Ok(_) => {}
        Err(error) => assert_refused(&error),
    }
    if head.header("x-ms-date").or_else(|| head.header("date")).is_none() {
        head.headers.push(("x-ms-date".into(), now().to_http_date().into()));
    }
    for scheme in ["SharedKey", "SharedKeyLite"] {
        check(&head, scheme, &target, &accounts);
    }
});

fn ask(head: &Head<'_>, target: &Target, accounts: &AccountSet) -> Result<Credentials> {
    auth::credentials(head, &NO_OPTIONS, target, accounts, now())
}

fn check(head: &Head<'_>, scheme: &str, target: &Target, accounts: &AccountSet) {
    let mut head = head.clone();
    let signature = sign(&head, scheme, accounts);
    head.headers.retain(|(name, _)| name != "authorization");
    head.headers.push(("authorization".into(), format!("{scheme} {ACCOUNT}:{signature}").into()));
    let date = head.header("x-ms-date").or_else(|| head.header("date")).unwrap_or_default();
    let timely = DateTime::parse_from_rfc2822(date)
        .is_ok_and(|date| (date.timestamp() - now().unix_seconds()).abs() <= SKEW);
    let answer = ask(&head, target, accounts);
    if timely {
        assert_eq!(answer, Ok(Credentials::Verified(Identity::AccountKey)));
    } else {
        assert!(answer.is_err_and(|error| error.code == Code::AuthenticationFailed));
    }
    head.path = format!("{}x", head.path).into();
    let elsewhere = ask(&head, target, accounts);
    assert!(elsewhere.is_err_and(|error| error.code == Code::AuthenticationFailed));
}

/// The signature by the words of the protocol.
fn sign(head: &Head<'_>, scheme: &str, accounts: &AccountSet) -> String {
    let header = |name| head.header(name).unwrap_or_default();
    let date = head.header("x-ms-date").unwrap_or_else(|| header("date"));
    let comp = head.query.split('&').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.eq_ignore_ascii_case("comp").then(|| format!("?comp={value}"))
    });
    let resource = format!("/{ACCOUNT}{}{}", head.path, comp.unwrap_or_default());
    let text = match scheme {
        "SharedKeyLite" => format!("{date}\n{resource}"),
        _ => {
            let (md5, content_type) = (header("content-md5"), header("content-type"));
            format!("{}\n{md5}\n{content_type}\n{date}\n{resource}", head.method)
        }
    };
    let keys = accounts.keys(ACCOUNT).expect("the account has keys");
    STANDARD.encode(keys[0].sign([text.as_str()]))
}
