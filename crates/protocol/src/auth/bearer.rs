//! Bearer tokens of an OpenID Connect issuer (protocol §10.7).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, EllipticCurveKeyParameters, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, decode_header};
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use super::accounts::is_account_name;
use super::permissions::{Identity, Role};
use crate::error::{Code, Error, Result};
use crate::model::{TableName, Ticks};

/// The accepted algorithms, which all have public keys. `none` and HMAC must not be accepted: with HMAC, anyone could
/// sign a token with the issuer's public key as the secret.
const ALGORITHMS: [Algorithm; 8] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
];
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Maximum difference between the issuer's clock and the server's clock.
const LEEWAY_SECONDS: i64 = 60;

/// A role of a principal in one table, in one account, or in all accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// A subject, object id or application id, or one of a token's roles or groups.
    pub principal: String,
    pub role: Role,
    pub account: Option<String>,
    /// The table's name in lower case. Only set together with an account.
    pub table: Option<String>,
}

/// The trusted issuer and audience, and the roles of principals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    pub issuer: String,
    pub audience: String,
    pub assignments: Vec<Assignment>,
    /// Whether tokens are accepted over unencrypted connections.
    pub over_http: bool,
}

impl Assignment {
    /// Parses `principal=role[@account[/table]]` entries, separated by `;`. The error is a message for operators.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let given = text.split(';').map(str::trim).filter(|a| !a.is_empty());
        let invalid = |number: usize| {
            format!(
                "assignment number {number} is not of the form principal=reader|contributor[@account[/table]], with \
                 names that accounts and tables can have"
            )
        };
        given.enumerate().map(|(at, one)| Self::parse(one).ok_or_else(|| invalid(at + 1))).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let (principal, rest) = text.rsplit_once('=')?;
        let (role, scope) = match rest.split_once('@') {
            Some((role, scope)) => (role, Some(scope)),
            None => (rest, None),
        };
        let role = match role.trim() {
            "reader" => Role::Reader,
            "contributor" => Role::Contributor,
            _ => return None,
        };
        let (account, table) = match scope.map(|s| s.split_once('/').map_or((s, None), |(a, t)| (a, Some(t))))
        {
            None => (None, None),
            Some((account, table)) => (Some(account), table),
        };
        let principal = principal.trim();
        // An assignment to an invalid account name could never apply.
        let is_valid = account.is_none_or(is_account_name);
        let table = table.map(TableName::parse).transpose().ok()?;
        (!principal.is_empty() && is_valid).then(|| Self {
            principal: principal.to_owned(),
            role,
            account: account.map(str::to_owned),
            table: table.map(|table| table.lower().to_owned()),
        })
    }
}

/// A claim that is a list of texts. Some issuers write a list of one text as a single text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Several(Vec<String>),
}

impl Texts {
    fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }
}

/// The claims that are read from a token.
#[derive(Debug, Deserialize)]
struct Claims {
    /// Must be a string: a list is refused even if it contains our issuer.
    #[serde(rename = "iss")]
    issuer: String,
    #[serde(rename = "aud")]
    audience: Texts,
    /// Times in seconds, possibly with a fraction.
    exp: f64,
    nbf: Option<f64>,
    sub: Option<String>,
    oid: Option<String>,
    appid: Option<String>,
    azp: Option<String>,
    roles: Option<Texts>,
    groups: Option<Texts>,
}

impl Claims {
    fn principals(&self) -> impl Iterator<Item = &str> {
        [&self.sub, &self.oid, &self.appid, &self.azp]
            .into_iter()
            .flatten()
            .chain([&self.roles, &self.groups].into_iter().flatten().flat_map(Texts::all))
            .map(String::as_str)
    }
}

/// Returns the id of the key that signed a token, according to the token's header.
///
/// # Errors
/// [`Code::InvalidAuthenticationInfo`] if the text is not a signed token; [`Code::TokenRefused`] for a token
/// without a key id, with an unaccepted algorithm, or with critical headers (`crit`), none of which are
/// supported.
pub fn key_id(token: &str) -> Result<String> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(Code::InvalidAuthenticationInfo.into());
    }
    let header = decode_header(token).map_err(|_| Error::from(Code::InvalidAuthenticationInfo))?;
    match header.kid {
        Some(kid) if ALGORITHMS.contains(&header.alg) && header.crit.is_none() => Ok(kid),
        _ => Err(Code::TokenRefused.into()),
    }
}

