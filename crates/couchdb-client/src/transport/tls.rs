//! The TLS settings: trusted authorities and the client certificate.

use super::pinned::PinnedVerifier;
use crate::Tls;
use rustls::{
    ClientConfig, RootCertStore,
    client::WebPkiServerVerifier,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
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
    #[error("cert_file and key_file need each other: give both or none")]
    Half,
    /// The library refused what it was given.
    #[error("the certificates cannot be used")]
    Refused(#[source] rustls::Error),
}

/// The maximum size of a file with certificates or a key, in bytes.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// Reads a file in PEM.
fn read<T>(
    key: &'static str,
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, pem::Error>,
) -> Result<T, TlsError> {
    let read = named_file::read_at_most(path, MAX_PEM_BYTES).map_err(|why| why.to_string());
    let parsed = read.and_then(|bytes| parse(&bytes).map_err(|why| why.to_string()));
    parsed.map_err(|reason| TlsError::File { key, path: path.to_owned(), reason })
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates =
        read(key, path, |bytes| CertificateDer::pem_slice_iter(bytes).collect::<Result<_, _>>())?;
    if Vec::is_empty(&certificates) {
        let reason = "it contains no PEM certificate".to_owned();
        return Err(TlsError::File { key, path: path.to_owned(), reason });
    }
    Ok(certificates)
}

/// The given authorities and no others. Without them, the system's, or the built-in ones if the
/// system has none.
fn roots(
    given: Option<(&Path, &[CertificateDer<'static>])>,
    used: bool,
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some((path, certificates)) = given {
        for certificate in certificates {
            roots.add(certificate.clone()).map_err(|error| TlsError::File {
                key: CA_FILE,
                path: path.to_owned(),
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

/// Whether these are only an operator's own authorities. Public authorities certify everybody's
/// hosts, so a file that contains one of them gives no more trust than the system's authorities.
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
    // Read once: it may be a pipe.
    let given =
        tls.ca_file.as_deref().map(|path| Ok::<_, TlsError>((path, certificates(CA_FILE, path)?)));
    let given = given.transpose()?;
    let roots = roots(given.as_ref().map(|(path, pem)| (*path, pem.as_slice())), used)?;
    let own = given.is_some() && are_own(&roots);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Refused)?;
    let builder = match given {
        None => builder.with_root_certificates(roots),
        Some((_, pinned)) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
                .build()
                .map_err(|why| TlsError::Refused(rustls::Error::General(why.to_string())))?;
            let verifier = Arc::new(PinnedVerifier::new(verifier, pinned));
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    let config = match (&tls.cert_file, &tls.key_file) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let chain = certificates("cert_file", cert)?;
            let key = read("key_file", key, PrivateKeyDer::from_pem_slice)?;
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
    fn ca_file_with_a_public_authority_does_not_count_as_own() {
        let mut roots = RootCertStore::empty();
        let pem = Authority::new().pem();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        assert!(are_own(&roots));
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().take(1).cloned());
        assert!(!are_own(&roots));
    }
}
