//! A server in the process of a test, asked over HTTP and signed with SharedKeyLite.
//!
//! `cargo run --example in_a_test` prints what the server answers. Any Azure Tables SDK
//! takes `server.connection_string()` instead and signs by itself.

use std::error::Error;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use rowhouse::testing::Server;
use sha2::Sha256;

/// An entity of the table `people`.
const ADA: &str = r#"{"PartitionKey":"london","RowKey":"ada","Born":1815}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::start()?;

    let created = ask(&server, "POST", "Tables", r#"{"TableName":"people"}"#)?;
    println!("create a table: {created}");
    let empty = server.snapshot()?;

    println!("insert an entity: {}", ask(&server, "POST", "people", ADA)?);
    println!("read the table: {}", ask(&server, "GET", "people()", "")?);

    // The next test starts from an empty table again.
    server.restore(&empty)?;
    println!("read it after the restore: {}", ask(&server, "GET", "people()", "")?);
    Ok(())
}

/// Sends one signed request. Returns the status and the body of the answer.
fn ask(server: &Server, method: &str, path: &str, body: &str) -> Result<String, Box<dyn Error>> {
    let date = chrono::Utc::now().format("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let account = server.account();
    // Path-style addresses have the account twice in the canonicalized resource.
    let signed = format!("{date}\n/{account}/{account}/{path}");
    let mut mac = Hmac::<Sha256>::new_from_slice(&BASE64_STANDARD.decode(server.key())?)?;
    mac.update(signed.as_bytes());
    let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());

    let request = ureq::http::Request::builder()
        .method(method)
        .uri(format!("{}/{path}", server.endpoint()))
        .header("x-ms-date", &date)
        .header("x-ms-version", "2019-02-02")
        .header("Authorization", format!("SharedKeyLite {account}:{signature}"))
        .header("Accept", "application/json;odata=nometadata")
        .header("Content-Type", "application/json")
        .body(body.to_owned())?;
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut response = agent.run(request)?;
    Ok(format!("{} {}", response.status(), response.body_mut().read_to_string()?))
}

#[test]
fn the_example_reads_what_it_inserted() {
    let server = Server::start().unwrap();
    assert!(ask(&server, "POST", "Tables", r#"{"TableName":"people"}"#).unwrap().starts_with("201 "));
    assert!(ask(&server, "POST", "people", ADA).unwrap().starts_with("201 "));
    assert!(ask(&server, "GET", "people()", "").unwrap().contains("\"Born\":1815"));
    main().unwrap();
}
