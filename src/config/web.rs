//! The shape of the file that `--web.config.file` names, which Prometheus's exporters share.
//!
//! Owns its keys and their values, as far as rustls and this server support them. Anything else is
//! refused with its place instead of being ignored, because each key exists to restrict access.
//! Never opens the files that the configuration names.

use super::{File, text_of};
use crate::{
    config_format::{
        form::{Form, Key, keys, list, mapping, section, settings},
        output::text as written,
        problem::{Place, Problems, alternatives, quoted},
        section::{Report, Section, Spanned},
        tree,
        values::{boolean, one_of, one_of_words, path, read_one_of},
    },
    text::Label,
};
use http::{HeaderName, HeaderValue, header};
use rustls::{CipherSuite, NamedGroup};
use secrecy::SecretString;
use serde_json::json;
use std::{collections::BTreeMap, path::PathBuf};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Users, certificates and headers of the HTTP interface.
#[derive(Clone, Debug, Default)]
pub struct WebConfig {
    /// TLS settings; without them the server speaks plain HTTP.
    pub tls: Option<WebTls>,
    /// Response headers that replace the program's own.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Users and their passwords; if empty, no login is needed.
    pub users: BTreeMap<String, PasswordHash>,
}

/// TLS settings of the server.
#[derive(Clone, Debug)]
pub struct WebTls {
    /// The certificate chain, in PEM.
    pub cert: Placed<Pem>,
    /// The certificate's private key, in PEM.
    pub key: Placed<Pem>,
    /// Whether clients must show a certificate.
    pub clients: ClientCertificates,
    /// Whether TLS 1.2 is supported.
    pub tls12: bool,
    /// Whether TLS 1.3 is supported.
    pub tls13: bool,
    /// Cipher suites for TLS 1.2, best first; all available ones if none is named. Those of TLS 1.3
    /// cannot be chosen.
    pub cipher_suites: Vec<CipherSuite>,
    /// Key exchange groups, best first; the library's if none is named.
    pub curves: Vec<NamedGroup>,
    /// Whether the server's order of suites applies instead of the client's.
    pub prefer_server_order: bool,
}

/// Which certificate a client must show before it may send anything.
#[derive(Clone, Debug)]
pub enum ClientCertificates {
    /// No certificate.
    NotRequested,
    /// A certificate issued by these authorities, if the client sends one at all.
    Optional(Placed<Pem>),
    /// A certificate issued by these authorities.
    Required(Placed<Pem>),
}

/// A value and its place, to be named if the value turns out to be unusable.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value itself.
    pub value: T,
    /// The place where the value is written.
    pub place: Place,
}

/// The source of a text in PEM.
#[derive(Clone, Debug)]
pub enum Pem {
    /// The path of a file that contains it.
    File(PathBuf),
    /// The text itself, from the configuration; it may be a private key.
    Text(SecretString),
}

/// The bcrypt hash of a password.
#[derive(Clone, Debug)]
pub struct PasswordHash {
    /// The hash in bcrypt's text form.
    pub text: SecretString,
    /// The cost: the binary logarithm of the number of rounds.
    pub cost: u32,
}

/// Cipher suites by their names in Go.
const SUITES: [(&str, CipherSuite); 9] = [
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

const CURVES: [(&str, NamedGroup); 3] = [
    ("X25519", NamedGroup::X25519),
    ("CurveP256", NamedGroup::secp256r1),
    ("CurveP384", NamedGroup::secp384r1),
];

/// Text that stands for a secret in the written configuration.
const SECRET: &str = "<secret>";

#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TlsVersion {
    #[strum(serialize = "TLS12")]
    Tls12,
    #[strum(serialize = "TLS13")]
    Tls13,
}

#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientAuth {
    #[strum(serialize = "NoClientCert")]
    No,
    #[strum(serialize = "VerifyClientCertIfGiven")]
    IfGiven,
    #[strum(serialize = "RequireAndVerifyClientCert")]
    Required,
}

