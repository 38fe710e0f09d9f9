use super::*;
use crate::serve::http::{
    guard::{OrderRefused, Permission, authorize_order},
    peer::{Connection, Peer},
    server::in_memory::InMemoryServer,
    state::Allow,
};
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header},
    middleware,
    routing::get,
};
use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::{fs, process::Command, time::Duration};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time,
};
use tower::ServiceExt as _;

/// A bcrypt hash with few rounds.
fn hash(password: &str) -> String {
    bcrypt::hash_with_salt(password, 4, [7; 16]).unwrap().format_for_version(bcrypt::Version::TwoY)
}

struct Site {
    dir: TempDir,
}

impl Site {
    /// A directory with an authority's certificate and one that it signed.
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let names = vec!["recliner.example".to_owned(), "*.pool.example".to_owned()];
        let own = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let site = Self { dir: tempfile::tempdir().unwrap() };
        site.write("ca.pem", &issuer.pem());
        site.write("own.pem", &own.pem());
        site.write("key.pem", &key.serialize_pem());
        site.write("other.pem", &other.serialize_pem());
        site
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn web(&self, text: &str) -> Result<WebAccess, String> {
        let path = self.write("web.yml", text);
        WebAccess::open(Some(&path)).map_err(|problems| problems.to_string())
    }
}

const TLS: &str = "tls_server_config:\n  cert_file: own.pem\n  key_file: key.pem\n";

