//! A proxy before a server that behaves as Cosmos DB does where that differs: pages have no order.

use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use super::faulty_proxy::{exchange, request};

/// The address where the emulator of Cosmos DB listens, of a loopback network of the test's own.
pub const COSMOS: &str = "127.0.24.2:8902";

/// One test at a time has the address.
static TAKEN: Mutex<()> = Mutex::new(());

/// Runs `test` while a proxy listens on [`COSMOS`].
pub fn as_cosmos(server: &str, test: impl FnOnce()) {
    let _taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let listener = TcpListener::bind(COSMOS).expect("nobody else has the address");
    let server = server.to_owned();
    let _end = End(Some(std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if OVER.swap(false, Ordering::SeqCst) {
                return;
            }
            let server = server.clone();
            // A client that goes away ends only this thread.
            std::thread::spawn(move || drop(serve(client, &server)));
        }
    })));
    test();
}

/// Whether the next connection ends the proxy.
static OVER: AtomicBool = AtomicBool::new(false);

/// Ends the proxy, so that another test may have its address.
struct End(Option<JoinHandle<()>>);

impl Drop for End {
    fn drop(&mut self) {
        OVER.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(COSMOS));
        let _ = self.0.take().map(JoinHandle::join);
    }
}

fn serve(mut client: TcpStream, server: &str) -> std::io::Result<()> {
    let request = request(&mut client)?;
    let answer = exchange(server, &request)?;
    client.write_all(&unordered(&answer).unwrap_or(answer))?;
    client.shutdown(Shutdown::Both)
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
