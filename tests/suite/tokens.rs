//! Bearer tokens of a real issuer: keys fetched, remembered, rotated.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::support::scripted::{json_answer, scripted};
use crate::support::server::Process;
use crate::support::*;

const FIRST: &[u8] = include_bytes!("../fixtures/issuer/first.rsa.der");
const SECOND: &[u8] = include_bytes!("../fixtures/issuer/second.rsa.der");
const AUDIENCE: &str = "https://storage.azure.com";

/// An OpenID Connect issuer, as far as keys are concerned.
struct Issuer {
    address: String,
    keys: Arc<Mutex<JwkSet>>,
    /// How often its keys were asked for.
    asked: Arc<AtomicUsize>,
    /// Milliseconds that each of its answers takes.
    slow: Arc<AtomicU64>,
}

impl Issuer {
    fn start() -> Self {
        let keys = Arc::new(Mutex::new(JwkSet { keys: vec![public("first", FIRST)] }));
        let (asked, slow) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        let (served, counter, takes) = (Arc::clone(&keys), Arc::clone(&asked), Arc::clone(&slow));
        let address = scripted(move |request| {
            let text = String::from_utf8_lossy(request).to_ascii_lowercase();
            let body = if text.contains("/.well-known/openid-configuration") {
                let host = text.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
                json!({"issuer": format!("http://{host}"), "jwks_uri": format!("http://{host}/keys")})
                    .to_string()
            } else {
                counter.fetch_add(1, Ordering::SeqCst);
                serde_json::to_string(&*served.lock().expect("keys")).expect("JSON")
            };
            pace(Duration::from_millis(takes.load(Ordering::SeqCst)));
            Some(json_answer(body))
        });
        Self { address: format!("http://{address}"), keys, asked, slow }
    }

    fn token(&self, key: &str, change: impl FnOnce(&mut Value)) -> String {
        let soon = chrono::Utc::now().timestamp() + 600;
        let mut claims = json!({"iss": self.address, "aud": AUDIENCE, "sub": "alice", "exp": soon});
        change(&mut claims);
        let mut header = Header::new(Algorithm::RS256);
        header.kid = Some(key.to_owned());
        let der = if key == "second" { SECOND } else { FIRST };
        encode(&header, &claims, &EncodingKey::from_rsa_der(der)).expect("a token")
    }
}

fn public(id: &str, der: &[u8]) -> Jwk {
    let mut jwk = Jwk::from_encoding_key(&EncodingKey::from_rsa_der(der), Algorithm::RS256).expect("a key");
    jwk.common.key_id = Some(id.to_owned());
    jwk
}

fn server(issuer: &Issuer, roles: &str, more: &[&str]) -> Process {
    Process::serve(
        "sqlite::memory:",
        &[&["--oidc-issuer", issuer.address.as_str(), "--oidc-roles", roles], more].concat(),
    )
}

fn bearing(token: &str) -> Auth {
    Auth::Header(format!("Bearer {token}"))
}

#[test]
fn a_contributor_works_with_tables_and_entities_and_leaves_policies_alone() {
    let issuer = Issuer::start();
    let server = server(&issuer, "alice=contributor", &["--oidc-over-http"]);
    let client = server.client();
    let auth = || bearing(&issuer.token("first", |_| {}));
    client.request("POST", "/Tables").json(&json!({"TableName": "People"})).auth(auth()).send().expect(201);
    let entity = json!({"PartitionKey": "p", "RowKey": "r", "A": 1});
    client.request("POST", "/People").json(&entity).auth(auth()).send().expect(201);
    let found = client.request("GET", "/People()").auth(auth()).send().expect_json();
    assert_eq!(found["value"][0]["A"], 1);
    for verb in ["GET", "PUT"] {
        let request = client.request(verb, "/People?comp=acl").header("Accept", "application/xml");
        request.auth(auth()).send().refused_in_xml(NOT_FOUND);
    }
    client.request("DELETE", "/Tables('People')").auth(auth()).send().expect(204);
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1, "keys are remembered");
}

