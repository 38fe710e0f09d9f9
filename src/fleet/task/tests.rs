use super::*;
use axum::{
    Router,
    http::{HeaderMap, StatusCode},
    response::Redirect,
    routing::get,
};
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::sync::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};
use wall_clock::Moment;

const INTERVAL: Duration = Duration::from_secs(30);

fn answer(version: &str) -> MemberAnswer {
    serde_json::from_value(json!({ "version": version, "mode": "advise" })).unwrap()
}

/// Members by host: `hangs` does not answer in time, `slow` only just, `off` only at first and again after a minute.
#[derive(Debug)]
struct Fake {
    begun: Instant,
    asked: Mutex<BTreeMap<String, Vec<Duration>>>,
}

impl AskMember for Arc<Fake> {
    fn ask(&self, member: &Member) -> BoxFuture<'static, Result<MemberAnswer, NoReply>> {
        let (kind, at) = (member.address.host().to_owned(), self.begun.elapsed());
        self.asked.lock().unwrap().entry(kind.clone()).or_default().push(at);
        Box::pin(async move {
            let silent = || NoReply::Other("no answer".to_owned());
            match kind.split('-').next().unwrap() {
                "hangs" => {
                    time::sleep(TIMEOUT).await;
                    Err(silent())
                }
                "slow" => {
                    time::sleep(TIMEOUT - Duration::from_millis(1)).await;
                    Ok(answer("1"))
                }
                "off" if (1..60).contains(&at.as_secs()) => Err(silent()),
                _ => Ok(answer("1")),
            }
        })
    }

    fn fetch(&self, _: ListUrl) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        Box::pin(async {
            time::sleep(Duration::from_secs(100_000)).await;
            Ok(Vec::new())
        })
    }
}

fn settings(hosts: impl IntoIterator<Item = String>) -> FleetSettings {
    let url = |host: String| format!("http://{host}").parse().unwrap();
    let urls = hosts.into_iter().map(url).collect();
    FleetSettings { urls, interval: INTERVAL, ..FleetSettings::default() }
}

/// A task over a fake with these members, which runs as long as the set.
fn follow(
    settings: FleetSettings,
) -> (Arc<Fake>, watch::Sender<FleetSettings>, watch::Receiver<Arc<Fleet>>, JoinSet<()>) {
    let fake = Arc::new(Fake { begun: Instant::now(), asked: Mutex::default() });
    let (sender, receiver) = watch::channel(settings);
    let (task, fleet) = FleetTask::new(receiver, Clock::anchored(Moment::from_unix(1_795_222_440)));
    let (mut tasks, asks) = (JoinSet::new(), Arc::clone(&fake));
    tasks.spawn(
        task.follow(move |_: &FleetSettings| Ok(Arc::new(Arc::clone(&asks)) as Arc<dyn AskMember>)),
    );
    (fake, sender, fleet, tasks)
}

#[tokio::test(start_paused = true)]
async fn members_that_hang_or_are_slow_delay_nobody() {
    let hosts = (0..500).map(|at| match at {
        0..100 => format!("good-{at}"),
        100..400 => format!("hangs-{at}"),
        _ => format!("slow-{at}"),
    });
    let (fake, _settings, fleet, _tasks) = follow(settings(hosts));
    time::sleep(10 * INTERVAL).await;
    let asked = fake.asked.lock().unwrap();
    assert_eq!(asked.len(), 500);
    for (host, times) in asked.iter().filter(|(host, _)| !host.starts_with("hangs")) {
        // From the second round on, exactly once in each interval.
        let waits = times.windows(2).skip(1).map(|pair| pair[1] - pair[0]);
        let late = waits.filter(|wait| wait.abs_diff(INTERVAL) > Duration::from_millis(10));
        assert_eq!(late.count(), 0, "{host}: {times:?}");
        assert!(times.len() >= 9, "{host}: {times:?}");
    }
    let fleet = fleet.borrow().clone();
    assert_eq!(fleet.members.iter().filter(|it| it.answer().is_some()).count(), 200);
}

#[tokio::test(start_paused = true)]
async fn silent_member_is_dated_by_its_last_answer_until_it_is_back() {
    let hosts = ["off", "hangs"].map(str::to_owned);
    let (_fake, _settings, fleet, _tasks) = follow(settings(hosts));
    let state = |host: &str| {
        let fleet = fleet.borrow();
        fleet.members.iter().find(|it| it.address.host() == host).unwrap().state.clone()
    };
    let begun = Moment::from_unix(1_795_222_440);
    time::sleep(Duration::from_millis(500)).await;
    assert!(matches!(state("off"), MemberState::Answered(_)));
    assert_eq!(state("hangs"), MemberState::Unasked);
    time::sleep(Duration::from_secs(50)).await;
    let MemberState::Silent(silence) = state("off") else { panic!("{:?}", state("off")) };
    assert_eq!(silence.since.unix(), begun.unix());
    let MemberState::Silent(silence) = state("hangs") else { panic!("{:?}", state("hangs")) };
    assert_eq!(silence.since.unix(), begun.unix());
    time::sleep(Duration::from_secs(60)).await;
    assert!(matches!(state("off"), MemberState::Answered(_)));
}

