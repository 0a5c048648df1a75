//! TLS certificates, which are reloaded while the server runs.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use actix_web::rt::net::TcpStream;
use chrono::{DateTime, SecondsFormat, Utc};
use parking_lot::RwLock;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::observe::metrics::METRICS;
use crate::server::file::read_bytes;

/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The protocol that ALPN offers to clients.
const HTTP_1_ALPN: &[u8] = b"http/1.1";
/// The first byte of a TLS connection, which is that of a handshake record.
const HANDSHAKE_RECORD: u8 = 22;
/// The response to plain HTTP.
const PLAIN_HTTP_RESPONSE: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 29\r\n\
                       Connection: close\r\n\r\nThis port speaks HTTPS only.\n";
/// Remaining validity below which a certificate needs to be renewed.
const RENEWAL_TIME: Duration = Duration::from_hours(14 * 24);

/// The PEM files of a certificate chain, which begins with the server's own certificate, and of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Encrypts connections.
pub(crate) struct Tls {
    files: TlsFiles,
    current: Arc<CurrentCertificate>,
    acceptor: TlsAcceptor,
    /// The stamp of the files before they were first read.
    first_stamp: Stamp,
}

/// The certificate for new connections.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

/// The inode, change time (ctime) in nanoseconds, and length of both files, which change with the files.
type Stamp = [Option<(u64, i128, u64)>; 2];

/// The stamps with which the next check compares the files.
struct FileStamps {
    /// The stamp of the files in use.
    used: Stamp,
    /// The stamp of the unusable files that were last reported.
    reported: Stamp,
}

impl TlsFiles {
    fn load(&self, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
        let (chain, key) = (read_chain(&self.certificate)?, read_key(&self.key)?);
        CertifiedKey::from_der(chain, key, provider).map_err(|error| self.explain(&error))
    }

    /// Returns why the files cannot be used together.
    fn explain(&self, error: &rustls::Error) -> String {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("{key} is not the key of the certificate {certificate}")
            }
            reason => format!("the certificate {certificate} and the key {key} cannot be used: {reason}"),
        }
    }

    fn stamp(&self) -> Stamp {
        let facts = |path: &Path| {
            let facts = std::fs::metadata(path).ok()?;
            let changed = i128::from(facts.ctime()) * 1_000_000_000 + i128::from(facts.ctime_nsec());
            Some((facts.ino(), changed, facts.len()))
        };
        [facts(&self.certificate), facts(&self.key)]
    }
}

fn read_pem(path: &Path) -> Result<Vec<u8>, String> {
    read_bytes(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read_pem(path)?).collect();
    chain
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or_else(|| format!("{}: no certificate in PEM form was found", path.display()))
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&read_pem(path)?)
        .map_err(|_| format!("{}: no private key in PEM form was found", path.display()))
}

impl Tls {
    /// Reads the files.
    pub(crate) fn load(files: TlsFiles) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let first_stamp = files.stamp();
        let current = Arc::new(CurrentCertificate(RwLock::new(Arc::new(files.load(&provider)?))));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|reason| files.explain(&reason))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![HTTP_1_ALPN.to_vec()];
        Ok(Self { files, current, acceptor: Arc::new(config).into(), first_stamp })
    }

    /// Returns the validity period of the certificate in use.
    pub(crate) fn validity(&self) -> Option<Validity> {
        let current = self.current.0.read();
        current.cert.first().and_then(Validity::of)
    }

    /// Exports the end of the validity period, and logs a problem with it that was not logged before.
    fn watch_validity(&self, known: &mut Option<ValidityProblem>) {
        let Some(validity) = self.validity() else { return };
        METRICS.tls.certificate_end.set(validity.end_seconds());
        let problem = validity.problem_at(SystemTime::now());
        if let Some(problem) = problem.filter(|_| problem != *known) {
            tracing::warn!(
                "{}: {problem}; replace the file: the server reloads changed files",
                self.files.certificate.display()
            );
        }
        *known = problem;
    }

    /// Reloads changed files while the server runs. Unusable files change nothing and are tried again; the
    /// log reports them once for each change.
    pub(crate) async fn follow(&self) {
        let mut stamps = FileStamps { used: self.first_stamp, reported: self.first_stamp };
        let mut problem = None;
        loop {
            self.watch_validity(&mut problem);
            sleep(CHECK_INTERVAL).await;
            self.reload_if_changed(&mut stamps).await;
        }
    }

    async fn reload_if_changed(&self, stamps: &mut FileStamps) {
        let (files, used) = (self.files.clone(), stamps.used);
        let read = move || {
            let stamp = files.stamp();
            (stamp != used).then(|| (stamp, files.load(&ring::default_provider())))
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(None) => {}
            Ok(Some((stamp, Ok(new)))) => {
                *self.current.0.write() = Arc::new(new);
                stamps.used = stamp;
                METRICS.tls.reloads.one();
                tracing::info!("reloaded the changed certificate");
            }
            Ok(Some((stamp, Err(error)))) if stamp != stamps.reported => {
                stamps.reported = stamp;
                METRICS.tls.failed_reloads.one();
                tracing::error!(%error, "cannot use the changed certificate; the old one stays");
            }
            Ok(Some(_)) => {}
            Err(error) => tracing::error!(%error, "reading the certificate did not finish"),
        }
    }

    /// Performs the TLS handshake of a connection.
    ///
    /// # Errors
    /// Those of the handshake. Plain HTTP is answered with 400.
    pub(crate) async fn accept(&self, connection: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let done = timeout(HANDSHAKE_TIMEOUT, self.shake_hands(connection)).await;
        let done = done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match &done {
            Ok(_) => METRICS.tls.handshakes.one(),
            Err(error) => {
                METRICS.tls.failed_handshakes.one();
                tracing::debug!(%error, "a connection could not be encrypted");
            }
        }
        done
    }

    async fn shake_hands(&self, mut connection: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut first = [0];
        let is_plain = connection.peek(&mut first).await? == 1 && first[0] != HANDSHAKE_RECORD;
        if is_plain && first[0].is_ascii_alphabetic() {
            connection.write_all(PLAIN_HTTP_RESPONSE).await?;
            connection.shutdown().await?;
            drain(&mut connection).await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "plain HTTP"));
        }
        self.acceptor.accept(connection).await
    }
}

