//! TCP_NODELAY on connections to the database.
//!
//! Without it, the end of a statement that takes several packets or TLS records waits for an acknowledgement
//! (Nagle's algorithm), which the database delays by 40 ms: an insert of 17 KB by TLS took 44 ms instead of one.
//! sqlx 0.9.0 does not set it; the version after it does, and then this module goes. It lends no socket
//! either, so the sockets are found among the descriptors of this process, by the port of their peer.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::net::getpeername;
use rustix::net::sockopt::set_tcp_nodelay;

/// Sets it on all connections of this process to a port. What cannot be read or set is left as it is: then
/// statements only take longer. Does nothing on systems without `/proc`.
pub(super) fn set_no_delay(port: u16) {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = descriptors.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number: &RawFd| *number >= 0).for_each(|number| {
        // SAFETY: the number is that of a descriptor that was open a moment ago. If it was closed since, the calls
        // fail; if it is another socket to the port by now, that is meant as well. Nothing is read or closed.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let peer = getpeername(descriptor).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        if peer.is_some_and(|peer| peer.port() == port) {
            let _ = set_tcp_nodelay(descriptor, true);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_to_the_port_send_at_once_and_others_stay_as_they_are() {
        let [database, other] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let connect =
            |to: &TcpListener| TcpStream::connect(to.local_addr().expect("bound")).expect("it listens");
        let (session, bystander) = (connect(&database), connect(&other));
        assert!(!session.nodelay().expect("an option"));
        set_no_delay(database.local_addr().expect("bound").port());
        assert!(session.nodelay().expect("an option"));
        assert!(!bystander.nodelay().expect("an option"));
    }
}
