//! When certificates expire.
//!
//! Owns how the date is read from a certificate. Never says whether a certificate may be trusted.

use super::Tls;
use rustls::{
    CertificateError, Error, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use std::{path::Path, time::Duration};
use wall_clock::Moment;

/// When the certificates of one side of a connection expire; absent if there is no certificate
/// whose expiry can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateEnds {
    /// Expiry of its own chain: the expiry of the first certificate to expire.
    pub own: Option<Moment>,
    /// Expiry of the authorities that it trusts: the expiry of the last one, because it is not
    /// known in advance which of them the other side uses.
    pub authorities: Option<Moment>,
}

impl CertificateEnds {
    /// When a chain and authorities expire.
    pub fn of(own: &[CertificateDer<'_>], authorities: &[CertificateDer<'_>]) -> Self {
        Self {
            own: own.iter().filter_map(end).min(),
            authorities: authorities.iter().filter_map(end).max(),
        }
    }

    /// When the certificates in the files of `tls` expire. Files that cannot be read are reported
    /// where connections are set up; pipes were read there.
    pub(super) fn read(tls: &Tls) -> Self {
        let read = |path: Option<&Path>| -> Vec<CertificateDer<'static>> {
            let path = path.filter(|path| path.is_file());
            let certificates = path.and_then(|path| CertificateDer::pem_file_iter(path).ok());
            certificates.into_iter().flatten().filter_map(Result::ok).collect()
        };
        Self::of(&read(tls.cert_file.as_deref()), &read(tls.ca_file.as_deref()))
    }
}

/// The last moment at which a certificate is valid. The TLS library reports it only for an expired
/// certificate, so the certificate is verified at the end of time.
fn end(certificate: &CertificateDer<'_>) -> Option<Moment> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let late = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let nobody = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], late, &[]) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(Moment::from_unix(not_after.as_secs()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
    use std::fs;

    /// A certificate of an authority or a host that expires at the end of `year`.
    fn ending(year: i32, authority: bool) -> rcgen::Certificate {
        let mut params = CertificateParams::new(vec!["couch.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2001, 2, 3);
        params.not_after = date_time_ymd(year, 12, 31);
        if authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    fn moment(text: &str) -> Option<Moment> {
        Moment::parse(text)
    }

    #[test]
    fn own_chain_uses_earliest_expiry_and_authorities_the_latest() {
        let (old, long) = (ending(2019, false), ending(2049, true));
        let chain = [old.der().clone(), long.der().clone()];
        let authorities = [long.der().clone(), ending(2031, true).der().clone()];
        let found = CertificateEnds::of(&chain, &authorities);
        // Before 2050 the encoded year has two digits, from then on four.
        assert_eq!(found.own, moment("2019-12-31T00:00:00Z"));
        assert_eq!(found.authorities, moment("2049-12-31T00:00:00Z"));
        let late = CertificateEnds::of(&[ending(2055, false).der().clone()], &[]);
        assert_eq!(late.own, moment("2055-12-31T00:00:00Z"));
        assert_eq!(late.authorities, None);
    }

    #[test]
    fn invalid_certificate_has_no_expiry() {
        let garbage = CertificateDer::from(vec![0x30, 0x03, 0x02, 0x01, 0x01]);
        let found =
            CertificateEnds::of(std::slice::from_ref(&garbage), std::slice::from_ref(&garbage));
        assert_eq!(found, CertificateEnds::default());
    }

    #[test]
    fn expiry_is_read_only_from_configured_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            Some(path)
        };
        let (ca, own) = (ending(2040, true), ending(2030, false));
        let both = format!("{}{}", own.pem(), ca.pem());
        let tls = Tls {
            ca_file: file("ca.pem", ca.pem()),
            cert_file: file("own.pem", both),
            key_file: None,
        };
        let found = CertificateEnds::read(&tls);
        assert_eq!(found.own, moment("2030-12-31T00:00:00Z"));
        assert_eq!(found.authorities, moment("2040-12-31T00:00:00Z"));
        assert_eq!(CertificateEnds::read(&Tls::default()), CertificateEnds::default());
        let missing = Tls { ca_file: Some(dir.path().join("none.pem")), ..Tls::default() };
        assert_eq!(CertificateEnds::read(&missing), CertificateEnds::default());
    }
}