/// Reads the client's remaining bytes; otherwise closing could discard the response.
async fn drain(connection: &mut TcpStream) -> io::Result<()> {
    let mut rest = [0; 4096];
    for _ in 0..64 {
        if tokio::io::AsyncReadExt::read(connection, &mut rest).await? == 0 {
            break;
        }
    }
    Ok(())
}

/// The validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    begin: SystemTime,
    end: SystemTime,
}

/// A reason for clients to refuse a certificate, at present or soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValidityProblem {
    NotYet(SystemTime),
    Expired(SystemTime),
    ExpiresSoon(SystemTime),
}

impl Validity {
    /// Reads the period. Returns `None` if this is not an X.509 certificate.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = Certificate::from_der(certificate).ok()?;
        let validity = certificate.tbs_certificate().validity();
        Some(Self { begin: validity.not_before.to_system_time(), end: validity.not_after.to_system_time() })
    }

    /// Returns the problem with the certificate at this time, if there is one.
    pub(crate) fn problem_at(self, now: SystemTime) -> Option<ValidityProblem> {
        if now < self.begin {
            Some(ValidityProblem::NotYet(self.begin))
        } else if now > self.end {
            Some(ValidityProblem::Expired(self.end))
        } else if now + RENEWAL_TIME > self.end {
            Some(ValidityProblem::ExpiresSoon(self.end))
        } else {
            None
        }
    }

    /// Returns the end of the period, in seconds since 1970.
    pub(crate) fn end_seconds(self) -> i64 {
        self.end.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
    }
}

impl fmt::Display for ValidityProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, at) = match self {
            ValidityProblem::NotYet(at) => ("is not valid before", at),
            ValidityProblem::Expired(at) => ("expired at", at),
            ValidityProblem::ExpiresSoon(at) => ("expires at", at),
        };
        let at = DateTime::<Utc>::from(*at).to_rfc3339_opts(SecondsFormat::Secs, true);
        write!(f, "the certificate {text} {at}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(certificate: &str, key: &str) -> TlsFiles {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
        TlsFiles { certificate: folder.join(certificate), key: folder.join(key) }
    }

    #[tokio::test]
    async fn unusable_files_are_tried_again_even_if_their_stamp_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let TlsFiles { certificate, key } = files("first.pem", "first.key.pem");
        let (own, own_key) = (folder.path().join("tls.pem"), folder.path().join("key.pem"));
        std::fs::copy(&certificate, &own).unwrap();
        std::fs::copy(&key, &own_key).unwrap();
        let tls = Tls::load(TlsFiles { certificate: own.clone(), key: own_key }).expect("usable files");
        let current = || Arc::as_ptr(&*tls.current.0.read());
        let first = current();
        let mut stamps = FileStamps { used: tls.first_stamp, reported: tls.first_stamp };
        tls.reload_if_changed(&mut stamps).await;
        assert_eq!(current(), first, "nothing has changed");
        std::fs::write(&own, "of no use").unwrap();
        tls.reload_if_changed(&mut stamps).await;
        assert_eq!((current(), stamps.used), (first, tls.first_stamp));
        std::fs::copy(&certificate, &own).unwrap();
        // The stamp is the same as before, as if only the permissions of the files had changed.
        stamps.reported = tls.files.stamp();
        tls.reload_if_changed(&mut stamps).await;
        assert_ne!(current(), first);
        assert_eq!(stamps.used, tls.files.stamp());
    }

    #[test]
    fn errors_distinguish_between_unusable_files() {
        assert!(Tls::load(files("first.pem", "first.key.pem")).is_ok());
        let refusal = |certificate, key| Tls::load(files(certificate, key)).err();
        for (certificate, key, words) in [
            ("none.pem", "first.key.pem", "none.pem: "),
            ("first.key.pem", "first.key.pem", "no certificate in PEM form"),
            ("first.pem", "first.pem", "no private key in PEM form"),
            ("first.pem", "second.key.pem", "second.key.pem is not the key of the certificate"),
        ] {
            let message = refusal(certificate, key).unwrap();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn the_refusal_of_plain_http_announces_its_length() {
        let text = std::str::from_utf8(PLAIN_HTTP_RESPONSE).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
    }

    #[test]
    fn a_certificate_has_a_problem_outside_its_period_and_near_its_end() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/first.pem");
        let validity = Validity::of(&CertificateDer::from_pem_file(path).unwrap()).unwrap();
        let (begin, end, second) = (validity.begin, validity.end, Duration::from_secs(1));
        for (now, problem) in [
            (begin - second, Some(ValidityProblem::NotYet(begin))),
            (begin, None),
            (end - RENEWAL_TIME, None),
            (end - RENEWAL_TIME + second, Some(ValidityProblem::ExpiresSoon(end))),
            (end, Some(ValidityProblem::ExpiresSoon(end))),
            (end + second, Some(ValidityProblem::Expired(end))),
        ] {
            assert_eq!(validity.problem_at(now), problem);
        }
        let stated = ValidityProblem::Expired(end).to_string();
        assert_eq!(stated, "the certificate expired at 2126-10-28T12:15:48Z");
        assert_eq!(Validity::of(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
