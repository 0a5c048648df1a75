//! The validity period of a certificate.

use std::fmt;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// Remaining validity below which a certificate needs to be renewed.
const RENEWAL: Duration = Duration::from_hours(14 * 24);

/// The validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    begin: SystemTime,
    end: SystemTime,
}

/// The reason why clients refuse a certificate, or soon will.
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
        } else if now + RENEWAL > self.end {
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
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;

    #[test]
    fn a_certificate_has_a_problem_outside_its_period_and_near_its_end() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls/first.pem");
        let validity = Validity::of(&CertificateDer::from_pem_file(path).unwrap()).unwrap();
        let (begin, end, second) = (validity.begin, validity.end, Duration::from_secs(1));
        for (now, problem) in [
            (begin - second, Some(ValidityProblem::NotYet(begin))),
            (begin, None),
            (end - RENEWAL, None),
            (end - RENEWAL + second, Some(ValidityProblem::ExpiresSoon(end))),
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
