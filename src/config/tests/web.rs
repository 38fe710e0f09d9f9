use super::*;
use secrecy::ExposeSecret as _;

const HASH: &str = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi";

fn read(text: &str) -> Result<WebConfig, Vec<String>> {
    read_web(File { name: Path::new("dir/web.yml"), bytes: text.as_bytes() })
        .map_err(|problems| problems.all().iter().map(ToString::to_string).collect())
}

#[test]
fn empty_web_configuration_restricts_nothing() {
    for text in ["", "{}", "tls_server_config: {}", "basic_auth_users:", "http_server_config: {}"] {
        let found = read(text).unwrap();
        assert!(found.tls.is_none() && found.users.is_empty() && found.headers.is_empty());
    }
}

#[test]
fn reads_every_key_of_the_web_configuration() {
    let found = read(&format!(
        "tls_server_config:
  cert_file: tls/own.pem
  key: |
    a key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: /etc/ca.pem
  min_version: TLS13
  max_version: TLS13
  cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
  curve_preferences: [CurveP384, X25519]
  prefer_server_cipher_suites: false
http_server_config:
  http2: false
  headers: {{X-Frame-Options: deny, Strict-Transport-Security: max-age=1}}
basic_auth_users: {{ann: {HASH}, 'b o': '{HASH}'}}
"
    ))
    .unwrap();
    let tls = found.tls.unwrap();
    let file = |pem: &Pem| match pem {
        Pem::File(path) => path.clone(),
        Pem::Text(text) => panic!("{}", text.expose_secret()),
    };
    assert_eq!(file(&tls.cert.value), Path::new("dir/tls/own.pem"));
    assert!(matches!(&tls.key.value, Pem::Text(text) if text.expose_secret() == "a key\n"));
    assert!(
        matches!(&tls.clients, ClientCertificates::Required(ca) if file(&ca.value) == *"/etc/ca.pem")
    );
    assert_eq!((tls.tls12, tls.tls13, tls.prefer_server_order), (false, true, false));
    assert_eq!((tls.cipher_suites.len(), tls.curves.len()), (2, 2));
    assert_eq!(found.headers.len(), 2);
    let users: Vec<_> = found.users.iter().map(|(name, hash)| (&**name, hash.cost)).collect();
    assert_eq!(users, [("ann", 10), ("b o", 10)]);
    assert!(!format!("{tls:?} {:?}", found.users).contains("a key"), "secrets are not shown");
    assert!(!format!("{:?}", found.users).contains("$2y"), "nor are hashes");
}

#[test]
fn reports_all_problems_without_passwords() {
    let said = read(&format!(
        "tls_server_config:
  cert_file: a
  cert: b
  client_auth_type: RequestClientCert
  client_allowed_sans: [a]
  min_version: TLS10
  cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]
  curve_preferences: [CurveP521]
  keyfile: a
http_server_config:
  headers: {{X-Frame-Options: maybe, Server: me}}
basic_auth_users:
  ann: s3cret
  'a:b': {HASH}
rate_limit: {{burst: 1}}
"
    ))
    .unwrap_err();
    let expected = [
        "dir/web.yml:2:3: tls_server_config: found neither key_file nor key",
        "dir/web.yml:2:3: tls_server_config.cert_file: found together with cert",
        "dir/web.yml:4:21: tls_server_config.client_auth_type: found \"RequestClientCert\", which would accept any",
        "dir/web.yml:5:3: tls_server_config.client_allowed_sans: recliner cannot check",
        "dir/web.yml:6:16: tls_server_config.min_version: found \"TLS10\", expected TLS12 or TLS13",
        "dir/web.yml:7:19: tls_server_config.cipher_suites[0]: found \"TLS_RSA_WITH_AES_128_CBC_SHA\"",
        "dir/web.yml:8:23: tls_server_config.curve_preferences[0]: found \"CurveP521\"",
        "dir/web.yml:9:3: tls_server_config.keyfile: unknown key; did you mean key_file?",
        "dir/web.yml:11:30: http_server_config.headers.X-Frame-Options: found \"maybe\", expected deny or",
        "dir/web.yml:11:37: http_server_config.headers.Server: unknown key; allowed here: Strict-Transport",
        "dir/web.yml:13:8: basic_auth_users[\"ann\"]: expected a bcrypt hash",
        "dir/web.yml:14:3: basic_auth_users[\"a:b\"]: a user name",
        "dir/web.yml:15:1: rate_limit: recliner has no limit",
    ];
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.starts_with(expected), "{said}\n{expected}");
        assert!(!said.contains("s3cret"), "{said}");
    }
    assert_eq!(said.len(), expected.len(), "{said:#?}");
}

#[test]
fn refuses_incomplete_client_certificate_settings() {
    let tls = |more: &str| read(&format!("tls_server_config: {{cert_file: a, key_file: b{more}}}"));
    for (more, says) in [
        (", client_ca_file: c", "certificates are not requested"),
        (", client_auth_type: NoClientCert, client_ca_file: c", "certificates are not requested"),
        (", client_auth_type: RequireAndVerifyClientCert", "client_ca_file is missing"),
        (", client_auth_type: VerifyClientCertIfGiven", "client_ca_file is missing"),
        (", client_auth_type: Always", "NoClientCert, VerifyClientCertIfGiven or Require"),
        (", min_version: TLS13, max_version: TLS12", "less than min_version"),
    ] {
        let said = tls(more).unwrap_err();
        assert!(matches!(&*said, [one] if one.contains(says)), "{more}: {said:?}");
    }
    assert!(matches!(tls("").unwrap().tls.unwrap().clients, ClientCertificates::NotRequested));
    let asked = tls(", client_auth_type: VerifyClientCertIfGiven, client_ca_file: c").unwrap();
    assert!(matches!(asked.tls.unwrap().clients, ClientCertificates::Optional(_)));
}
