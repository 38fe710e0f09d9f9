//! The server's side of TLS.

use crate::config::{ClientCertificates, Pem, Placed, Problem, WebTls};
use couchdb_client::CertificateEnds;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, SupportedKxGroup, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};
use std::sync::Arc;

/// Reads a PEM text.
pub(super) type ReadPem<'a> = dyn FnMut(&Placed<Pem>) -> Result<Vec<u8>, Problem> + 'a;

/// The TLS configuration.
#[derive(Debug)]
pub(super) struct ServerTls {
    config: Arc<ServerConfig>,
    /// The server's certificate.
    own_certificate: CertificateDer<'static>,
    asks_for_certificates: bool,
    ends: CertificateEnds,
}

impl ServerTls {
    /// Builds the configuration from the settings and the PEM texts they name.
    ///
    /// # Errors
    /// Everything that cannot be used, with its position.
    pub(super) fn new(settings: &WebTls, read: &mut ReadPem<'_>) -> Result<Self, Vec<Problem>> {
        let cert = certificates(&settings.cert, read);
        let key = key(&settings.key, read);
        let clients = authorities(&settings.clients, read);
        let (cert, key, clients) = match (cert, key, clients) {
            (Ok(cert), Ok(key), Ok(clients)) => (cert, key, clients),
            (cert, key, clients) => {
                return Err([cert.err(), key.err(), clients.err()].into_iter().flatten().collect());
            }
        };
        let refused = |why: String| vec![problem(&settings.cert, why)];
        let provider = Arc::new(provider(settings));
        let authorities = clients.as_ref().map_or(&[][..], |(_, _, found)| found);
        let ends = CertificateEnds::of(&cert, authorities);
        let versions = [(settings.tls13, &TLS13), (settings.tls12, &TLS12)];
        let versions: Vec<_> = versions
            .into_iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, version)| version)
            .collect();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|why| refused(format!("these TLS versions cannot be used: {why}")))?;
        let verifier = match clients {
            None => None,
            Some((roots, place, _)) => Some(
                verifier(&settings.clients, roots, provider)
                    .map_err(|text| vec![Problem { place, text }])?,
            ),
        };
        let builder = match verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let Some(own) = cert.first().cloned() else {
            return Err(refused("holds no certificate".to_owned()));
        };
        let mut config = builder
            .with_single_cert(cert, key)
            .map_err(|why| refused(format!("certificate and private key do not match: {why}")))?;
        config.ignore_client_order = settings.prefer_server_order;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let asks_for_certificates = matches!(settings.clients, ClientCertificates::Required(_));
        Ok(Self { config: Arc::new(config), own_certificate: own, asks_for_certificates, ends })
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    pub(super) const fn asks_for_certificates(&self) -> bool {
        self.asks_for_certificates
    }

    /// When the certificates expire.
    pub(super) const fn certificate_ends(&self) -> CertificateEnds {
        self.ends
    }

    /// Whether the certificate is valid for this host.
    pub(super) fn certifies(&self, host: &str) -> bool {
        let own = ParsedCertificate::try_from(&self.own_certificate);
        let name = ServerName::try_from(host);
        own.is_ok_and(|own| {
            name.is_ok_and(|name| rustls::client::verify_server_name(&own, &name).is_ok())
        })
    }
}

fn problem(at: &Placed<Pem>, text: String) -> Problem {
    Problem { place: at.place.clone(), text }
}

fn certificates(
    pem: &Placed<Pem>,
    read: &mut ReadPem<'_>,
) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let bytes = read(pem)?;
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(problem(pem, "contains no PEM certificate".to_owned())),
        Err(why) => Err(problem(pem, format!("contains no PEM certificate: {why}"))),
    }
}

fn key(pem: &Placed<Pem>, read: &mut ReadPem<'_>) -> Result<PrivateKeyDer<'static>, Problem> {
    let bytes = read(pem)?;
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|why| problem(pem, format!("contains no PEM private key: {why}")))
}

/// The authorities, the position of their setting, and their certificates.
type Authorities = (RootCertStore, crate::config::Place, Vec<CertificateDer<'static>>);

/// The authorities that sign client certificates.
fn authorities(
    clients: &ClientCertificates,
    read: &mut ReadPem<'_>,
) -> Result<Option<Authorities>, Problem> {
    let (ClientCertificates::Optional(pem) | ClientCertificates::Required(pem)) = clients else {
        return Ok(None);
    };
    let mut roots = RootCertStore::empty();
    let found = certificates(pem, read)?;
    for certificate in &found {
        roots
            .add(certificate.clone())
            .map_err(|why| problem(pem, format!("has an unusable authority certificate: {why}")))?;
    }
    Ok(Some((roots, pem.place.clone(), found)))
}

fn verifier(
    clients: &ClientCertificates,
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match clients {
        ClientCertificates::Optional(_) => builder.allow_unauthenticated(),
        ClientCertificates::NotRequested | ClientCertificates::Required(_) => builder,
    };
    builder.build().map_err(|why| format!("these authorities cannot be used: {why}"))
}

/// The library's cipher suites and key exchange groups, restricted to the configured ones.
fn provider(settings: &WebTls) -> CryptoProvider {
    let mut provider = ring::default_provider();
    if !settings.cipher_suites.is_empty() {
        let has = provider.cipher_suites;
        let newer = has.iter().filter(|suite| suite.tls13().is_some()).copied();
        let chosen = settings.cipher_suites.iter().filter_map(|wanted| {
            has.iter().find(|suite| suite.suite() == *wanted && suite.tls13().is_none()).copied()
        });
        provider.cipher_suites = newer.chain(chosen).collect();
    }
    if !settings.curves.is_empty() {
        let has = provider.kx_groups;
        let chosen = settings.curves.iter().filter_map(|wanted| {
            has.iter().find(|group: &&&'static dyn SupportedKxGroup| group.name() == *wanted)
        });
        provider.kx_groups = chosen.copied().collect();
    }
    provider
}
