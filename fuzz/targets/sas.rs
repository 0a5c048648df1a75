#![no_main]
//! Shared access signatures: a query string that nobody signed proves nothing;
//! one that was made from these fields, a line each, proves just them.

use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::{ACCOUNT, accounts, assert_refused, fields, now};
use rowhouse_protocol::auth::Identity;
use rowhouse_protocol::auth::accounts::AccountKey;
use rowhouse_protocol::auth::issue::{Grant, SasSubject};
use rowhouse_protocol::auth::permissions::KeyRange;
use rowhouse_protocol::auth::sas::{Claim, Use};
use rowhouse_protocol::codec::policies::read_time;
use rowhouse_protocol::error::{Code, Result};
use rowhouse_protocol::model::Ticks;
use rowhouse_protocol::request::options::Options;

fuzz_target!(|data: &[u8]| {
    let accounts = accounts();
    let keys = accounts.keys(ACCOUNT).expect("the account has keys");
    if let Ok(query) = std::str::from_utf8(data) {
        forged(query, keys);
    }
    if let Some(lines) = fields::<13>(data) {
        issued(&lines, keys);
    }
});

fn forged(query: &str, keys: &[AccountKey]) {
    match ask(query, keys, now()) {
        Ok(Some(identity)) => panic!("nobody signed that: {identity:?}"),
        Ok(None) => {}
        Err(error) => assert_refused(&error),
    }
}

fn ask(query: &str, keys: &[AccountKey], at: Ticks) -> Result<Option<Identity>> {
    let options = Options::parse(query)?;
    let Some(claim) = Claim::read(&options)? else { return Ok(None) };
    let usage = Use { now: at, secure: true, peer: Some([10, 0, 0, 1].into()) };
    claim.verify(ACCOUNT, keys, &[], &usage).map(Some)
}

fn issued(lines: &[Option<&str>; 13], keys: &[AccountKey]) {
    let [
        table,
        start_p,
        start_r,
        end_p,
        end_r,
        services,
        resources,
        permissions,
        start,
        expiry,
        ip,
        protocol,
        version,
    ] = lines.map(|line| line.map(str::to_owned));
    let subject = match table {
        Some(table) => {
            SasSubject::Table { table, policy: None, start: (start_p, start_r), end: (end_p, end_r) }
        }
        None => SasSubject::Account {
            services: services.unwrap_or_default(),
            resources: resources.unwrap_or_default(),
        },
    };
    let version = version.unwrap_or_else(|| "2019-02-02".to_owned());
    let grant = Grant { subject, permissions, start, expiry, ip, protocol, version };
    let Ok(query) = grant.sign(ACCOUNT, &keys[0]) else { return };
    let expiry = grant.expiry.as_deref().and_then(read_time).expect("it was signed");
    let before = Ticks::from_raw(expiry.raw() - 1);
    match before.map(|before| ask(&query, keys, before)) {
        None => {}
        Some(Err(error)) => {
            assert!(grant.ip.is_some() && error.code == Code::AuthorizationSourceIpMismatch, "{error:?}");
        }
        Some(Ok(proven)) => check(&grant, proven.expect("there is a signature")),
    }
    refused(ask(&query, keys, expiry));
    tampered(&query, keys);
}

fn check(grant: &Grant, proven: Identity) {
    let sorted = |text: &str| -> Vec<char> {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        letters
    };
    let asked = sorted(grant.permissions.as_deref().unwrap_or_default());
    match (&grant.subject, proven) {
        (
            SasSubject::Table { table: asked_table, start, end, .. },
            Identity::TableSas { table, permissions, range },
        ) => {
            assert_eq!((table, sorted(&permissions)), (asked_table.to_ascii_lowercase(), asked));
            let bound = |text: &Option<String>| text.clone();
            let (sp, sr, ep, er) = (bound(&start.0), bound(&start.1), bound(&end.0), bound(&end.1));
            let expected = KeyRange::from_bounds(sp.as_deref(), sr.as_deref(), ep.as_deref(), er.as_deref());
            assert_eq!(range, expected);
        }
        (SasSubject::Account { resources, .. }, Identity::AccountSas { permissions, resource_types }) => {
            assert_eq!((sorted(&permissions), sorted(&resource_types)), (asked, sorted(resources)));
        }
        (asked, proven) => panic!("{proven:?} for {asked:?}"),
    }
}

/// Neither another expiry nor another permission, and not one bit of the proof.
fn tampered(query: &str, keys: &[AccountKey]) {
    refused(ask(&query.replacen("se=", "se=2", 1), keys, now()));
    refused(ask(&query.replacen("sp=", "sp=r", 1), keys, now()));
    let (fields, signature) = query.split_once("&sig=").expect("it is signed");
    let first = if signature.starts_with('A') { "B" } else { "A" };
    refused(ask(&format!("{fields}&sig={first}{}", &signature[1..]), keys, now()));
}

fn refused(answer: Result<Option<Identity>>) {
    match answer {
        Err(error) => assert_refused(&error),
        Ok(proven) => panic!("{proven:?} is not proven"),
    }
}
