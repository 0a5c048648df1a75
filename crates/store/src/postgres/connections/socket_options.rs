//! TCP options for database connections: TCP_NODELAY, and the time until a dead connection ends.
//!
//! Without TCP_NODELAY, the end of a statement that spans several packets or TLS records waits for an acknowledgement
//! (Nagle's algorithm), which the database delays by 40 ms. A 17 KB insert over TLS took 44 ms instead of 1 ms.
//!
//! A connection whose packets are dropped would block its statement until the statement times out, as long as new
//! connections are answered. This happens if another machine took over the address, or if a firewall dropped the old
//! connection.
//!
//! sqlx 0.9.0 sets neither option; the next version sets TCP_NODELAY. sqlx does not expose its sockets, so this module
//! finds them among the process's file descriptors by the port of their peer.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::net::getpeername;
use rustix::net::sockopt::set_tcp_nodelay;

/// Sets the options on all connections of this process to a port. The work runs on a thread that serves no requests,
/// because the list of descriptors is long if many clients are connected.
pub(super) async fn set_socket_options(port: u16) {
    let _ = tokio::task::spawn_blocking(move || set_on_connections(port)).await;
}

/// Ignores failures, which only make statements slower. Does nothing on systems without `/proc`.
fn set_on_connections(port: u16) {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = descriptors.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number: &RawFd| *number >= 0).for_each(|number| {
        // SAFETY: the descriptor was open a moment ago. If it has since been closed, the calls fail. If the number now
        // belongs to another socket to the port, setting the options on that socket is also intended. Nothing is read
        // or closed.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let peer = getpeername(descriptor).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        if peer.is_some_and(|peer| peer.port() == port) {
            let _ = set_tcp_nodelay(descriptor, true);
            #[cfg(target_os = "linux")]
            let _ = limits::set(descriptor);
        }
    });
}

/// Ends a connection whose peer acknowledges nothing for [`LIMIT`], whether or not data was sent.
#[cfg(target_os = "linux")]
mod limits {
    use std::os::fd::BorrowedFd;
    use std::time::Duration;

    use rustix::net::sockopt::{
        set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout,
    };

    /// Silence after which keepalive probes are sent.
    pub(super) const IDLE: Duration = Duration::from_secs(2);
    pub(super) const INTERVAL: Duration = Duration::from_secs(1);
    pub(super) const PROBES: u32 = 4;
    /// Milliseconds.
    pub(super) const LIMIT: u32 = 6000;

    pub(super) fn set(socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
        set_tcp_keepidle(socket, IDLE)?;
        set_tcp_keepintvl(socket, INTERVAL)?;
        set_tcp_keepcnt(socket, PROBES)?;
        set_tcp_user_timeout(socket, LIMIT)?;
        set_socket_keepalive(socket, true)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn connections_to_the_port_have_the_options_and_others_stay_as_they_are() {
        let [database, other] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let connect =
            |to: &TcpListener| TcpStream::connect(to.local_addr().expect("bound")).expect("it listens");
        let (session, bystander) = (connect(&database), connect(&other));
        assert!(!session.nodelay().expect("an option"));
        set_on_connections(database.local_addr().expect("bound").port());
        assert!(session.nodelay().expect("an option"));
        assert!(!bystander.nodelay().expect("an option"));
        #[cfg(target_os = "linux")]
        assert_limits(&session, &bystander);
    }

    #[test]
    fn the_thread_that_opens_a_session_does_not_list_the_descriptors() {
        let database = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = database.local_addr().expect("bound");
        let session = TcpStream::connect(address).expect("it listens");
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).build().expect("a runtime");
        runtime.block_on(async {
            let (release, released) = std::sync::mpsc::channel::<()>();
            let other_work = tokio::task::spawn_blocking(move || released.recv());
            let mut setting = std::pin::pin!(set_socket_options(address.port()));
            let first_poll = setting.as_mut().now_or_never();
            assert_eq!((first_poll, session.nodelay().expect("an option")), (None, false));
            drop(release);
            setting.await;
            assert!(session.nodelay().expect("an option"));
            assert!(other_work.await.expect("it ends").is_err());
        });
    }

    #[cfg(target_os = "linux")]
    fn assert_limits(session: &TcpStream, bystander: &TcpStream) {
        use rustix::net::sockopt::{
            socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl, tcp_user_timeout,
        };
        assert_eq!(socket_keepalive(session), Ok(true));
        assert_eq!(tcp_keepidle(session), Ok(limits::IDLE));
        assert_eq!(tcp_keepintvl(session), Ok(limits::INTERVAL));
        assert_eq!(tcp_keepcnt(session), Ok(limits::PROBES));
        assert_eq!(tcp_user_timeout(session), Ok(limits::LIMIT));
        assert_eq!((socket_keepalive(bystander), tcp_user_timeout(bystander)), (Ok(false), Ok(0)));
    }
}
