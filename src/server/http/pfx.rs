//! Certificates in PFX files (PKCS #12), which hold a chain and its key under a password.

use std::path::PathBuf;

use p12_keystore::error::Error;
use p12_keystore::{KeyStore, Pkcs12ImportPolicy};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A PFX file and its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pfx {
    pub file: PathBuf,
    pub password: String,
}

impl std::fmt::Debug for Pfx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pfx").field("file", &self.file).finish_non_exhaustive()
    }
}

/// A chain, the certificate of the key first, and the key.
pub(crate) type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Why a PFX file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PfxError {
    #[error("the password is wrong, or the file is damaged")]
    Password,
    #[error("it is encrypted in a way that is not read; `openssl pkcs12 -export` makes one that is")]
    Encryption,
    #[error("no private key with its certificate was found")]
    Key,
    #[error("not a PFX file")]
    Form,
}

impl From<Error> for PfxError {
    fn from(error: Error) -> Self {
        match error {
            Error::MacError(_) | Error::UnpadError | Error::Pkcs5Error(_) => Self::Password,
            Error::UnsupportedEncryptionScheme | Error::UnsupportedMacAlgorithm => Self::Encryption,
            Error::InvalidPrivateKey => Self::Key,
            _ => Self::Form,
        }
    }
}

/// Opens a PFX file.
///
/// # Errors
/// [`PfxError`]. If a file without a checksum does not open, a wrong password cannot be distinguished from
/// damage.
pub(crate) fn open(bytes: &[u8], password: &str) -> Result<Pair, PfxError> {
    let store = KeyStore::from_pkcs12(bytes, password, Pkcs12ImportPolicy::Strict)?;
    let (_, chain) = store.private_key_chain().ok_or(PfxError::Key)?;
    let certificates = chain.certs().iter().map(|one| CertificateDer::from(one.as_der().to_vec()));
    let key = PrivatePkcs8KeyDer::from(chain.key().as_der().to_vec());
    Ok((certificates.collect(), key.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/tests/fixtures/tls/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn chains_begin_with_the_certificate_of_the_key() {
        use tokio_rustls::rustls::pki_types::pem::PemObject as _;
        for (file, own, key) in
            [("modern.pfx", "first.pem", "first.key.pem"), ("legacy.pfx", "second.pem", "second.key.pem")]
        {
            let (chain, secret) = open(&fixture(file), "secret").unwrap();
            let expected: Vec<_> =
                [own, "ca.pem"].map(|name| CertificateDer::from_pem_slice(&fixture(name)).unwrap()).into();
            assert_eq!(chain, expected, "{file}");
            assert_eq!(secret, PrivateKeyDer::from_pem_slice(&fixture(key)).unwrap(), "{file}");
        }
    }

    #[test]
    fn reasons_are_told_apart() {
        let reason = |bytes: &[u8], password: &str| open(bytes, password).map(|_| ()).unwrap_err();
        let modern = fixture("modern.pfx");
        let mut damaged = modern.clone();
        damaged[modern.len() / 2] ^= 1;
        for (bytes, password, expected) in [
            (&modern, "Secret", PfxError::Password),
            (&modern, "", PfxError::Password),
            (&fixture("legacy.pfx"), "secret ", PfxError::Password),
            (&damaged, "secret", PfxError::Password),
            (&fixture("unread.pfx"), "secret", PfxError::Encryption),
            (&fixture("keyless.pfx"), "secret", PfxError::Key),
            (&fixture("first.pem"), "secret", PfxError::Form),
            (&modern[..modern.len() - 1].to_vec(), "secret", PfxError::Form),
            (&Vec::new(), "secret", PfxError::Form),
        ] {
            assert_eq!(reason(bytes, password), expected, "{password:?} {} bytes", bytes.len());
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let pfx = Pfx { file: "a.pfx".into(), password: "hush".into() };
        assert!(!format!("{pfx:?}").contains("hush"));
    }
}
