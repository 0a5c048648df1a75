//! The stored form of account keys. A stored key is sealed: it is encrypted under the master key and bound to its
//! account and slot.
//!
//! A sealed key consists of a format byte (1), the nonce (24 bytes), and the key encrypted with
//! XChaCha20-Poly1305 (16 bytes longer than the key). The associated data is the format byte, the digit of
//! the slot and the name of the account, so a sealed key cannot be decrypted in a different account or slot.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

/// Length of a nonce in bytes. Random nonces of this length do not collide in practice.
pub const NONCE_LENGTH: usize = 24;
/// The format byte.
const FORMAT: u8 = 1;

/// One of an account's two keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySlot {
    First,
    Second,
}

impl KeySlot {
    /// Both slots, in order.
    pub const BOTH: [KeySlot; 2] = [KeySlot::First, KeySlot::Second];

    /// Returns 0 or 1, as an array index.
    pub fn index(self) -> usize {
        usize::from(self == KeySlot::Second)
    }

    fn digit(self) -> u8 {
        match self {
            KeySlot::First => b'1',
            KeySlot::Second => b'2',
        }
    }
}

/// The key that encrypts account keys. `Debug` does not print it.
#[derive(Clone)]
pub struct MasterKey(XChaCha20Poly1305);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

impl MasterKey {
    /// Parses 32 bytes in base64. Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.trim()).ok()?;
        Some(Self(XChaCha20Poly1305::new_from_slice(&bytes).ok()?))
    }

    /// Encrypts an account key. A nonce must never be reused. Returns `None` for a key of more than 256 GiB, which is
    /// too long for the cipher.
    pub fn seal(
        &self,
        account: &str,
        slot: KeySlot,
        nonce: [u8; NONCE_LENGTH],
        key: &[u8],
    ) -> Option<Vec<u8>> {
        let payload = Payload { msg: key, aad: &associated_data(account, slot) };
        let encrypted = self.0.encrypt(&XNonce::from(nonce), payload).ok()?;
        Some([&[FORMAT], &nonce[..], &encrypted].concat())
    }

    /// Decrypts a key that [`MasterKey::seal`] sealed. Returns `None` for a different master key, account or
    /// slot, and for altered data.
    pub fn decrypt(&self, account: &str, slot: KeySlot, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, encrypted) = sealed.strip_prefix(&[FORMAT])?.split_first_chunk::<NONCE_LENGTH>()?;
        let payload = Payload { msg: encrypted, aad: &associated_data(account, slot) };
        self.0.decrypt(&XNonce::from(*nonce), payload).ok()
    }
}

/// The current master key and, while it is being replaced, the previous one.
#[derive(Debug, Clone)]
pub struct MasterKeys {
    /// Encrypts all keys, and is the first to be tried for decryption.
    pub current: MasterKey,
    /// Only decrypts.
    pub previous: Option<MasterKey>,
}

impl MasterKeys {
    /// Decrypts like [`MasterKey::decrypt`], with either master key.
    pub fn decrypt(&self, account: &str, slot: KeySlot, sealed: &[u8]) -> Option<Vec<u8>> {
        let previous = || self.previous.as_ref()?.decrypt(account, slot, sealed);
        self.current.decrypt(account, slot, sealed).or_else(previous)
    }
}

fn associated_data(account: &str, slot: KeySlot) -> Vec<u8> {
    [&[FORMAT, slot.digit()], account.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(byte: u8) -> MasterKey {
        MasterKey::parse(&STANDARD.encode([byte; 32])).unwrap()
    }

    fn nonce() -> [u8; NONCE_LENGTH] {
        std::array::from_fn(|i| i as u8)
    }

    /// Computed by an independent program from the text of the RFC.
    const VECTOR: &str = "01000102030405060708090a0b0c0d0e0f1011121314151617cc72cde2927531ce49aaef289693dddf2ba34e606c8e4d0a8f60c9fe1a4d161487bb09eb7d1dd47b9a6cbaf2a73d626f6ae2dd5b1ce99a41449d31620a20683a50b5826fb0e9f62fce79b1ed8ad878d1";

    #[test]
    fn the_format_is_fixed() {
        let key: Vec<u8> = (100..164).collect();
        let sealed = master(7).seal("myaccount", KeySlot::Second, nonce(), &key).unwrap();
        let hex: String = sealed.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, VECTOR);
        assert_eq!(master(7).decrypt("myaccount", KeySlot::Second, &sealed), Some(key));
    }

    #[test]
    fn a_sealed_key_opens_in_its_place_only_and_whole_only() {
        let sealed = master(7).seal("acct", KeySlot::First, nonce(), b"secret").unwrap();
        assert!(master(7).decrypt("acct", KeySlot::First, &sealed).is_some());
        assert_eq!(master(8).decrypt("acct", KeySlot::First, &sealed), None);
        assert_eq!(master(7).decrypt("acct2", KeySlot::First, &sealed), None);
        assert_eq!(master(7).decrypt("acct", KeySlot::Second, &sealed), None);
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert_eq!(master(7).decrypt("acct", KeySlot::First, &altered), None, "byte {at}");
            assert_eq!(master(7).decrypt("acct", KeySlot::First, &sealed[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn of_two_master_keys_either_opens_and_the_new_one_seals() {
        let both = MasterKeys { current: master(8), previous: Some(master(7)) };
        let decrypt = |keys: &MasterKeys, sealed: &[u8]| keys.decrypt("acct", KeySlot::First, sealed);
        let old = master(7).seal("acct", KeySlot::First, nonce(), b"secret").unwrap();
        let new = both.current.seal("acct", KeySlot::First, nonce(), b"secret").unwrap();
        assert_eq!(master(8).decrypt("acct", KeySlot::First, &new).as_deref(), Some(&b"secret"[..]));
        assert!(decrypt(&both, &old).is_some() && decrypt(&both, &new).is_some());
        let without = MasterKeys { previous: None, ..both };
        assert!(decrypt(&without, &old).is_none() && decrypt(&without, &new).is_some());
    }

    #[test]
    fn a_master_key_is_32_bytes_in_base64() {
        for text in ["", "x", "AAAA", &STANDARD.encode([0; 31]), &STANDARD.encode([0; 33])] {
            assert!(MasterKey::parse(text).is_none(), "{text}");
        }
        assert!(MasterKey::parse(&format!(" {}\n", STANDARD.encode([0; 32]))).is_some());
        assert_eq!(format!("{:?}", master(1)), "MasterKey(…)");
    }
}
