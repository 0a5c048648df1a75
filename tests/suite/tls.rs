//! Encrypted connections: the version of HTTP, certificates and their
//! replacement, and what is different for whoever comes over one.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::support::http::Wire;
use crate::support::server::{Process, account, fresh_folder};
use crate::support::*;

/// The path of a certificate or key.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(fixture(name)).expect("a certificate")
}

/// A client that trusts our authority and offers these protocols.
pub fn trusting(protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.pem")).expect("a root");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

/// Puts a certificate and its key where the server looks for them.
fn install(folder: &Path, certificate: &str, key: &str) {
    for (from, to) in [(certificate, "tls.crt"), (key, "tls.key")] {
        // As orchestrators do: the new file takes the place of the old at once.
        std::fs::copy(fixture(from), folder.join("new")).expect("the folder is writable");
        std::fs::rename(folder.join("new"), folder.join(to)).expect("the folder is writable");
    }
}

/// An encrypted server of account 1, and its folder.
pub fn server(more: &[&str]) -> (Process, PathBuf) {
    let folder = fresh_folder();
    install(&folder, "first.pem", "first.key.pem");
    let accounts = account(1).setting();
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
    let tls = ["--accounts", &accounts, "--tls-cert", "tls.crt", "--tls-key", "tls.key"];
    (Process::spawn(folder.clone(), &[&fixed[..], &tls, more].concat(), &[]), folder)
}

/// A client of it that speaks HTTP/1.1.
pub fn client(server: &Process) -> Client {
    Client::over_tls(server.address(), account(1), trusting(&[b"http/1.1"]))
}

#[test]
fn tables_are_served_as_ever_and_addresses_begin_with_https() {
    let (server, _) = server(&[]);
    let said = server.announced.join("\n");
    assert!(said.contains("ready at https://") && said.contains("DefaultEndpointsProtocol=https;"), "{said}");
    let client = client(&server);
    let t = client.table();
    let answer = t.insert(&with_keys("p", "r", json!({ "A": 1 }))).expect(201);
    assert_eq!(answer.need("Location"), client.url(&t.path("p", "r")));
    let raw = client.wire().exchange("GET", &client.request("GET", "/Tables").bytes());
    assert!(raw.headers.iter().any(|(name, _)| name == "Content-Type"), "names are spelled as ever: {raw:?}");
    let full = client.request("GET", &t.path("p", "r")).level("fullmetadata").send().expect_json();
    assert_eq!(full["odata.id"], client.url(&t.path("p", "r")));
    Batch::new().insert(&t, &with_keys("p", "s", json!({}))).commit(&client);
    assert_eq!(t.count(), 2);
    // Bodies of more than one TLS record, there and back.
    let long = json!({ "A": "x".repeat(30_000), "B": "y".repeat(30_000) });
    t.insert(&with_keys("p", "long", long.clone())).expect(201);
    assert_eq!(custom(t.entity("p", "long")), long);
}

#[test]
fn signatures_that_insist_on_https_are_content() {
    let (server, _) = server(&[]);
    let client = client(&server);
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for protocols in ["https", "https,http"] {
        let bearer = Sas::table(&t.name, "r").set("sv", "2015-04-05").set("spr", protocols).of(&client);
        bearer.get(&t.path("p", "r")).expect(200);
    }
    let bearer = Sas::account("o", "r").set("spr", "https").of(&client);
    bearer.get(&t.path("p", "r")).expect(200);
}

#[test]
fn tokens_are_looked_at_without_further_permission() {
    // No issuer answers, so that the token of an encrypted connection fails
    // later than one of a plain one: 503, not 403.
    let (server, _) = server(&["--oidc-issuer", "https://issuer.invalid"]);
    let token = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.e30.AAAA";
    let auth = Auth::Header(format!("Bearer {token}"));
    let answer = client(&server).request("GET", "/Tables").auth(auth).unchecked().send();
    assert_eq!(answer.status, 503, "{answer}");
}

#[test]
fn whoever_speaks_plain_http_is_told_so() {
    let (server, _) = server(&[]);
    let plain = server.client();
    let raw = plain.wire().exchange("GET", &plain.request("GET", "/Tables").bytes());
    assert_eq!(raw.status, 400);
    assert!(String::from_utf8_lossy(&raw.body).contains("HTTPS"), "{raw:?}");
    // What is neither ends without an answer.
    let mut stream = plain.wire().connect();
    stream.write_all(&[0x16, 0x03, 0x01, 0, 5, 1, 2, 3, 4, 5]).expect("the server listens");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
    client(&server).table();
}

/// The certificate that a new connection is shown.
fn shown(server: &Process) -> CertificateDer<'static> {
    let wire = Wire::new(server.address());
    let mut stream = wire.connect_tls(&trusting(&[b"http/1.1"]));
    stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    stream.conn.peer_certificates().expect("certificates")[0].clone().into_owned()
}

#[track_caller]
fn comes_to_show(server: &Process, name: &str) {
    until(name, || shown(server) == certificate(name));
}

#[test]
fn changed_certificates_are_taken_up_and_broken_ones_are_not() {
    let (server, folder) = server(&[]);
    let there = client(&server);
    there.table();
    assert_eq!(shown(&server), certificate("first.pem"));
    install(&folder, "second.pem", "second.key.pem");
    comes_to_show(&server, "second.pem");
    // A connection of before goes on.
    there.table();
    install(&folder, "first.pem", "second.key.pem");
    until("a complaint", || server.log().contains("the old one stays"));
    assert_eq!(shown(&server), certificate("second.pem"));
    install(&folder, "first.pem", "first.key.pem");
    comes_to_show(&server, "first.pem");
}

#[test]
fn http_1_is_agreed_on_whatever_else_a_client_offers() {
    let (server, _) = server(&[]);
    for offered in [&[&b"h2"[..], b"http/1.1"][..], &[b"http/1.1"], &[]] {
        let client = Client::over_tls(server.address(), account(1), trusting(offered));
        client.table();
        let mut stream = client.wire().connect_tls(&trusting(offered));
        stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        let agreed = (!offered.is_empty()).then_some(&b"http/1.1"[..]);
        assert_eq!(stream.conn.alpn_protocol(), agreed, "{offered:?}");
    }
}

#[test]
fn files_that_are_missing_or_alone_are_refused_in_one_line() {
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
    for (more, words) in [
        (&["--tls-cert", "none.pem", "--tls-key", "none.pem"][..], "none.pem"),
        (&["--tls-cert", "none.pem"], "give both or none"),
    ] {
        let arguments = [&fixed[..], more].concat();
        let refusal = Process::try_spawn(fresh_folder(), &arguments, &[]).err().expect("it does not start");
        assert!(refusal.contains("--tls-cert") && refusal.contains(words), "{refusal}");
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
    }
}
