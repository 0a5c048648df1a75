//! A proxy before a server that behaves as Cosmos DB does where that differs: pages have no order.

use std::sync::{Mutex, Once};

use serde_json::Value;

use crate::support::scripted::{exchange, scripted_at};

/// The address where the emulator of Cosmos DB listens, of a loopback network of the test's own.
pub const COSMOS: &str = "127.0.24.2:8902";

/// One test at a time has the address.
static TAKEN: Mutex<()> = Mutex::new(());
/// The server behind the proxy.
static SERVER: Mutex<String> = Mutex::new(String::new());

/// Runs `test` while a proxy before a server listens on [`COSMOS`].
pub fn as_cosmos(server: &str, test: impl FnOnce()) {
    static START: Once = Once::new();
    let _taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *SERVER.lock().expect("no panic") = server.to_owned();
    START.call_once(|| {
        scripted_at(COSMOS, |request| {
            let server = SERVER.lock().expect("no panic").clone();
            let answer = exchange(&server, request).ok()?;
            Some(unordered(&answer).unwrap_or(answer))
        });
    });
    test();
}

/// Reverses the rows of a page; `None` for any other answer.
fn unordered(answer: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body)? } else { body.to_owned() };
    let mut page: Value = serde_json::from_str(&body).ok()?;
    page["value"].as_array_mut()?.reverse();
    let body = page.to_string();
    let kept = head.lines().filter(|line| {
        let line = line.to_ascii_lowercase();
        !line.starts_with("content-length:") && !line.starts_with("transfer-encoding:")
    });
    let head = kept.collect::<Vec<_>>().join("\r\n");
    Some(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

fn unchunked(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.push_str(rest.get(..size)?);
        body = rest.get(size + 2..)?;
    }
}
