//! The shape of the file that `--web.config.file` names, which Prometheus's exporters share.
//!
//! Owns its keys and what each may be, as far as rustls and this server have it; anything
//! else is refused with its place rather than left out, for each key is there to close
//! something. Never opens what the file names.

use super::{
    File,
    problem::{Place, Problems, alternatives, quoted},
    section::{Report, Section, Spanned, scalar},
    text_of, tree, values,
};
use http::{HeaderName, HeaderValue};
use rustls::{CipherSuite, NamedGroup};
use secrecy::SecretString;
use std::{collections::BTreeMap, path::PathBuf, str::FromStr as _};

/// Users, certificates and headers of the HTTP interface.
#[derive(Clone, Debug, Default)]
pub struct WebConfig {
    /// How connections are encrypted; plain HTTP without.
    pub tls: Option<WebTls>,
    /// Headers that answers have in place of the program's own.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Who may ask; anybody where there is none.
    pub users: BTreeMap<String, PasswordHash>,
}

/// How connections are encrypted.
#[derive(Clone, Debug)]
pub struct WebTls {
    /// The certificate chain, in PEM.
    pub cert: Placed<Pem>,
    /// Its private key, in PEM.
    pub key: Placed<Pem>,
    /// What is asked of clients.
    pub clients: ClientCertificates,
    /// Whether TLS 1.2 is spoken.
    pub tls12: bool,
    /// Whether TLS 1.3 is spoken.
    pub tls13: bool,
    /// Suites for TLS 1.2, best first; all that there are where none is named. Those of
    /// TLS 1.3 cannot be chosen.
    pub cipher_suites: Vec<CipherSuite>,
    /// Key exchange groups, best first; the library's where none is named.
    pub curves: Vec<NamedGroup>,
    /// Whether the server's order of suites counts, not the client's.
    pub prefer_server_order: bool,
}

/// What is asked of clients before they may send anything.
#[derive(Clone, Debug)]
pub enum ClientCertificates {
    /// No certificate.
    NotRequested,
    /// A certificate by these authorities, if one is sent at all.
    Optional(Placed<Pem>),
    /// A certificate by these authorities.
    Required(Placed<Pem>),
}

/// A value with the place to name when it turns out unusable.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where it is written.
    pub place: Place,
}

/// Where text in PEM comes from.
#[derive(Clone, Debug)]
pub enum Pem {
    /// From a file.
    File(PathBuf),
    /// From the configuration itself; it may be a private key.
    Text(SecretString),
}

/// The bcrypt hash of a password.
#[derive(Clone, Debug)]
pub struct PasswordHash {
    /// The hash in its own text form.
    pub text: SecretString,
    /// The binary logarithm of its rounds.
    pub cost: u32,
}

/// Cipher suites by the names that Go gives them.
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

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TlsVersion {
    Tls12,
    Tls13,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientAuth {
    No,
    IfGiven,
    Required,
}

/// Headers that may be set, each with the values it may have; any where none is named.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

/// Reads users, certificates and headers, or says everything that is wrong with them.
///
/// # Errors
/// Every problem, sorted by place.
pub fn read_web(file: File<'_>) -> Result<WebConfig, Problems> {
    let name = file.name.display().to_string();
    let node = tree::read(&name, text_of(&name, file.bytes)?)?;
    let base = file.name.parent().map(PathBuf::from).unwrap_or_default();
    let mut report = Report { file: name, base, ..Report::default() };
    let (mut root, is_mapping) = Section::open(&mut report, &node, "");
    let found = WebConfig {
        tls: root.section("tls_server_config", tls).flatten(),
        headers: root.section("http_server_config", headers).unwrap_or_default(),
        users: users(&mut root),
    };
    root.refuse_key("rate_limit", "recliner has no limit of this kind; leave the section out");
    root.close(is_mapping);
    if report.problems.is_empty() { Ok(found) } else { Err(Problems::new(report.problems)) }
}

fn tls(section: &mut Section<'_, '_>) -> Option<WebTls> {
    if section.is_empty() {
        return None;
    }
    let cert = pem(section, "cert", "cert_file");
    let key = pem(section, "key", "key_file");
    for (found, file, text) in [(&cert, "cert_file", "cert"), (&key, "key_file", "key")] {
        if matches!(found, Given::Absent) {
            section.refuse(format!("found neither {file} nor {text}; TLS needs one of them"));
        }
    }
    let clients = clients(section);
    let versions = [TlsVersion::Tls12, TlsVersion::Tls13];
    let version = values::read_one_of(versions, |version| match version {
        TlsVersion::Tls12 => "TLS12",
        TlsVersion::Tls13 => "TLS13",
    });
    let least = section.value("min_version", &version).unwrap_or(TlsVersion::Tls12);
    let most = section.spanned("max_version", &version);
    if let Some(most) = &most
        && most.value < least
    {
        section.report.refuse(most.at, &most.path, "less than min_version, so that none is left");
    }
    let most = most.map_or(TlsVersion::Tls13, |most| most.value);
    let suites = section.values("cipher_suites", named(&SUITES)).unwrap_or_default();
    let curves = section.values("curve_preferences", named(&CURVES)).unwrap_or_default();
    let prefer = section.value("prefer_server_cipher_suites", values::read_boolean);
    section.refuse_key(
        "client_allowed_sans",
        "recliner cannot check the names in client certificates; use authorities of your own in client_ca_file that certify only who may ask",
    );
    let (Given::As(cert), Given::As(key)) = (cert, key) else { return None };
    Some(WebTls {
        cert,
        key,
        clients: clients?,
        tls12: least == TlsVersion::Tls12,
        tls13: most == TlsVersion::Tls13,
        cipher_suites: suites.into_iter().map(|suite| suite.value).collect(),
        curves: curves.into_iter().map(|curve| curve.value).collect(),
        prefer_server_order: prefer.unwrap_or(true),
    })
}

/// One of the words of a table.
fn named<T: Copy>(table: &'static [(&'static str, T)]) -> impl Fn(&str) -> values::Read<T> {
    move |text| {
        let found = values::read_one_of(table, |pair| pair.0)(text);
        found.map(|pair| pair.1).map_err(|why| format!("{why}; rustls has no others"))
    }
}

