//! A server whose answers a test writes: what no server of ours would send.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;

use super::faulty_proxy::request;

/// An answer with status 200: further headers, each with its line end, and the body.
pub type ScriptedAnswer = (String, Vec<u8>);

/// Answers each request by the target of its first line; returns a connection string.
pub fn scripted(answer: impl Fn(&str) -> ScriptedAnswer + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let Ok(request) = request(&mut client) else { return };
                let text = String::from_utf8_lossy(&request);
                let (headers, body) = answer(text.split(' ').nth(1).expect("a target"));
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}Connection: close\r\n\r\n",
                    body.len()
                );
                // A client that goes away ends only this thread.
                let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(&body));
            });
        }
    });
    format!("AccountName=scripted;AccountKey={};TableEndpoint=http://{address}/scripted", super::MASTER)
}

/// Answers requests for the list of tables with People, and for its policies and the properties with none.
pub fn scripted_people(entities: impl Fn(&str) -> ScriptedAnswer + Send + Sync + 'static) -> String {
    scripted(move |target| {
        let plain = |text: &str| (String::new(), text.as_bytes().to_vec());
        if target.contains("comp=acl") {
            plain("<SignedIdentifiers/>")
        } else if target.contains("comp=properties") {
            plain("<StorageServiceProperties/>")
        } else if target.contains("/Tables") {
            plain("{\"value\":[{\"TableName\":\"People\"}]}")
        } else {
            entities(target)
        }
    })
}