/// Verifies a token and returns the permissions of its bearer in an account.
///
/// # Errors
/// [`Code::TokenRefused`] for a token that does not verify, that is expired or not yet valid, or that has a
/// different issuer or audience.
pub fn verify(token: &str, keys: &JwkSet, trust: &Trust, account: &str, now: Ticks) -> Result<Identity> {
    let refused = || Error::from(Code::TokenRefused);
    let header = decode_header(token).map_err(|_| refused())?;
    let jwk = header.kid.as_deref().and_then(|kid| keys.find(kid)).ok_or_else(refused)?;
    if !ALGORITHMS.contains(&header.alg) || !allows_algorithm(jwk, header.alg) {
        return Err(refused());
    }
    let payload = signed_payload(token, jwk, header.alg).ok_or_else(refused)?;
    let claims: Claims = serde_json::from_slice(&payload).map_err(|_| refused())?;
    if claims.issuer != trust.issuer || !claims.audience.all().contains(&trust.audience) {
        return Err(refused());
    }
    let now = now.unix_seconds();
    if (claims.exp as i64).saturating_add(LEEWAY_SECONDS) <= now
        || claims.nbf.is_some_and(|nbf| (nbf as i64).saturating_sub(LEEWAY_SECONDS) > now)
    {
        return Err(refused());
    }
    let grants = trust
        .assignments
        .iter()
        .filter(|a| a.account.as_deref().is_none_or(|own| own == account))
        .filter(|a| claims.principals().any(|principal| principal == a.principal))
        .map(|a| (a.role, a.table.clone()))
        .collect();
    Ok(Identity::Bearer { grants })
}

/// Returns whether the key may be used for signatures with this algorithm. A key without a stated use or
/// algorithm is unrestricted.
fn allows_algorithm(jwk: &Jwk, algorithm: Algorithm) -> bool {
    let is_for_signatures = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
    is_for_signatures && jwk.common.key_algorithm.is_none_or(|own| own == KeyAlgorithm::from(algorithm))
}

/// Returns the payload of a token if this key has signed it with this algorithm. RSA keys must have 2048 to 8192 bits.
fn signed_payload(token: &str, jwk: &Jwk, algorithm: Algorithm) -> Option<Vec<u8>> {
    let (message, signature) = token.rsplit_once('.')?;
    let (_, payload) = message.split_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    match &jwk.algorithm {
        AlgorithmParameters::RSA(key) => {
            let key = RsaPublicKeyComponents { n: decode_number(&key.n)?, e: decode_number(&key.e)? };
            key.verify(rsa_parameters(algorithm)?, message.as_bytes(), &signature).ok()?;
        }
        AlgorithmParameters::EllipticCurve(key) => {
            elliptic_key(key, algorithm)?.verify(message.as_bytes(), &signature).ok()?;
        }
        _ => return None,
    }
    URL_SAFE_NO_PAD.decode(payload).ok()
}

