//! The TLS settings: trusted authorities and the client certificate.

use super::pinned::PinnedVerifier;
use crate::Tls;
use rustls::{
    ClientConfig, RootCertStore,
    client::WebPkiServerVerifier,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const CA_FILE: &str = "ca_file";

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("{key} {} cannot be used: {reason}", path.display())]
    File {
        /// The field of [`Tls`] that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("cert_file and key_file go together: give both or none")]
    Half,
    /// The library refused what it was given.
    #[error("the certificates cannot be used")]
    Refused(#[source] rustls::Error),
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refused = |reason: String| TlsError::File { key, path: path.to_owned(), reason };
    let read = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| refused(error.to_string()))?;
    if read.is_empty() {
        return Err(refused("it holds no certificate in PEM".to_owned()));
    }
    Ok(read)
}

/// The given authorities and no others; without them the system's, or the built-in ones if the
/// system has none.
fn roots(tls: &Tls, used: bool) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &tls.ca_file {
        for certificate in certificates(CA_FILE, path)? {
            roots.add(certificate).map_err(|error| TlsError::File {
                key: CA_FILE,
                path: path.clone(),
                reason: error.to_string(),
            })?;
        }
        return Ok(roots);
    }
    if !used {
        return Ok(roots);
    }
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(roots)
}

/// Whether these are only an operator's own authorities. Public ones certify everybody's hosts, so
/// a file that holds one of them trusts as the system does.
fn are_own(roots: &RootCertStore) -> bool {
    let public = |key: &[u8]| {
        let mut all = webpki_roots::TLS_SERVER_ROOTS.iter();
        all.any(|root| root.subject_public_key_info.as_ref() == key)
    };
    let mut roots = roots.roots.iter();
    !roots.any(|root| public(root.subject_public_key_info.as_ref()))
}

/// The TLS configuration, and whether it trusts only an operator's own authorities. It names its
/// crypto provider, so that none has to be installed for the process.
///
/// If TLS is not `used`, the system's authorities are not read: that would be the slowest part of
/// the start.
pub(super) fn client_config(tls: &Tls, used: bool) -> Result<(ClientConfig, bool), TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = roots(tls, used)?;
    let own = tls.ca_file.is_some() && are_own(&roots);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Refused)?;
    let builder = match &tls.ca_file {
        None => builder.with_root_certificates(roots),
        Some(path) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
                .build()
                .map_err(|why| TlsError::Refused(rustls::Error::General(why.to_string())))?;
            let pinned = certificates(CA_FILE, path)?;
            let verifier = Arc::new(PinnedVerifier::new(verifier, pinned));
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    let config = match (&tls.cert_file, &tls.key_file) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let chain = certificates("cert_file", cert)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::File {
                key: "key_file",
                path: key.clone(),
                reason: error.to_string(),
            })?;
            builder.with_client_auth_cert(chain, key).map_err(TlsError::Refused)?
        }
        _ => return Err(TlsError::Half),
    };
    Ok((config, own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::authority::Authority;

    #[test]
    fn file_with_public_authority_is_not_the_operators_own() {
        let mut roots = RootCertStore::empty();
        let pem = Authority::new().pem();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        assert!(are_own(&roots));
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().take(1).cloned());
        assert!(!are_own(&roots));
    }
}
