//! A certificate authority for tests, and servers that present certificates it has signed.

use axum::Router;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig, pki_types::CertificateDer, server::WebPkiClientVerifier,
};
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

pub(crate) struct Signed {
    pub(crate) cert: rcgen::Certificate,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("an authority")
    }

    /// An authority whose own certificate has this common name and no alternative names.
    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    /// Its own certificate, in PEM.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        Signed { cert: params.signed_by(&key, &self.issuer).unwrap(), key }
    }

    /// A server of this name, which requires a client certificate of this authority if `mutual`.
    fn acceptor(&self, name: &str, mutual: bool) -> TlsAcceptor {
        let Signed { cert, key } = self.sign(name);
        self.acceptor_with(cert.der().clone(), &key, mutual)
    }

    fn acceptor_with(
        &self,
        cert: CertificateDer<'static>,
        key: &KeyPair,
        mutual: bool,
    ) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(self.issuer.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = key.serialize_der().try_into().unwrap();
        let config = builder.with_single_cert(vec![cert], key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Answers every request with `{}`.
    pub(crate) async fn serve(&self, mutual: bool) -> (SocketAddr, AbortOnDropHandle<()>) {
        Self::serve_with(self.acceptor("127.0.0.1", mutual)).await
    }

    /// Like [`Self::serve`], presenting the authority's own certificate.
    pub(crate) async fn serve_itself(&self) -> (SocketAddr, AbortOnDropHandle<()>) {
        let (cert, key) = (self.issuer.der().clone(), self.issuer.key());
        Self::serve_with(self.acceptor_with(cert, key, false)).await
    }

    #[expect(clippy::disallowed_methods, reason = "a test is its own supervisor")]
    async fn serve_with(acceptor: TlsAcceptor) -> (SocketAddr, AbortOnDropHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(socket).await else { continue };
                let mut request = [0; 4096];
                let _read = stream.read(&mut request).await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                let _written = stream.write_all(answer).await;
                let _closed = stream.shutdown().await;
            }
        };
        (at, AbortOnDropHandle::new(tokio::spawn(serving)))
    }

    /// Serves `router` at this address under a certificate for this name.
    #[expect(clippy::disallowed_methods, reason = "a test is its own supervisor")]
    pub(crate) async fn serve_router(
        &self,
        at: &str,
        name: &str,
        router: Router,
    ) -> (SocketAddr, AbortOnDropHandle<()>) {
        let acceptor = self.acceptor(name, false);
        let listener = TcpListener::bind(at).await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (acceptor, router) = (acceptor.clone(), router.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let service = TowerToHyperService::new(router);
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _closed = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        };
        (at, AbortOnDropHandle::new(tokio::spawn(serving)))
    }
}