/// Reads users, certificates and headers, or reports every problem in them.
///
/// # Errors
/// All problems, sorted by place.
pub fn read_web(file: File<'_>) -> Result<WebConfig, Problems> {
    let name = file.name.display().to_string();
    let node = tree::read(&name, text_of(&name, file.bytes)?)?;
    let base = file.name.parent().map(PathBuf::from).unwrap_or_default();
    let mut report = Report { file: name, base, ..Report::default() };
    let read = WebFile::form().read(&mut report, &node, "", Some(&WebFile::default()));
    if !report.problems.is_empty() {
        return Err(Problems::new(report.problems));
    }
    let WebFile { tls, http, users } = read.unwrap_or_default();
    Ok(WebConfig { tls: tls.checked, headers: http.headers.given(), users })
}

settings! {
    /// The whole file.
    #[derive(Clone)]
    struct WebFile {
        /// How connections are encrypted; left out, plain HTTP.
        "tls_server_config" => tls: TlsSection = TlsSection::default(), Live, tls();
        /// Headers of every answer.
        "http_server_config" => http: HttpSection = HttpSection::default(), Live, HttpSection::form();
        /// Who may ask: names and bcrypt hashes; left out, anybody.
        "basic_auth_users" => users: BTreeMap<String, PasswordHash> = BTreeMap::new(), Live, mapping(user_name(), password_hash());
    }
    check = |_, section| {
        section
            .refuse_key("rate_limit", "recliner has no limit of this kind; omit the section");
    };
}

#[derive(Clone, Default)]
struct TlsSection {
    cert: Option<Spanned<SecretString>>,
    cert_file: Option<Spanned<PathBuf>>,
    key: Option<Spanned<SecretString>>,
    key_file: Option<Spanned<PathBuf>>,
    client_auth: Option<Spanned<ClientAuth>>,
    client_ca: Option<Spanned<SecretString>>,
    client_ca_file: Option<Spanned<PathBuf>>,
    min_version: Option<TlsVersion>,
    max_version: Option<Spanned<TlsVersion>>,
    cipher_suites: Vec<CipherSuite>,
    curves: Vec<NamedGroup>,
    prefer_server_order: Option<bool>,
    /// The checked settings; `None` if the section is missing or invalid.
    checked: Option<WebTls>,
}

fn tls() -> Form<TlsSection> {
    let keys = keys!(in TlsSection {
        /// The certificate chain, in PEM.
        "cert" => cert, Live, pem().placed();
        /// A file that holds the certificate chain.
        "cert_file" => cert_file, Live, path().placed();
        /// The private key, in PEM.
        "key" => key, Live, pem().placed();
        /// A file that holds the private key.
        "key_file" => key_file, Live, path().placed();
        /// Whether clients must show a certificate.
        "client_auth_type" => client_auth, Live, client_auth().placed();
        /// The authorities of clients' certificates, in PEM.
        "client_ca" => client_ca, Live, pem().placed();
        /// A file that holds the authorities of clients' certificates.
        "client_ca_file" => client_ca_file, Live, path().placed();
        /// The oldest supported TLS version; default TLS12.
        "min_version" => min_version, Live, one_of::<TlsVersion>().optional();
        /// The newest supported TLS version; default TLS13.
        "max_version" => max_version, Live, one_of::<TlsVersion>().placed();
        /// Cipher suites for TLS 1.2, best first; default all. Those of TLS 1.3 cannot be chosen.
        "cipher_suites" => cipher_suites, Live, list(one_of_words(SUITES.to_vec()));
        /// Key exchange groups, best first; default the library's.
        "curve_preferences" => curves, Live, list(one_of_words(CURVES.to_vec()));
        /// Whether the server's order of cipher suites applies, not the client's; default true.
        "prefer_server_cipher_suites" => prefer_server_order, Live, boolean().optional();
    });
    section(keys, |tls, section| tls.checked = check_tls(tls, section))
}

