//! The images, started from Rust: by the community's module for Azurite, and by the
//! image that this crate describes. Both are of one version of testcontainers.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rowhouse::testing::Image;
use testcontainers_modules::azurite::Azurite;
use testcontainers_modules::testcontainers::ImageExt as _;
use testcontainers_modules::testcontainers::runners::SyncRunner as _;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

#[test]
fn the_module_for_azurite() -> Result {
    let storage = Azurite::default().with_name("rowhouse-azurite").with_tag("latest").start()?;
    let port = storage.get_host_port_ipv4(10_002)?;
    let endpoint = format!("http://127.0.0.1:{port}/devstoreaccount1");
    make_a_table(&format!(
        "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={KEY};TableEndpoint={endpoint};"
    ))
}

#[test]
fn the_image_of_this_crate() -> Result {
    let container = Image::new("rowhouse", "latest").start()?;
    let (host, port) = (container.get_host()?, container.get_host_port_ipv4(Image::PORT)?);
    make_a_table(
        &container.image().connection_string(&host.to_string().replace("localhost", "127.0.0.1"), port),
    )
}

/// Makes a table with a signature that the program under test makes.
fn make_a_table(connection_string: &str) -> Result {
    let program = std::env::var("ROWHOUSE_BIN")?;
    let sas = ["sas", "account", "--permissions", "rwdlacu", "--expiry", "1h"];
    let output = Command::new(program).args(sas).args(["--connection-string", connection_string]).output()?;
    assert!(output.status.success(), "{output:?}");
    let token = String::from_utf8(output.stdout)?;
    let (_, rest) = connection_string.split_once("TableEndpoint=http://").ok_or("no endpoint")?;
    let (address, account) = rest.trim_end_matches(';').split_once('/').ok_or("no account")?;
    let body = "{\"TableName\":\"People\"}";
    let request = format!(
        "POST /{account}/Tables?{} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Accept: application/json;odata=nometadata\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        token.trim().trim_start_matches('?'),
        body.len()
    );
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    Ok(())
}
