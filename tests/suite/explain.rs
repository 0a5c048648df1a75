//! Refusals explained in the log, and only there, and only on request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::client::Auth;
use crate::support::server::{Process, account};
use crate::support::*;

fn server(more: &[&str]) -> Process {
    Process::serve("sqlite::memory:", more)
}

/// Makes every kind of refusal that is explained, and returns what the clients saw.
fn refusals(server: &Process) -> String {
    let good = server.client();
    let mut stranger = account(1);
    stranger.keys = [STANDARD.encode([7; 64]), STANDARD.encode([8; 64])];
    let bad = Client::path_style(server.address(), stranger);
    let t = good.table();
    let answers = [
        bad.get("/Tables").expect(403),
        good.request("GET", "/Tables").auth(Auth::Header("Basic eDp5".into())).send().expect(400),
        good.bearing("sv=2019-02-02&sig=AAAA&ss=t&srt=s&se=2020-01-01&sp=r").get("/Tables").expect(403),
        good.bearing("sv=2019-02-02&sig=AAAA&ss=t&srt=s&se=2020-01-01&sp=r&sr=b").get("/Tables").expect(403),
        t.query("?$filter=A%20eq%20%20)").expect(400),
        t.query("?$orderby=RowKey%20desc").expect(501),
    ];
    answers.iter().map(|answer| String::from_utf8_lossy(&answer.body).into_owned()).collect()
}

const EXPLANATIONS: [&str; 6] = [
    "the signature fits none of the keys of",
    "the Authorization header is neither",
    "is the key right? The text to sign is \\\"acct0001\\\\nr\\\\nt\\\\ns\\\\n\\\\n2020-01-01",
    "sr belongs to signatures of other services",
    "Syntax error at position",
    "rowhouse account queries ACCOUNT extended",
];

#[test]
fn the_log_says_what_should_have_been_signed_if_it_is_told_to() {
    for (options, explains) in [(&["--explain-errors"][..], true), (&[], false)] {
        let server = server(&[&["--log-format", "json"], options].concat());
        let seen = refusals(&server);
        let log = server.log();
        for explanation in EXPLANATIONS {
            assert_eq!(log.contains(explanation), explains, "{explanation} in {log}");
        }
        assert!(!seen.contains("none of the account's keys") && !seen.contains("is neither"), "{seen}");
        assert!(!log.contains(&account(1).keys[0]) && !log.contains("AAAA"), "no key, no signature: {log}");
    }
}