/// Decodes a number, without the leading zeros that some issuers write.
fn decode_number(text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
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
fn elliptic_key(
    key: &EllipticCurveKeyParameters,
    algorithm: Algorithm,
) -> Option<UnparsedPublicKey<Vec<u8>>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::jwk::{AlgorithmParameters, Jwk};
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::{Value, json};

    const NOW: i64 = 1_800_000_000;

    fn rsa() -> EncodingKey {
        EncodingKey::from_rsa_der(include_bytes!("../../../../tests/fixtures/issuer/first.rsa.der"))
    }
    fn ec() -> EncodingKey {
        EncodingKey::from_ec_der(include_bytes!("../../../../tests/fixtures/issuer/ec.p8.der"))
    }
    fn keys() -> JwkSet {
        let jwk = |key: &EncodingKey, algorithm, id: &str| {
            let mut jwk = Jwk::from_encoding_key(key, algorithm).unwrap();
            jwk.common.key_id = Some(id.into());
            jwk
        };
        let mut any = jwk(&rsa(), Algorithm::RS256, "any");
        any.common.key_algorithm = None;
        let mut secret = any.clone();
        secret.common.key_id = Some("secret".into());
        secret.common.public_key_use = Some(PublicKeyUse::Encryption);
        let keys =
            vec![jwk(&rsa(), Algorithm::RS256, "rsa"), jwk(&ec(), Algorithm::ES256, "ec"), any, secret];
        JwkSet { keys }
    }
    fn claims() -> Value {
        json!({"iss": "https://issuer", "aud": "https://storage.azure.com", "sub": "alice", "exp": NOW + 600,
               "roles": ["writers"]})
    }
    fn token(algorithm: Algorithm, id: &str, key: &EncodingKey, claims: &Value) -> String {
        let mut header = Header::new(algorithm);
        header.kid = Some(id.into());
        encode(&header, claims, key).unwrap()
    }
    fn trust() -> Trust {
        Trust {
            issuer: "https://issuer".into(),
            audience: "https://storage.azure.com".into(),
            assignments: Assignment::parse_list("alice=reader;writers=contributor@acct/Abc;bob=contributor")
                .unwrap(),
            over_http: false,
        }
    }
    fn outcome(token: &str, account: &str) -> Result<Identity, Code> {
        let now = Ticks::from_utc(chrono::DateTime::from_timestamp(NOW, 0).unwrap());
        key_id(token).and_then(|_| verify(token, &keys(), &trust(), account, now)).map_err(|e| e.code)
    }

    #[test]
    fn tokens_of_both_kinds_carry_their_roles() {
        let everywhere = (Role::Reader, None);
        let in_table = (Role::Contributor, Some("abc".to_owned()));
        for token in [
            token(Algorithm::RS256, "rsa", &rsa(), &claims()),
            token(Algorithm::ES256, "ec", &ec(), &claims()),
            token(Algorithm::PS256, "any", &rsa(), &claims()),
            token(Algorithm::RS384, "any", &rsa(), &claims()),
            token(Algorithm::RS512, "any", &rsa(), &claims()),
            token(Algorithm::PS384, "any", &rsa(), &claims()),
            token(Algorithm::PS512, "any", &rsa(), &claims()),
        ] {
            let here = Identity::Bearer { grants: vec![everywhere.clone(), in_table.clone()] };
            assert_eq!(outcome(&token, "acct"), Ok(here));
            assert_eq!(outcome(&token, "other"), Ok(Identity::Bearer { grants: vec![everywhere.clone()] }));
        }
    }

    #[test]
    fn a_token_may_be_for_several() {
        let mut claims = claims();
        claims["aud"] = json!(["https://other", "https://storage.azure.com"]);
        assert!(outcome(&token(Algorithm::RS256, "rsa", &rsa(), &claims), "acct").is_ok());
    }

    #[test]
    fn roles_and_groups_may_be_one_text_a_list_or_missing() {
        let everywhere = (Role::Reader, None);
        let in_table = (Role::Contributor, Some("abc".to_owned()));
        for (name, value) in
            [("roles", json!("writers")), ("groups", json!("writers")), ("groups", json!(["x", "writers"]))]
        {
            let mut claims = claims();
            claims["roles"] = Value::Null;
            claims[name] = value;
            let identity = outcome(&token(Algorithm::RS256, "rsa", &rsa(), &claims), "acct");
            assert_eq!(identity, Ok(Identity::Bearer { grants: vec![everywhere.clone(), in_table.clone()] }));
        }
        let mut claims = claims();
        (claims["roles"], claims["groups"]) = (Value::Null, json!([]));
        let identity = outcome(&token(Algorithm::RS256, "rsa", &rsa(), &claims), "acct");
        assert_eq!(identity, Ok(Identity::Bearer { grants: vec![everywhere] }));
    }

    #[test]
    fn times_may_have_a_fraction() {
        for (exp, nbf, is_valid) in [
            (NOW as f64 + 0.5, NOW as f64 + 59.9, true),
            (NOW as f64 - 61.5, NOW as f64, false),
            (1e300, -1e300, true),
            (NOW as f64 + 600.5, 1e300, false),
        ] {
            let mut claims = claims();
            (claims["exp"], claims["nbf"]) = (json!(exp), json!(nbf));
            let identity = outcome(&token(Algorithm::RS256, "rsa", &rsa(), &claims), "acct");
            assert_eq!(identity.is_ok(), is_valid, "{exp} {nbf}");
        }
    }

    #[test]
    fn a_modulus_with_leading_zeros_is_read() {
        let mut keys = keys();
        let AlgorithmParameters::RSA(key) = &mut keys.keys[0].algorithm else { panic!("an RSA key") };
        let modulus = URL_SAFE_NO_PAD.decode(&key.n).unwrap();
        key.n = URL_SAFE_NO_PAD.encode([&[0][..], &modulus].concat());
        let token = token(Algorithm::RS256, "rsa", &rsa(), &claims());
        let now = Ticks::from_utc(chrono::DateTime::from_timestamp(NOW, 0).unwrap());
        assert!(verify(&token, &keys, &trust(), "acct", now).is_ok());
    }

    #[test]
    fn times_at_the_ends_of_their_range_do_not_wrap() {
        let mut claims = claims();
        claims["exp"] = json!(i64::MAX);
        claims["nbf"] = json!(i64::MIN);
        assert!(outcome(&token(Algorithm::RS256, "rsa", &rsa(), &claims), "acct").is_ok());
    }

    #[test]
    fn whatever_is_wrong_with_a_token_is_refused() {
        let refused = Err(Code::TokenRefused);
        for (name, value) in [
            ("exp", json!(NOW - 61)),
            ("exp", Value::Null),
            ("nbf", json!(NOW + 61)),
            ("iss", json!("https://other")),
            ("iss", json!(["https://other", "https://issuer"])),
            ("aud", json!("https://other")),
            ("aud", json!(["https://other"])),
            ("iss", Value::Null),
            ("aud", Value::Null),
        ] {
            let mut claims = claims();
            claims[name] = value.clone();
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            }
            assert_eq!(
                outcome(&token(Algorithm::RS256, "rsa", &rsa(), &claims), "acct"),
                refused,
                "{name} {value}"
            );
        }
        assert_eq!(outcome(&token(Algorithm::RS256, "unknown", &rsa(), &claims()), "acct"), refused);
        assert_eq!(outcome(&token(Algorithm::RS256, "ec", &rsa(), &claims()), "acct"), refused);
        assert_eq!(
            outcome(&token(Algorithm::PS256, "rsa", &rsa(), &claims()), "acct"),
            refused,
            "another use"
        );
        assert_eq!(
            outcome(&token(Algorithm::RS256, "secret", &rsa(), &claims()), "acct"),
            refused,
            "another use"
        );
        let mut critical = Header::new(Algorithm::RS256);
        (critical.kid, critical.crit) = (Some("rsa".into()), Some(vec!["exp".into()]));
        assert_eq!(outcome(&encode(&critical, &claims(), &rsa()).unwrap(), "acct"), refused);
        let other =
            EncodingKey::from_rsa_der(include_bytes!("../../../../tests/fixtures/issuer/second.rsa.der"));
        assert_eq!(outcome(&token(Algorithm::RS256, "rsa", &other, &claims()), "acct"), refused);
        let good = token(Algorithm::RS256, "rsa", &rsa(), &claims());
        let (head, signature) = good.rsplit_once('.').unwrap();
        let (header, _) = head.split_once('.').unwrap();
        let forged = URL_SAFE_NO_PAD.encode(json!({"exp": NOW + 9999, "sub": "bob"}).to_string());
        assert_eq!(outcome(&format!("{header}.{forged}.{signature}"), "acct"), refused);
    }

    #[test]
    fn shared_secrets_and_unsigned_tokens_never_pass() {
        let secret =
            EncodingKey::from_secret(include_bytes!("../../../../tests/fixtures/issuer/first.rsa.der"));
        let hmac = token(Algorithm::HS256, "rsa", &secret, &claims());
        assert_eq!(outcome(&hmac, "acct"), Err(Code::TokenRefused));
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let unsigned = format!("{}.{}.", part(json!({"alg": "none", "kid": "rsa"})), part(claims()));
        assert!(outcome(&unsigned, "acct").is_err());
        for bogus in ["", "abc", "a.b.c", &"x".repeat(20_000)] {
            assert_eq!(outcome(bogus, "acct"), Err(Code::InvalidAuthenticationInfo));
        }
    }

    #[test]
    fn assignments_read_as_documented() {
        let read = |text: &str| Assignment::parse_list(text);
        let one = read("cn=x=contributor@acct/MyTable").unwrap().remove(0);
        assert_eq!((one.principal.as_str(), one.role), ("cn=x", Role::Contributor));
        assert_eq!((one.account.as_deref(), one.table.as_deref()), (Some("acct"), Some("mytable")));
        assert_eq!(read(" a=reader ; b=reader@acct;").unwrap().len(), 2);
        assert!(read("a=reader;b=owner").unwrap_err().contains("number 2 "));
        assert_eq!(read("a = reader").unwrap(), read("a=reader").unwrap());
        let wrong = ["a=reader@My_Account", "a=reader@ab", "a=reader@acct/a b", "a=reader@acct/1st"];
        for bad in ["a", "=reader", " =reader", "a=reader@", "a=reader@acct/", "a="].into_iter().chain(wrong)
        {
            assert!(read(bad).unwrap_err().contains("number 1 "), "{bad}");
        }
    }
}