#[test]
fn accepts_and_refuses_the_same_web_files_as_promtool() {
    let site = Site::new();
    let hash = hash("pa55");
    let users = format!("basic_auth_users:\n  ann: {hash}\n");
    let mut files = Vec::new();
    for (sound, text) in [
        (true, String::new()),
        (true, users.clone()),
        (true, "basic_auth_users:\n  ann: $2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay\n".to_owned()),
        (false, "basic_auth_users:\n  ann: pa55\n".to_owned()),
        (false, "basic_auth_users: [ann]\n".to_owned()),
        (true, TLS.to_owned()),
        (true, format!("{TLS}{users}")),
        (false, format!("{TLS}  no_such_key: 1\n")),
        (false, "users: {}\n".to_owned()),
        (false, "tls_server_config:\n  cert_file: own.pem\n".to_owned()),
        (false, "tls_server_config:\n  cert_file: own.pem\n  key_file: none.pem\n".to_owned()),
        (false, "tls_server_config:\n  cert_file: own.pem\n  key_file: other.pem\n".to_owned()),
        (false, "tls_server_config:\n  cert_file: key.pem\n  key_file: key.pem\n".to_owned()),
        (true, format!("{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n")),
        (true, format!("{TLS}  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.pem\n")),
        (true, format!("{TLS}  client_auth_type: NoClientCert\n")),
        (false, format!("{TLS}  client_ca_file: ca.pem\n")),
        (false, format!("{TLS}  client_auth_type: Sometimes\n  client_ca_file: ca.pem\n")),
        (false, format!("{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: none.pem\n")),
        (true, format!("{TLS}  min_version: TLS12\n  max_version: TLS12\n")),
        (true, format!("{TLS}  min_version: TLS13\n")),
        (false, format!("{TLS}  min_version: '1.2'\n")),
        (true, format!("{TLS}  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]\n")),
        (true, format!("{TLS}  curve_preferences: [X25519, CurveP256]\n  prefer_server_cipher_suites: true\n")),
        (false, format!("{TLS}  cipher_suites: [AES]\n")),
        (false, format!("{TLS}  curve_preferences: [P256]\n")),
        (true, "http_server_config:\n  http2: false\n".to_owned()),
        (true, "http_server_config:\n  headers:\n    X-Frame-Options: deny\n    X-XSS-Protection: '0'\n".to_owned()),
        (false, "http_server_config:\n  headers:\n    X-Frame-Options: perhaps\n".to_owned()),
        (false, "http_server_config:\n  headers:\n    Server: me\n".to_owned()),
        (false, "http_server_config:\n  http2: perhaps\n".to_owned()),
    ] {
        let output = site.web(&text);
        assert_eq!(output.is_ok(), sound, "{output:?}\n{text}");
        files.push((sound, text));
    }
    if Command::new("promtool").arg("--version").output().is_err() {
        crate::skipped::skipped("promtool, which Debian has in the package prometheus");
        return;
    }
    for (sound, text) in files {
        let path = site.write("web.yml", &text);
        let output = Command::new("promtool").args(["check", "web-config"]).arg(path).output();
        let output = output.unwrap();
        assert_eq!(
            output.status.success(),
            sound,
            "{}\n{text}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn unusable_certificate_or_key_is_refused_with_its_place() {
    let site = Site::new();
    let path = |name: &str| site.dir.path().join(name).display().to_string();
    for (cert, key, says) in [
        (
            "none.pem",
            "none.pem",
            vec![
                format!("2:14: tls_server_config.cert_file: {} cannot be read: ", path("none.pem")),
                format!("3:13: tls_server_config.key_file: {} cannot be read: ", path("none.pem")),
            ],
        ),
        (
            "key.pem",
            "own.pem",
            vec![
                "2:14: tls_server_config.cert_file: contains no PEM certificate".to_owned(),
                "3:13: tls_server_config.key_file: contains no PEM private key: ".to_owned(),
            ],
        ),
        (
            "own.pem",
            "other.pem",
            vec![
                "2:14: tls_server_config.cert_file: certificate and private key do not match"
                    .to_owned(),
            ],
        ),
    ] {
        let output =
            site.web(&format!("tls_server_config:\n  cert_file: {cert}\n  key_file: {key}\n"));
        let output = output.unwrap_err();
        let lines: Vec<_> = output.lines().collect();
        assert_eq!(lines.len(), says.len(), "{output}");
        for (line, says) in lines.into_iter().zip(says) {
            assert!(line.starts_with(&format!("{}:{says}", path("web.yml"))), "{line}\n{says}");
        }
    }
}

/// What a page answers, asked with this login.
async fn ask(web: &WebAccess, path: &str, login: Option<&str>) -> (StatusCode, header::HeaderMap) {
    ask_from(std::net::Ipv4Addr::LOCALHOST, web, path, login).await
}

/// Like [`ask`], from this address.
async fn ask_from(
    from: std::net::Ipv4Addr,
    web: &WebAccess,
    path: &str,
    login: Option<&str>,
) -> (StatusCode, header::HeaderMap) {
    let page = get(|| async { "hello" });
    let router = Router::new().route("/", page.clone()).route("/-/healthy", page.clone());
    let router = router.route("/-/ready", page);
    let router = router.layer(middleware::from_fn_with_state(web.clone(), authenticate));
    let connection = Connection { peer: Peer::Tcp(from.into()), encrypted: false };
    let mut request = Request::get(path).extension(connection);
    if let Some(login) = login {
        let value = base64::prelude::BASE64_STANDARD.encode(login);
        request = request.header("authorization", format!("Basic {value}"));
    }
    let answer = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    (answer.status(), answer.headers().clone())
}

#[tokio::test]
async fn every_path_but_the_probes_needs_a_user() {
    let site = Site::new();
    let web = site
        .web(&format!(
            "basic_auth_users: {{ann: {}, bo: {}, '': {0}}}\nhttp_server_config: {{headers: {{X-Frame-Options: sameorigin}}}}",
            hash("pa55"),
            hash("a:b")
        ))
        .unwrap_err();
    assert!(web.contains("a user name must not be empty"), "{web}");
    let web = site
        .web(&format!(
            "basic_auth_users: {{ann: {}, bo: {}}}\nhttp_server_config: {{headers: {{X-Frame-Options: sameorigin}}}}",
            hash("pa55"),
            hash("a:b")
        ))
        .unwrap();
    assert!(web.has_users() && !web.is_encrypted());
    // Each twice: what was found right is remembered, what was wrong is not.
    for (login, status) in [
        (None, StatusCode::UNAUTHORIZED),
        (Some("ann:pa55"), StatusCode::OK),
        (Some("ann:pa55"), StatusCode::OK),
        (Some("bo:a:b"), StatusCode::OK),
        (Some("ann:a:b"), StatusCode::UNAUTHORIZED),
        (Some("ann:a:b"), StatusCode::UNAUTHORIZED),
        (Some("ann:"), StatusCode::UNAUTHORIZED),
        (Some("ann"), StatusCode::UNAUTHORIZED),
        (Some("Ann:pa55"), StatusCode::UNAUTHORIZED),
        (Some(":pa55"), StatusCode::UNAUTHORIZED),
        (Some("eve:pa55"), StatusCode::UNAUTHORIZED),
        (Some("ann:pa55"), StatusCode::OK),
    ] {
        let (found, headers) = ask(&web, "/", login).await;
        assert_eq!(found, status, "{login:?}");
        let wanted = (status == StatusCode::UNAUTHORIZED)
            .then_some("Basic realm=\"recliner\", charset=\"UTF-8\"");
        let asks = headers.get(header::WWW_AUTHENTICATE).map(|value| value.to_str().unwrap());
        assert_eq!(asks, wanted);
        assert_eq!(headers["x-frame-options"], "sameorigin");
    }
    for path in ["/-/healthy", "/-/ready"] {
        assert_eq!(ask(&web, path, None).await.0, StatusCode::OK, "{path}");
    }
    for path in ["/-/healthy/", "//-/healthy", "/-/Ready", "/nowhere", "/-/healthy/../../"] {
        assert_eq!(ask(&web, path, None).await.0, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn password_beyond_the_length_limit_of_bcrypt_is_refused() {
    let site = Site::new();
    let longest = "p".repeat(72);
    let web = site.web(&format!("basic_auth_users: {{ann: {}}}", hash(&longest))).unwrap();
    for (password, status) in [
        (longest.clone(), StatusCode::OK),
        (format!("{longest}p"), StatusCode::UNAUTHORIZED),
        (format!("{longest}\0"), StatusCode::UNAUTHORIZED),
    ] {
        // Also once the right one is remembered.
        for _ in 0..2 {
            let (found, _) = ask(&web, "/", Some(&format!("ann:{password}"))).await;
            assert_eq!(found, status, "{} bytes", password.len());
        }
    }
    // bcrypt repeats a password until it has enough of it, with a zero byte behind each.
    let web = site.web(&format!("basic_auth_users: {{ann: {}}}", hash("ab"))).unwrap();
    assert_eq!(ask(&web, "/", Some("ann:ab\0ab")).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(ask(&web, "/", Some("ann:ab")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn flood_of_wrong_passwords_does_not_block_a_correct_one() {
    let site = Site::new();
    // A tenth of a second or so each in a debug build.
    let slow = bcrypt::hash_with_salt("pa55", 8, [7; 16]).unwrap();
    let slow = slow.format_for_version(bcrypt::Version::TwoY);
    let web = site.web(&format!("basic_auth_users: {{ann: {slow}, bo: {slow}}}")).unwrap();
    let mut wrong = JoinSet::new();
    for number in 0..400 {
        let web = web.clone();
        wrong.spawn(async move { ask(&web, "/", Some(&format!("ann:{number}"))).await.0 });
    }
    let mut output = BTreeMap::new();
    let mut count = |status: StatusCode| *output.entry(status.as_u16()).or_insert(0) += 1;
    // Once the line is full, most are refused at once.
    while wrong.len() > 10 {
        count(wrong.join_next().await.unwrap().unwrap());
    }
    assert_eq!(ask(&web, "/-/healthy", None).await.0, StatusCode::OK);
    let other = std::net::Ipv4Addr::new(10, 0, 0, 1);
    assert_eq!(ask_from(other, &web, "/", Some("bo:pa55")).await.0, StatusCode::OK);
    assert_eq!(ask(&web, "/", Some("ann:pa55")).await.0, StatusCode::OK);
    assert!(wrong.len() > 2, "it waited for most of those before it");
    while let Some(status) = wrong.join_next().await {
        count(status.unwrap());
    }
    assert!(output[&429] > 300 && output[&401] < 100 && output.len() == 2, "{output:?}");
}

#[tokio::test]
async fn changed_web_file_applies_at_once_unless_it_is_invalid() {
    let site = Site::new();
    let users = |text: String| format!("basic_auth_users: {text}\n");
    let one = users(format!("{{ann: {}}}", hash("one")));
    let web = site.web(&one).unwrap();
    let asked = async |login| ask(&web, "/", Some(login)).await.0 == StatusCode::OK;
    assert!(asked("ann:one").await);

    site.write("web.yml", &users(format!("{{ann: {}, bo: {}}}", hash("two"), hash("bo"))));
    assert!(!asked("ann:one").await && asked("ann:two").await && asked("bo:bo").await);
    assert_eq!(web.problem(), None);

    for (text, says) in [
        ("basic_auth_users: {ann: x}", "expected a bcrypt hash"),
        ("", "the new file has no users; weakening access control needs a restart"),
    ] {
        let path = site.write("web.yml", text);
        assert!(asked("ann:two").await && !asked("ann:one").await, "{text}");
        assert!(web.problem().unwrap().contains(says), "{:?}", web.problem());
        fs::remove_file(path).unwrap();
        assert!(asked("ann:two").await);
        assert!(web.problem().unwrap().contains("cannot read"), "{:?}", web.problem());
    }
    site.write("web.yml", &one);
    assert!(asked("ann:one").await && !asked("bo:bo").await);
    assert_eq!(web.problem(), None);
}

#[tokio::test]
async fn new_certificate_applies_at_once_but_its_removal_is_refused() {
    let site = Site::new();
    let clients = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n";
    let web = site.web(&format!("{TLS}{clients}")).unwrap();
    let config = async || web.active().await.tls().unwrap();
    let ends = web.certificate_ends();
    assert!(ends.own.is_some() && ends.authorities.is_some(), "{ends:?}");
    let first = config().await;
    assert!(Arc::ptr_eq(&first, &config().await), "nothing changed");
    assert!(web.active().await.certifies("recliner.example"));
    assert!(web.active().await.certifies("a.pool.example"));
    for host in ["evil.example", "pool.example", "127.0.0.1", "", "a..b", "Recliner.example:1"] {
        assert!(!web.active().await.certifies(host), "{host}");
    }

    let other = Site::new();
    for name in ["own.pem", "key.pem"] {
        fs::copy(other.dir.path().join(name), site.dir.path().join(name)).unwrap();
    }
    let second = config().await;
    assert!(!Arc::ptr_eq(&first, &second));
    // Half of a pair: the old one stays until the other half is there.
    fs::copy(site.dir.path().join("other.pem"), site.dir.path().join("key.pem")).unwrap();
    assert!(Arc::ptr_eq(&second, &config().await));
    assert!(web.problem().unwrap().contains("do not match"), "{:?}", web.problem());
    fs::copy(other.dir.path().join("key.pem"), site.dir.path().join("key.pem")).unwrap();
    assert!(!Arc::ptr_eq(&second, &config().await));
    assert_eq!(web.problem(), None);

    for (text, says) in [("", "no certificate"), (TLS, "no demand for client certificates")] {
        site.write("web.yml", text);
        assert!(config().await.alpn_protocols == second.alpn_protocols);
        assert!(web.problem().unwrap().contains(says), "{:?}", web.problem());
    }
}

#[tokio::test]
async fn without_a_web_file_anybody_is_served_over_plain_http() {
    let web = WebAccess::open(None).unwrap();
    assert!(!web.has_users() && !web.is_encrypted());
    assert_eq!(web.certificate_ends(), CertificateEnds::default());
    assert_eq!(ask(&web, "/", None).await.0, StatusCode::OK);
    assert!(web.active().await.tls().is_none());
}

#[tokio::test]
async fn order_may_use_a_host_name_from_the_certificate() {
    let site = Site::new();
    let allow = Allow { lifecycle: true, ..Allow::default() };
    let taken = async |web: &WebAccess, host: &str| {
        let request = Request::post("/-/quit").header("host", host);
        let here = Peer::Tcp(std::net::Ipv4Addr::LOCALHOST.into());
        let connection = Connection { peer: here, encrypted: web.is_encrypted() };
        let request = request.extension(web.active().await).extension(connection);
        let request = request.body(Body::empty()).unwrap();
        authorize_order(&allow, Permission::Lifecycle, &request).map(|_| ())
    };
    let (tls, plain) = (site.web(TLS).unwrap(), WebAccess::default());
    for (host, with_tls, without) in [
        ("127.0.0.1:10984", true, true),
        ("recliner.example", true, false),
        ("Recliner.Example:10984", true, false),
        ("b.pool.example:1", true, false),
        ("evil.example:10984", false, false),
        ("recliner.example.evil.example", false, false),
    ] {
        let name = host.split(':').next().unwrap().to_owned();
        let expected = |is_allowed| match is_allowed {
            true => Ok(()),
            false => Err(OrderRefused::UnknownHost(Some(name.clone()))),
        };
        assert_eq!(taken(&tls, host).await, expected(with_tls), "{host}");
        assert_eq!(taken(&plain, host).await, expected(without), "{host}");
    }
}

#[tokio::test(start_paused = true)]
async fn endless_handshake_is_given_up() {
    let site = Site::new();
    let page = Router::new().route("/", get(|| async { "hello" }));
    let mut server = InMemoryServer::start(page, site.web(TLS).unwrap());
    for part in ["", "\u{16}\u{3}\u{1}", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut stream = server.connect();
        stream.write_all(part.as_bytes()).await.unwrap();
        let mut output = Vec::new();
        let read = stream.read_to_end(&mut output);
        let ended = time::timeout(Duration::from_secs(600), read).await;
        ended.expect("the other side closes").unwrap();
        assert!(!output.windows(5).any(|part| part == b"hello"), "{part:?}: {output:?}");
    }
    // One that is under way when everything stops holds nothing up.
    let silent = server.connect();
    server.stop.cancel();
    let ended = time::timeout(Duration::from_secs(5), server.tasks.join_next()).await;
    ended.expect("it stops").expect("there is one").unwrap();
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn open_response_ends_when_its_user_is_removed() {
    use futures::{StreamExt as _, stream};
    let site = Site::new();
    let (ann, bob) = (format!("  ann: {}\n", hash("pa55")), format!("  bob: {}\n", hash("w0rd")));
    let file = |users: &[&str]| format!("basic_auth_users:\n{}", users.concat());
    let web = site.web(&file(&[&ann, &bob])).unwrap();
    let goes_on = || async {
        let first = stream::iter([Ok::<_, std::io::Error>("first")]);
        Body::from_stream(first.chain(stream::pending()))
    };
    let router = Router::new()
        .route("/", get(goes_on))
        .layer(middleware::from_fn_with_state(web.clone(), authenticate));
    let open = async |login: &str| {
        let login = base64::prelude::BASE64_STANDARD.encode(login);
        let request = Request::get("/").header(header::AUTHORIZATION, format!("Basic {login}"));
        let request = request.body(Body::empty()).unwrap();
        let mut body =
            router.clone().oneshot(request).await.unwrap().into_body().into_data_stream();
        assert_eq!(body.next().await.unwrap().unwrap(), "first");
        body
    };
    let (mut anns, mut bobs) = (open("ann:pa55").await, open("bob:w0rd").await);
    let minute = Duration::from_secs(60);
    assert!(time::timeout(minute, anns.next()).await.is_err(), "it goes on");
    site.write("web.yml", &file(&[&bob]));
    assert!(time::timeout(minute, anns.next()).await.expect("it ends").is_none());
    assert!(time::timeout(minute, bobs.next()).await.is_err(), "it goes on");
    let other = format!("  bob: {}\n", hash("other"));
    site.write("web.yml", &file(&[&other]));
    assert!(time::timeout(minute, bobs.next()).await.expect("it ends").is_none());
}
