//! Encrypted connections: both versions of HTTP, certificates and their
//! replacement, and what is different for whoever comes over one.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::support::client::Request;
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
    let plain = Client::path_style(server.address(), account(1));
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
    let deadline = Instant::now() + Duration::from_secs(60);
    while shown(server) != certificate(name) {
        assert!(Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(200));
    }
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
    let deadline = Instant::now() + Duration::from_secs(60);
    while !server.log().contains("the old one stays") {
        assert!(Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(shown(&server), certificate("second.pem"));
    install(&folder, "first.pem", "first.key.pem");
    comes_to_show(&server, "first.pem");
}

/// Opens an HTTP/2 connection.
pub async fn connect(server: &Process) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(server.address()).await.expect("the server listens");
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let connector = TlsConnector::from(trusting(&[b"h2", b"http/1.1"]));
    let stream = connector.connect(name, stream).await.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender.ready().await.expect("a stream")
}

/// Sends requests over one HTTP/2 connection at once; statuses and bodies.
async fn over_http_2(server: &Process, requests: Vec<Request<'_>>) -> Vec<(u16, Value)> {
    let mut sender = connect(server).await;
    let mut pending = Vec::new();
    for request in requests {
        let (head, body) = as_http_2(&request.bytes());
        let (answer, mut out) = sender.send_request(head, body.is_empty()).expect("a request");
        if !body.is_empty() {
            out.send_data(body, true).expect("a body");
        }
        pending.push(answer);
        sender = sender.ready().await.expect("another stream");
    }
    let mut answers = Vec::new();
    for answer in pending {
        let (head, mut body) = answer.await.expect("an answer").into_parts();
        let mut bytes = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece.expect("a body");
            let _ = body.flow_control().release_capacity(piece.len());
            bytes.extend_from_slice(&piece);
        }
        answers.push((head.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or(Value::Null)));
    }
    answers
}

/// The same request as HTTP/2 has it.
pub fn as_http_2(bytes: &[u8]) -> (::http::Request<()>, Bytes) {
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut slots);
    let used = parsed.parse(bytes).expect("a request").unwrap();
    let host = parsed.headers.iter().find(|h| h.name == "Host").expect("a host");
    let host = std::str::from_utf8(host.value).expect("text");
    let mut head = ::http::Request::builder()
        .version(::http::Version::HTTP_2)
        .method(parsed.method.expect("a verb"))
        .uri(format!("https://{host}{}", parsed.path.expect("a path")));
    for header in parsed.headers.iter().filter(|h| h.name != "Host") {
        head = head.header(header.name, header.value);
    }
    (head.body(()).expect("a request"), Bytes::copy_from_slice(&bytes[used..]))
}

#[tokio::test]
async fn http_2_is_spoken_where_the_client_does() {
    let (server, _) = server(&[]);
    let client = client(&server);
    let t = client.table();
    let inserts =
        (0..50).map(|i| t.inserting(&with_keys("p", &format!("{i:02}"), json!({ "A": i })))).collect();
    let answers = over_http_2(&server, inserts).await;
    assert!(answers.iter().all(|(status, _)| *status == 201), "{answers:?}");
    let sas = Sas::table(&t.name, "r").set("sv", "2015-04-05").set("spr", "https").of(&client);
    let requests = vec![
        client.request("GET", &format!("/{}()", t.name)).level("fullmetadata"),
        sas.request("GET", &t.path("p", "07")),
        client.request("GET", &t.path("p", "none")),
        client.request("GET", "/Tables").auth(Auth::Header("SharedKey acct0001:AAAA".into())),
    ];
    let answers = over_http_2(&server, requests).await;
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 404, 403]);
    let rows = answers[0].1["value"].as_array().expect("rows");
    assert_eq!(rows.len(), 50);
    assert_eq!(rows[7]["odata.id"], client.url(&t.path("p", "07")));
    assert_eq!(answers[1].1["A"], 7);
    assert_eq!(answers[2].1["odata.error"]["code"], "ResourceNotFound");
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

#[tokio::test]
async fn an_idle_connection_of_http_2_does_not_hold_up_the_end() {
    let (server, _) = server(&["--shutdown-seconds", "3600"]);
    let mut sender = connect(&server).await;
    let client = client(&server);
    let t = client.table();
    let (head, body) = as_http_2(&t.inserting(&with_keys("p", "r", json!({ "A": 1 }))).bytes());
    // A request is under way when the server is told to stop, and is finished.
    let (answer, mut out) = sender.send_request(head, false).expect("a request");
    out.send_data(body.slice(..5), false).expect("half a body");
    // It has read the head when it has answered what was sent after it.
    let mut sender = sender.ready().await.expect("another stream");
    let (list, _) = as_http_2(&client.request("GET", "/Tables").bytes());
    let (listed, _) = sender.send_request(list, true).expect("a request");
    assert_eq!(listed.await.expect("an answer").status(), 200);
    server.signal("TERM");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    out.send_data(body.slice(5..), true).expect("the rest");
    assert_eq!(answer.await.expect("an answer").status(), 201);
    let ended = tokio::task::spawn_blocking(move || server.exit_status(Duration::from_secs(60)));
    assert_eq!(ended.await.expect("a status"), Some(0));
    drop(sender);
}