fn check_tls(tls: &TlsSection, section: &mut Section<'_, '_>) -> Option<WebTls> {
    if section.is_empty() {
        return None;
    }
    let cert = one_pem(section, ("cert", &tls.cert), ("cert_file", &tls.cert_file));
    let key = one_pem(section, ("key", &tls.key), ("key_file", &tls.key_file));
    for (found, file, text) in [(&cert, "cert_file", "cert"), (&key, "key_file", "key")] {
        if matches!(found, Given::Absent) {
            section.refuse(format!("found neither {file} nor {text}; TLS needs one of them"));
        }
    }
    let clients = check_clients(tls, section);
    let min_version = tls.min_version.unwrap_or(TlsVersion::Tls12);
    if let Some(most) = &tls.max_version
        && most.value < min_version
    {
        section.report.refuse(
            most.at,
            &most.path,
            "less than min_version, so no version is allowed",
        );
    }
    let max_version = tls.max_version.as_ref().map_or(TlsVersion::Tls13, |most| most.value);
    section.refuse_key(
        "client_allowed_sans",
        "recliner cannot check the names in client certificates; in client_ca_file, use your own authorities that issue certificates only to permitted clients",
    );
    let (Given::As(cert), Given::As(key)) = (cert, key) else { return None };
    Some(WebTls {
        cert,
        key,
        clients: clients?,
        tls12: min_version == TlsVersion::Tls12,
        tls13: max_version == TlsVersion::Tls13,
        cipher_suites: tls.cipher_suites.clone(),
        curves: tls.curves.clone(),
        prefer_server_order: tls.prefer_server_order.unwrap_or(true),
    })
}

/// The source of a text in PEM as written: a file or the text itself.
#[derive(Debug)]
enum Given {
    Absent,
    Wrong,
    As(Placed<Pem>),
}

