//! The least that a server does for a request, as a floor to compare with.
//!
//! Whatever comes from a client, it answers with the same bytes: no signature is looked
//! at, and there is no store. Either no request is read, or actix-web reads and answers
//! it. Clients are given to two threads in turns. `scripts/bench` runs both beside
//! Azurite.
//!
//! ```text
//! cargo run --profile dist --example still -- BYTES [actix]
//! ```
//!
//! An answer's body has that many bytes. It prints its address and serves until it is
//! ended.

use std::io;
use std::net::TcpListener;

use actix_web::{App, HttpResponse, HttpServer, web};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const THREADS: usize = 2;
/// Bytes of a request at most.
const ROOM: usize = 64 * 1024;

fn main() -> io::Result<()> {
    let bytes: Option<usize> = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let bytes = bytes.ok_or_else(|| io::Error::other("BYTES [actix]"))?;
    let body: &'static str = " ".repeat(bytes).leak();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{},", listener.local_addr()?);
    match std::env::args().nth(2).as_deref() {
        None => alone(&listener, body),
        Some("actix") => with_actix(listener, body),
        Some(_) => Err(io::Error::other("BYTES [actix]")),
    }
}

/// What comes is read by actix-web, which also writes the answer.
#[actix_web::main]
async fn with_actix(listener: TcpListener, body: &'static str) -> io::Result<()> {
    let answer = move || async move { HttpResponse::Ok().body(body) };
    let server = HttpServer::new(move || App::new().default_service(web::to(answer)));
    server.workers(THREADS).listen(listener)?.run().await
}

/// What comes is not looked at.
fn alone(listener: &TcpListener, body: &str) -> io::Result<()> {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer: &'static [u8] = answer.leak().as_bytes();
    let threads: Vec<_> = (0..THREADS).map(|_| start(answer)).collect();
    for thread in threads.iter().cycle() {
        thread.send(listener.accept()?.0).map_err(io::Error::other)?;
    }
    Ok(())
}

/// A thread that answers the clients that it is sent.
fn start(answer: &'static [u8]) -> UnboundedSender<std::net::TcpStream> {
    let (sender, clients) = unbounded_channel();
    std::thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(take(clients, answer))
    });
    sender
}

async fn take(mut clients: UnboundedReceiver<std::net::TcpStream>, answer: &'static [u8]) -> io::Result<()> {
    while let Some(client) = clients.recv().await {
        client.set_nonblocking(true)?;
        client.set_nodelay(true)?;
        tokio::spawn(serve(TcpStream::from_std(client)?, answer));
    }
    Ok(())
}

/// Answers a client until it goes.
async fn serve(mut client: TcpStream, answer: &[u8]) -> io::Result<()> {
    let mut request = vec![0; ROOM];
    while client.read(&mut request).await? > 0 {
        client.write_all(answer).await?;
    }
    Ok(())
}