#[tokio::test(start_paused = true)]
async fn hanging_member_list_delays_neither_members_nor_reloads() {
    let hanging = FleetSettings {
        http_sd: vec![ListUrl::read("https://sd").unwrap()],
        ..settings(["good".to_owned()])
    };
    let (fake, sender, fleet, _tasks) = follow(settings(["good".to_owned()]));
    time::sleep(Duration::from_secs(1)).await;
    sender.send_replace(hanging);
    time::sleep(4 * INTERVAL).await;
    assert!(fake.asked.lock().unwrap()["good"].len() >= 4);
    // Once a fleet is no longer configured and its lists are read, it has no members.
    sender.send_replace(FleetSettings::default());
    time::sleep(Duration::from_secs(1)).await;
    assert!(!fleet.borrow().is_configured);
}

async fn serve(router: Router, servers: &mut JoinSet<()>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    servers.spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

fn says(body: Value) -> Router {
    let body = body.to_string();
    Router::new().route("/api/v1/status", get(async move || body.clone()))
}

/// The description of a member after a request.
async fn asked(address: &Address) -> Result<String, String> {
    let settings = FleetSettings { urls: vec![address.clone()], ..FleetSettings::default() };
    let fleet = ask_once(&settings, Clock::System).await;
    match &fleet.members[0].state {
        MemberState::Answered(answer) => Ok(answer.version.clone()),
        MemberState::Silent(silence) => Err(silence.why.clone()),
        MemberState::Unasked => panic!("it was not asked"),
    }
}

#[tokio::test]
async fn malformed_answers_are_refused() {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let mut servers = JoinSet::new();
    let other = json!({"status": "success", "data": {"version": "9.9", "mode": "yes", "more": {}}});
    let long =
        json!({"status": "success", "data": {"version": "1", "more": "x".repeat(MAX_BYTES)}});
    for (router, expected) in [
        (says(other), Ok("9.9")),
        (says(long), Err("larger than")),
        (says(json!({"status": "success", "data": {"version": 7}})), Err("not as a recliner does")),
        (says(json!("<html>")), Err("not as a recliner does")),
        (Router::new(), Err("404")),
        (
            says(json!({"status": "error", "errorType": "x", "error": "it is stopping"})),
            Err("it is stopping"),
        ),
    ] {
        let address = serve(router, &mut servers).await;
        match (asked(&address).await, expected) {
            (Ok(version), Ok(expected)) => assert_eq!(version, expected),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (found, _) => panic!("{found:?} instead of {expected:?}"),
        }
    }
}

#[tokio::test]
async fn login_is_never_sent_to_the_target_of_a_redirect() {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let mut servers = JoinSet::new();
    let seen: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let records = Arc::clone(&seen);
    let target = Router::new().fallback(async move |headers: HeaderMap| {
        records.lock().unwrap().push(headers);
        r#"{"status":"success","data":{"version":"1"}}"#
    });
    let target = serve(target, &mut servers).await;
    let to = format!("{target}/api/v1/status");
    let redirects =
        Router::new().route("/api/v1/status", get(async move || Redirect::temporary(&to)));
    let redirects = serve(redirects, &mut servers).await;
    let password = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password.path(), "secret\n").unwrap();
    let settings = FleetSettings {
        urls: vec![redirects.clone()],
        username: Some("ann".to_owned()),
        password_file: Some(password.path().to_owned()),
        ..FleetSettings::default()
    };
    let fleet = ask_once(&settings, Clock::System).await;
    let MemberState::Silent(silence) = &fleet.members[0].state else { panic!("{fleet:?}") };
    assert!(silence.why.contains("redirect"), "{}", silence.why);
    assert_eq!(seen.lock().unwrap().len(), 0);
    // If the target is configured, it gets the login; if only a list over http names it, it does not.
    let direct = FleetSettings { urls: vec![target.clone()], ..settings.clone() };
    assert!(ask_once(&direct, Clock::System).await.members[0].answer().is_some());
    assert!(seen.lock().unwrap()[0].contains_key("authorization"));
    let list = json!([{ "targets": [target.as_str()] }]).to_string();
    let list = serve(Router::new().fallback(async move || list.clone()), &mut servers).await;
    let list = ListUrl::read(list.as_str()).unwrap();
    let listed = FleetSettings { urls: Vec::new(), http_sd: vec![list], ..settings };
    assert!(ask_once(&listed, Clock::System).await.members[0].answer().is_some());
    assert!(!seen.lock().unwrap()[1].contains_key("authorization"));
}