/// What was given for a text in PEM.
#[derive(Debug)]
enum Given {
    Absent,
    Wrong,
    As(Placed<Pem>),
}

/// A text in PEM, or the file that holds it.
fn pem(section: &mut Section<'_, '_>, inline: &'static str, file: &'static str) -> Given {
    if let (Some(_), Some(at)) = (section.key_at(inline), section.key_at(file)) {
        let path = section.path_of(file);
        section.report.refuse(at, &path, format!("found beside {inline}; give one of them"));
    }
    let present = section.key_at(inline).is_some() || section.key_at(file).is_some();
    let base = section.report.base.clone();
    let text = section.spanned(inline, |text| Ok(Pem::Text(SecretString::from(text))));
    let path = section.spanned(file, values::read_path);
    let path = path.map(|found| Spanned {
        value: Pem::File(base.join(found.value)),
        at: found.at,
        path: found.path,
    });
    match path.or(text) {
        Some(found) => Given::As(Placed {
            place: section.report.place(found.at, &found.path),
            value: found.value,
        }),
        None if present => Given::Wrong,
        None => Given::Absent,
    }
}

fn clients(section: &mut Section<'_, '_>) -> Option<ClientCertificates> {
    let given = section.key_at("client_auth_type").is_some();
    let asked = section.spanned("client_auth_type", |text| {
        let auth = [ClientAuth::No, ClientAuth::IfGiven, ClientAuth::Required];
        match text {
            "" => Ok(ClientAuth::No),
            "RequestClientCert" | "RequireClientCert" | "RequireAnyClientCert" => Err(format!(
                "found {}, with which any certificate would do; recliner checks them: write RequireAndVerifyClientCert",
                quoted(text)
            )),
            text => values::read_one_of(auth, |auth| match auth {
                ClientAuth::No => "NoClientCert",
                ClientAuth::IfGiven => "VerifyClientCertIfGiven",
                ClientAuth::Required => "RequireAndVerifyClientCert",
            })(text),
        }
    });
    let authorities = pem(section, "client_ca", "client_ca_file");
    let auth = match asked {
        Some(found) => found,
        None if given => return None,
        None => Spanned { value: ClientAuth::No, at: section.at, path: section.path.clone() },
    };
    match (auth.value, authorities) {
        (_, Given::Wrong) => None,
        (ClientAuth::No, Given::Absent) => Some(ClientCertificates::NotRequested),
        (ClientAuth::No, Given::As(_)) => {
            let says = "client_ca_file is given, but certificates are not asked for; write client_auth_type: RequireAndVerifyClientCert";
            section.report.refuse(auth.at, &auth.path, says);
            None
        }
        (_, Given::Absent) => {
            let says = "asks for certificates, but client_ca_file does not say whose; name the authorities";
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

fn headers(section: &mut Section<'_, '_>) -> Vec<(HeaderName, HeaderValue)> {
    // Whatever is said, this server speaks HTTP/1.1 alone, as any client can.
    let _either = section.value("http2", values::read_boolean);
    let found = section.free("headers", |report, key, node, path| {
        let known = HEADERS.iter().find(|(name, _)| *name == key.text);
        let Some((name, values)) = known else {
            let names = HEADERS.map(|(name, _)| name);
            report.refuse(
                key.at,
                path,
                format!(
                    "found {}, but only {} can be set",
                    quoted(&key.text),
                    alternatives(&names)
                ),
            );
            return None;
        };
        let value = scalar(report, node, path, |text| {
            if !values.is_empty() && !values.contains(&text) {
                return Err(format!(
                    "found {}, but {} belongs here",
                    quoted(text),
                    alternatives(values)
                ));
            }
            HeaderValue::from_str(text)
                .map_err(|_| format!("found {}, which no header can carry", quoted(text)))
        })?;
        Some((HeaderName::from_str(name).ok()?, value))
    });
    found.unwrap_or_default()
}

fn users(root: &mut Section<'_, '_>) -> BTreeMap<String, PasswordHash> {
    let found = root.free("basic_auth_users", |report, key, node, path| {
        let name = &key.text;
        if name.is_empty() || name.contains(':') || name.contains(char::is_control) {
            let says = "a user name is not empty and contains no colon and no control character, because a login cannot carry them";
            report.refuse(key.at, path, says);
        }
        // What was found is never repeated: it may be the password itself.
        let hash = scalar(report, node, path, |text| {
            let read = text.parse::<bcrypt::HashParts>();
            let hash = |parts: bcrypt::HashParts| PasswordHash { text: text.into(), cost: parts.get_cost() };
            read.map(hash).map_err(|_| {
                "found no bcrypt hash, but one belongs here, as htpasswd -nBC 10 prints it after the colon".to_owned()
            })
        })?;
        Some((name.clone(), hash))
    });
    found.unwrap_or_default().into_iter().collect()
}