/// Reads a text in PEM, or the path of the file that contains it.
fn one_pem(
    section: &mut Section<'_, '_>,
    (inline, text): (&'static str, &Option<Spanned<SecretString>>),
    (file, path): (&'static str, &Option<Spanned<PathBuf>>),
) -> Given {
    let (inline_at, file_at) = (section.key_at(inline), section.key_at(file));
    if inline_at.is_some() {
        section.refuse_key(file, format!("found together with {inline}; give one of them"));
    }
    let (value, at, path) = match (path, text) {
        (Some(Spanned { value, at, path }), _) => (Pem::File(value.clone()), at, path),
        (None, Some(Spanned { value, at, path })) => (Pem::Text(value.clone()), at, path),
        (None, None) if inline_at.or(file_at).is_some() => return Given::Wrong,
        (None, None) => return Given::Absent,
    };
    Given::As(Placed { value, place: section.report.place(*at, path) })
}

fn check_clients(tls: &TlsSection, section: &mut Section<'_, '_>) -> Option<ClientCertificates> {
    let authorities =
        one_pem(section, ("client_ca", &tls.client_ca), ("client_ca_file", &tls.client_ca_file));
    let auth = match &tls.client_auth {
        Some(found) => found.clone(),
        None if section.key_at("client_auth_type").is_some() => return None,
        None => Spanned { value: ClientAuth::No, at: section.at, path: section.path.clone() },
    };
    match (auth.value, authorities) {
        (_, Given::Wrong) => None,
        (ClientAuth::No, Given::Absent) => Some(ClientCertificates::NotRequested),
        (ClientAuth::No, Given::As(_)) => {
            let says = "client_ca_file is given, but certificates are not requested; write client_auth_type: RequireAndVerifyClientCert";
            section.report.refuse(auth.at, &auth.path, says);
            None
        }
        (_, Given::Absent) => {
            let says = "requires client certificates, but client_ca_file is missing; name the file with their authorities";
            section.report.refuse(auth.at, &auth.path, says);
            None
        }
        (ClientAuth::IfGiven, Given::As(authorities)) => {
            Some(ClientCertificates::Optional(authorities))
        }
        (ClientAuth::Required, Given::As(authorities)) => {
            Some(ClientCertificates::Required(authorities))
        }
    }
}

/// Whether clients must show a certificate, in Go's terms.
fn client_auth() -> Form<ClientAuth> {
    let read = |text: &str| match text {
        "" => Ok(ClientAuth::No),
        "RequestClientCert" | "RequireClientCert" | "RequireAnyClientCert" => Err(format!(
            "found {}, which would accept any certificate; recliner only accepts verified ones: write RequireAndVerifyClientCert",
            quoted(text)
        )),
        text => read_one_of(text),
    };
    let words = ClientAuth::labels();
    Form::scalar(read, |auth| written(auth.label()), json!({"enum": words}))
}

/// A text in PEM, which may be a private key.
fn pem() -> Form<SecretString> {
    let read = |text: &str| Ok(SecretString::from(text));
    Form::scalar(read, |_| written(SECRET), json!({"type": "string"}))
}

settings! {
    #[derive(Clone)]
    struct HttpSection {
        /// Response headers that replace the program's own.
        "headers" => headers: Headers = Headers::default(), Live, Headers::form();
    }
    also = Key::new(
        "http2",
        &["Accepted without effect: this server speaks only HTTP/1.1, as any client can."],
        None,
        boolean().without_effect(),
    );
}

settings! {
    /// The headers that may be set.
    #[derive(Clone)]
    struct Headers {
        /// How long browsers must use HTTPS only.
        "Strict-Transport-Security" => strict_transport_security: Option<HeaderValue> = None, Live, header_value(&[]);
        /// Whether browsers may guess the type of a response.
        "X-Content-Type-Options" => content_type_options: Option<HeaderValue> = None, Live, header_value(&["nosniff"]);
        /// Which pages may show this one in a frame.
        "X-Frame-Options" => frame_options: Option<HeaderValue> = None, Live, header_value(&["deny", "sameorigin"]);
        /// The script filter of old browsers.
        "X-XSS-Protection" => xss_protection: Option<HeaderValue> = None, Live, header_value(&[]);
        /// What a page may load.
        "Content-Security-Policy" => content_security_policy: Option<HeaderValue> = None, Live, header_value(&[]);
    }
}

impl Headers {
    /// The headers that are set.
    fn given(self) -> Vec<(HeaderName, HeaderValue)> {
        let Self {
            strict_transport_security,
            content_type_options,
            frame_options,
            xss_protection,
            content_security_policy,
        } = self;
        [
            (header::STRICT_TRANSPORT_SECURITY, strict_transport_security),
            (header::X_CONTENT_TYPE_OPTIONS, content_type_options),
            (header::X_FRAME_OPTIONS, frame_options),
            (header::X_XSS_PROTECTION, xss_protection),
            (header::CONTENT_SECURITY_POLICY, content_security_policy),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// A header's value: one of the allowed values, or any value if none is listed.
fn header_value(allowed: &'static [&'static str]) -> Form<Option<HeaderValue>> {
    let read = |text: &str| {
        if !allowed.is_empty() && !allowed.contains(&text) {
            return Err(format!("found {}, expected {}", quoted(text), alternatives(allowed)));
        }
        HeaderValue::from_str(text)
            .map_err(|_| format!("found {}, which an HTTP header cannot carry", quoted(text)))
    };
    let write = |value: &HeaderValue| written(value.to_str().unwrap_or_default());
    let schema =
        if allowed.is_empty() { json!({"type": "string"}) } else { json!({"enum": allowed}) };
    Form::scalar(read, write, schema).optional()
}

fn user_name() -> Form<String> {
    let read = |name: &str| {
        if name.is_empty() || name.contains(':') || name.contains(char::is_control) {
            return Err(
                "a user name must not be empty or contain a colon or a control character, because HTTP logins cannot carry them"
                    .to_owned(),
            );
        }
        Ok(name.to_owned())
    };
    Form::scalar(read, |name| written(name), json!({"type": "string", "pattern": "^[^:]+$"}))
}

fn password_hash() -> Form<PasswordHash> {
    // The value is never repeated in a message, because it could be the password itself.
    let read = |text: &str| {
        let parts = text.parse::<bcrypt::HashParts>().map_err(|_| {
            "expected a bcrypt hash, as htpasswd -nBC 10 prints it after the colon".to_owned()
        })?;
        Ok(PasswordHash { text: text.into(), cost: parts.get_cost() })
    };
    Form::scalar(read, |_| written(SECRET), json!({"type": "string"}))
}