#[tokio::test]
async fn refused_login_and_unreadable_password_name_the_setting() {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let mut servers = JoinSet::new();
    let refuses = Router::new().fallback(async || StatusCode::UNAUTHORIZED);
    let address = serve(refuses, &mut servers).await;
    let settings = FleetSettings { urls: vec![address], ..FleetSettings::default() };
    let fleet = ask_once(&settings, Clock::System).await;
    let MemberState::Silent(silence) = &fleet.members[0].state else { panic!("{fleet:?}") };
    assert!(silence.is_refused && silence.why.contains("fleet.username"), "{}", silence.why);
    let missing = FleetSettings {
        username: Some("ann".to_owned()),
        password_file: Some("/nowhere/password".into()),
        ..settings
    };
    let fleet = ask_once(&missing, Clock::System).await;
    let MemberState::Silent(silence) = &fleet.members[0].state else { panic!("{fleet:?}") };
    assert!(!silence.is_refused && silence.why.contains("/nowhere/password"), "{}", silence.why);
}

#[tokio::test]
async fn member_that_restarts_is_back_at_its_next_turn() {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let mut servers = JoinSet::new();
    let body = |version: &str| json!({"status": "success", "data": {"version": version}});
    let address = serve(says(body("1")), &mut servers).await;
    let settings = FleetSettings {
        urls: vec![address.clone()],
        interval: Duration::from_millis(50),
        ..FleetSettings::default()
    };
    let (_sender, receiver) = watch::channel(settings);
    let (task, mut fleet) = FleetTask::new(receiver, Clock::System);
    let mut tasks = JoinSet::new();
    tasks.spawn(task.run(CancellationToken::new()));
    let version = |fleet: &Arc<Fleet>| Some(fleet.members.first()?.answer()?.version.clone());
    let mut until = async |wanted: Option<&str>| {
        let found = fleet.wait_for(|it| !it.members.is_empty() && version(it).as_deref() == wanted);
        time::timeout(Duration::from_secs(20), found).await.unwrap().unwrap();
    };
    until(Some("1")).await;
    servers.shutdown().await;
    until(None).await;
    let listener = TcpListener::bind(address.authority()).await.unwrap();
    let again = says(body("2"));
    servers.spawn(async move { axum::serve(listener, again).await.unwrap() });
    until(Some("2")).await;
}

/// Serves a body over TLS; returns its URL and the authority's certificate.
async fn serve_over_tls(body: String, servers: &mut JoinSet<()>) -> (String, String) {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![own.der().clone()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    servers.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            let _asked = stream.read(&mut [0; 4_096]).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let _sent = stream.write_all((head + &body).as_bytes()).await;
            let _closed = stream.shutdown().await;
        }
    });
    (format!("https://localhost:{port}/list?token=q9zsecret"), issuer.pem())
}

#[tokio::test]
async fn login_is_sent_to_members_from_a_list_over_verified_tls() {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let mut servers = JoinSet::new();
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let records = Arc::clone(&seen);
    let member = Router::new().fallback(async move |headers: HeaderMap| {
        records.lock().unwrap().push(headers.contains_key("authorization"));
        r#"{"status":"success","data":{"version":"1"}}"#
    });
    let member = serve(member, &mut servers).await;
    let list = json!([{ "targets": [member.as_str()] }]).to_string();
    let (url, authority) = serve_over_tls(list, &mut servers).await;
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let settings = FleetSettings {
        http_sd: vec![ListUrl::read(&url).unwrap()],
        username: Some("ann".to_owned()),
        password_file: Some(file("password", "secret\n")),
        ..FleetSettings::default()
    };
    // An unknown authority.
    let fleet = ask_once(&settings, Clock::System).await;
    assert_eq!((fleet.members.len(), fleet.problems.len()), (0, 1), "{fleet:?}");
    assert!(!fleet.problems[0].contains("q9zsecret"), "{fleet:?}");
    let ca_file = Some(file("ca.pem", &authority));
    let tls = couchdb_client::Tls { ca_file, ..couchdb_client::Tls::default() };
    let fleet = ask_once(&FleetSettings { tls, ..settings }, Clock::System).await;
    assert!(fleet.members[0].answer().is_some(), "{fleet:?}");
    assert_eq!(*seen.lock().unwrap(), [true]);
}
