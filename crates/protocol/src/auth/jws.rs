//! Verifies token signatures in the compact serialization of RFC 7515.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, EllipticCurveKeyParameters, Jwk};
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};

/// Returns the payload of a token that this key has signed with this algorithm, which must suit the kind of
/// the key; otherwise `None`. RSA keys must have 2048 to 8192 bits.
pub(super) fn payload(token: &str, jwk: &Jwk, algorithm: Algorithm) -> Option<Vec<u8>> {
    let (message, signature) = token.rsplit_once('.')?;
    let (_, payload) = message.split_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    match &jwk.algorithm {
        AlgorithmParameters::RSA(key) => {
            let key = RsaPublicKeyComponents { n: number(&key.n)?, e: number(&key.e)? };
            key.verify(rsa(algorithm)?, message.as_bytes(), &signature).ok()?;
        }
        AlgorithmParameters::EllipticCurve(key) => {
            elliptic(key, algorithm)?.verify(message.as_bytes(), &signature).ok()?;
        }
        _ => return None,
    }
    URL_SAFE_NO_PAD.decode(payload).ok()
}

/// Decodes a number. Some issuers write leading zeros.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

/// Returns the key as an uncompressed point.
fn elliptic(key: &EllipticCurveKeyParameters, algorithm: Algorithm) -> Option<UnparsedPublicKey<Vec<u8>>> {
    let by: &signature::EcdsaVerificationAlgorithm = match (&key.curve, algorithm) {
        (EllipticCurve::P256, Algorithm::ES256) => &signature::ECDSA_P256_SHA256_FIXED,
        (EllipticCurve::P384, Algorithm::ES384) => &signature::ECDSA_P384_SHA384_FIXED,
        _ => return None,
    };
    let mut point = vec![4];
    point.extend(URL_SAFE_NO_PAD.decode(&key.x).ok()?);
    point.extend(URL_SAFE_NO_PAD.decode(&key.y).ok()?);
    Some(UnparsedPublicKey::new(by, point))
}
