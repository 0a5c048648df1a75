//! A blocking client that signs each request, one connection each.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_protocol::auth::AccountSet;
use rowhouse_protocol::auth::accounts::{AccountKey, DEVELOPMENT_ACCOUNT as ACCOUNT};

pub struct Client {
    key: AccountKey,
    stream: BufReader<TcpStream>,
}

/// A page of a walk.
pub struct Page {
    pub keys: Vec<(String, String)>,
    /// Query parameters that ask for the next page.
    pub next: Option<String>,
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Client {
    pub fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_nodelay(true).expect("an option of the socket");
        let key = AccountSet::development(vec![]).keys(ACCOUNT).expect("an account")[0].clone();
        Self { key, stream: BufReader::new(stream) }
    }

    pub fn create_table(&mut self, table: &str) {
        let body = format!("{{\"TableName\":\"{table}\"}}");
        assert_eq!(self.send("POST", "/Tables", "", "application/json", body.as_bytes()).status, 201);
    }

    pub fn insert_transaction(&mut self, table: &str, entities: impl Iterator<Item = String>) {
        let mut body = String::from("--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n");
        for entity in entities {
            let _ = write!(
                body,
                "--c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
                 POST /{ACCOUNT}/{table} HTTP/1.1\r\nContent-Type: application/json\r\n\
                 Prefer: return-no-content\r\nContent-Length: {}\r\n\r\n{entity}\r\n",
                entity.len()
            );
        }
        body.push_str("--c--\r\n--b--\r\n");
        let answer = self.send("POST", "/$batch", "", "multipart/mixed; boundary=b", body.as_bytes());
        let text = String::from_utf8_lossy(&answer.body);
        assert!(answer.status == 202 && !text.contains("odata.error"), "{text}");
    }

    pub fn get(&mut self, table: &str, partition: &str, row: &str) {
        let path = format!("/{table}(PartitionKey='{partition}',RowKey='{row}')");
        assert_eq!(self.send("GET", &path, "", "", b"").status, 200);
    }

    /// The first page of one partition, whole.
    pub fn first_page(&mut self, table: &str, partition: &str) {
        let query = format!("$filter=PartitionKey%20eq%20'{partition}'");
        let answer = self.send("GET", &format!("/{table}()"), &query, "", b"");
        assert!(answer.status == 200 && answer.body.len() > 500_000);
    }

    /// One page of a walk, keys only.
    pub fn page(&mut self, table: &str, next: Option<&str>) -> Page {
        let query = format!("$select=PartitionKey,RowKey{}", next.unwrap_or_default());
        let answer = self.send("GET", &format!("/{table}()"), &query, "", b"");
        assert_eq!(answer.status, 200);
        let page: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        let text =
            |entity: &serde_json::Value, name: &str| entity[name].as_str().unwrap_or_default().to_owned();
        let entities = page["value"].as_array().expect("a feed");
        let keys = entities.iter().map(|e| (text(e, "PartitionKey"), text(e, "RowKey"))).collect();
        let header = |name: &str| answer.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        let next = header("x-ms-continuation-nextpartitionkey").map(|partition| {
            let row = header("x-ms-continuation-nextrowkey").unwrap_or_default();
            format!("&NextPartitionKey={partition}&NextRowKey={row}")
        });
        Page { keys, next }
    }

    fn send(&mut self, method: &str, path: &str, query: &str, content_type: &str, body: &[u8]) -> Answer {
        let date = chrono::Utc::now().format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let signature =
            STANDARD.encode(self.key.sign([format!("{date}\n/{ACCOUNT}/{ACCOUNT}{path}").as_str()]));
        let separator = if query.is_empty() { "" } else { "?" };
        let mut head = format!(
            "{method} /{ACCOUNT}{path}{separator}{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-ms-date: {date}\r\n\
             x-ms-version: 2019-02-02\r\nAccept: application/json;odata=nometadata\r\n\
             Authorization: SharedKeyLite {ACCOUNT}:{signature}\r\nContent-Length: {}\r\n",
            body.len()
        );
        if !content_type.is_empty() {
            let _ = write!(head, "Content-Type: {content_type}\r\n");
        }
        head.push_str("\r\n");
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).expect("the server reads");
        self.receive()
    }

    fn receive(&mut self) -> Answer {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a status line");
        let status = line.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).expect("a header");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let length = headers.iter().find(|(n, _)| n == "content-length").and_then(|(_, v)| v.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.stream.read_exact(&mut body).expect("a body");
        Answer { status, headers, body }
    }
}