#[test]
fn a_reader_reads_and_a_stranger_does_nothing() {
    let issuer = Issuer::start();
    let server = server(&issuer, "alice=reader;writers=contributor@acct0001/other", &["--oidc-over-http"]);
    let client = server.client();
    client.create_table("People").expect(201);
    client.create_table("Other").expect(201);
    let alice = || bearing(&issuer.token("first", |_| {}));
    let writer = || bearing(&issuer.token("first", |c| c["roles"] = json!(["writers"])));
    let stranger = || bearing(&issuer.token("first", |c| c["sub"] = json!("mallory")));
    let insert = |table: &str, auth: Auth| {
        let entity = json!({"PartitionKey": "p", "RowKey": "r"});
        client.request("POST", &format!("/{table}")).json(&entity).auth(auth).send()
    };
    client.request("GET", "/People()").auth(alice()).send().expect(200);
    client.request("GET", "/Tables").auth(alice()).send().expect(200);
    insert("People", alice()).expect_error_code(403, "AuthorizationPermissionMismatch");
    insert("People", writer()).expect_error_code(403, "AuthorizationPermissionMismatch");
    insert("OTHER", writer()).expect(201);
    for path in ["/People()", "/Tables"] {
        let refused = client.request("GET", path).auth(stranger()).send();
        refused.expect_error_code(403, "AuthorizationPermissionMismatch");
    }
}

#[test]
fn tokens_that_do_not_verify_are_challenged() {
    let issuer = Issuer::start();
    let server = server(&issuer, "alice=contributor", &["--oidc-over-http"]);
    let client = server.client();
    let ask = |token: &str| client.request("GET", "/Tables").auth(bearing(token)).unchecked().send();
    for token in [
        issuer.token("first", |c| c["exp"] = json!(1)),
        issuer.token("first", |c| c["aud"] = json!("https://other")),
        issuer.token("first", |c| c["iss"] = json!("https://other")),
        issuer.token("second", |_| {}),
    ] {
        let answer = ask(&token).expect(401);
        let challenge = answer.need("WWW-Authenticate");
        assert!(challenge.contains(&issuer.address) && challenge.contains(AUDIENCE), "{challenge}");
        assert_eq!(answer.header("x-ms-error-code"), Some("InvalidAuthenticationInfo"));
    }
    assert_eq!(ask("bogus").expect(400).header("x-ms-error-code"), Some("InvalidAuthenticationInfo"));
}

#[test]
fn a_key_that_the_issuer_has_added_is_fetched() {
    let issuer = Issuer::start();
    issuer.keys.lock().expect("keys").keys.push(public("second", SECOND));
    let server = server(&issuer, "alice=reader", &["--oidc-over-http"]);
    let client = server.client();
    let ask = |key: &str| client.request("GET", "/Tables").auth(bearing(&issuer.token(key, |_| {}))).send();
    let begun = Instant::now();
    ask("first").expect(200);
    ask("second").expect(200);
    for _ in 0..20 {
        client
            .request("GET", "/Tables")
            .auth(bearing(&issuer.token("third", |_| {})))
            .unchecked()
            .send()
            .expect(401);
    }
    // One question at first, and one after each ten seconds.
    let most = 1 + begun.elapsed().as_secs() / 10;
    assert!(issuer.asked.load(Ordering::SeqCst) as u64 <= most, "unknown keys turn into questions");
}

#[test]
fn keys_are_learnt_though_whoever_made_us_ask_has_given_up() {
    let issuer = Issuer::start();
    issuer.slow.store(2000, Ordering::SeqCst);
    let server = server(&issuer, "alice=reader", &["--oidc-over-http"]);
    let client = server.client();
    let auth = || bearing(&issuer.token("first", |_| {}));
    // Asking takes four seconds, and may take five for either question.
    client.request("GET", "/Tables?timeout=1").auth(auth()).send().expect(500);
    client.request("GET", "/Tables").auth(auth()).send().expect(200);
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1);
}

#[test]
fn tokens_need_an_issuer_and_an_encrypted_connection() {
    let issuer = Issuer::start();
    let token = issuer.token("first", |_| {});
    let https_only = Process::serve("sqlite::memory:", &["--oidc-issuer", "https://issuer.invalid"]);
    let refused = https_only.client().request("GET", "/Tables").auth(bearing(&token)).unchecked().send();
    assert_eq!(refused.expect(403).header("x-ms-error-code"), Some("AuthenticationFailed"));
    let nobody = Process::serve("sqlite::memory:", &[]);
    nobody.client().request("GET", "/Tables").auth(bearing(&token)).unchecked().send().expect(401);
}
