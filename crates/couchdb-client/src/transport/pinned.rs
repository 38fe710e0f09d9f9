//! Servers that present one of the trusted certificates itself, as in CouchDB's own instructions.
//!
//! `openssl req -new -x509` creates an authority's certificate, often with only a common name.
//! rustls accepts neither from a server. If `ca_file` contains exactly this certificate, it is
//! accepted while it is valid, from a host with its name.

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use std::sync::Arc;

/// The usual verifier, for certificates that are not pinned.
#[derive(Debug)]
pub(super) struct PinnedVerifier {
    usual: Arc<WebPkiServerVerifier>,
    pinned: Vec<CertificateDer<'static>>,
}

impl PinnedVerifier {
    pub(super) const fn new(
        usual: Arc<WebPkiServerVerifier>,
        pinned: Vec<CertificateDer<'static>>,
    ) -> Self {
        Self { usual, pinned }
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let usual = self.usual.verify_server_cert(shown, intermediates, name, ocsp_response, now);
        match usual {
            // rustls checks the dates before it refuses a certificate as an authority's, and the
            // name last.
            Err(Error::InvalidCertificate(
                CertificateError::Other(_)
                | CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. },
            )) if self.pinned.contains(shown) => {
                verify_name(shown, name).map(|()| ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.usual.root_hint_subjects()
    }
}

/// Why a server's certificate is not trusted, where the library's own words name only its rules.
pub(super) fn distrust(error: &Error) -> Option<&'static str> {
    let Error::InvalidCertificate(why) = error else { return None };
    if matches!(why, CertificateError::UnknownIssuer | CertificateError::BadSignature) {
        return Some("none of the trusted authorities signed the server's certificate");
    }
    let is_self_signed = matches!(why, CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity"));
    is_self_signed.then_some(
        "the server has a self-signed certificate, which is not among the trusted ones: add the one that `openssl s_client -showcerts` shows",
    )
}

/// Verifies one of the alternative names, or the common name of a certificate without any.
fn verify_name(shown: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    let verified = verify_server_name(&ParsedCertificate::try_from(shown)?, name);
    match &verified {
        Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented,
            ..
        })) if presented.is_empty()
            && common_name(shown).is_some_and(|it| it.eq_ignore_ascii_case(&name.to_str())) =>
        {
            Ok(())
        }
        _ => verified,
    }
}

/// The last common name of the subject, which names the host.
fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    /// The object identifier 2.5.4.3.
    const COMMON_NAME: [u8; 5] = [6, 3, 85, 4, 3];
    let mut store = RootCertStore::empty();
    store.add(certificate.clone().into_owned()).ok()?;
    let subject = &*store.roots.first()?.subject;
    let at = subject.windows(COMMON_NAME.len()).rposition(|part| part == COMMON_NAME)?;
    // The type of the string, its length, and the string.
    let [_, length, rest @ ..] = subject.get(at + COMMON_NAME.len()..)? else { return None };
    String::from_utf8(rest.get(..usize::from(*length))?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, date_time_ymd};
    use std::time::Duration;

    /// A certificate as created by `openssl req -new -x509`.
    fn recipe(common_name: &str, names: &[&str]) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn verify(
        pinned: &CertificateDer<'static>,
        shown: &CertificateDer<'static>,
        name: &str,
        year: u64,
    ) -> Result<(), Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(pinned.clone()).unwrap();
        let usual = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
        let verifier = PinnedVerifier::new(usual.build().unwrap(), vec![pinned.clone()]);
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(shown, &[], &name, &[], now).map(|_| ())
    }

    #[test]
    fn pinned_certificate_is_accepted_while_valid_from_its_host() {
        let plain = recipe("Couch.example", &[]);
        assert_eq!(verify(&plain, &plain, "couch.example", 2026), Ok(()));
        let address = recipe("10.0.0.7", &[]);
        assert_eq!(verify(&address, &address, "10.0.0.7", 2026), Ok(()));
        let named = recipe("couch.example", &["a.example", "10.0.0.7"]);
        assert_eq!(verify(&named, &named, "a.example", 2026), Ok(()));
        assert_eq!(verify(&named, &named, "10.0.0.7", 2026), Ok(()));
        let other = recipe("couch.example", &[]);
        for (pinned, shown, name, year) in [
            (&plain, &plain, "couch.example", 2040),
            (&plain, &plain, "couch.example", 1999),
            (&plain, &plain, "other.example", 2026),
            (&plain, &plain, "x.couch.example", 2026),
            (&plain, &other, "couch.example", 2026),
            // With alternative names, the common name does not count.
            (&named, &named, "couch.example", 2026),
        ] {
            assert!(verify(pinned, shown, name, year).is_err(), "{name} in {year}");
        }
    }

    #[test]
    fn another_self_signed_certificate_is_refused_with_the_reason() {
        let (trusted, shown) = (recipe("couch.example", &[]), recipe("couch.example", &[]));
        let error = verify(&trusted, &shown, "couch.example", 2026).unwrap_err();
        let why = distrust(&error).unwrap_or_else(|| panic!("{error}"));
        assert!(why.contains("is not among the trusted ones"), "{why}");
    }
}
