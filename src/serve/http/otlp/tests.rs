use super::*;
use crate::serve::http::tests::Surface;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Redirect, Response},
    routing::post,
};
use metrics_text::Writer;
use std::{
    io::Read as _,
    sync::{Arc, Mutex},
};
use tokio::{net::TcpListener, task::JoinSet};

/// A receiver on a socket that answers each request with the same.
struct Collector {
    address: String,
    taken: Taken,
    _served: JoinSet<()>,
}

type Taken = Arc<Mutex<Vec<(HeaderMap, Vec<u8>)>>>;

impl Collector {
    async fn start(answer: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/v1/metrics", listener.local_addr().unwrap());
        let taken = Taken::default();
        let take = async move |State(taken): State<Taken>, headers: HeaderMap, body: Bytes| {
            let mut unpacked = Vec::new();
            flate2::read::GzDecoder::new(&*body).read_to_end(&mut unpacked).unwrap();
            taken.lock().unwrap().push((headers, unpacked));
            answer()
        };
        let router = Router::new().route("/v1/metrics", post(take)).with_state(Arc::clone(&taken));
        let mut served = JoinSet::new();
        served.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, taken, _served: served }
    }

    fn taken(&self) -> Vec<(HeaderMap, Vec<u8>)> {
        self.taken.lock().unwrap().clone()
    }
}

fn push_of(surface: &Surface) -> OtlpPush {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    OtlpPush {
        state: surface.state.clone(),
        metrics: OtlpMetrics::register(&Registry::new()).unwrap(),
        settings: watch::channel(OtlpSettings::default()).1,
        instance: "here:10984".to_owned(),
        started: Moment::from_unix(1_000),
    }
}

fn client() -> Client {
    fetch::client(TIMEOUT).unwrap()
}

async fn push_to(collector: &Collector) -> Result<(), String> {
    push_of(&Surface::new()).push(&client(), &OtlpSettings::default(), &collector.address).await
}

fn taken_all() -> Response {
    StatusCode::OK.into_response()
}

#[tokio::test]
async fn every_series_of_a_scrape_is_pushed_over_otlp() {
    let surface = Surface::new();
    let collector = Collector::start(taken_all).await;
    let settings = OtlpSettings { cluster: Some("prod".to_owned()), ..OtlpSettings::default() };
    let push = push_of(&surface);
    push.push(&client(), &settings, &collector.address).await.unwrap();
    let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
    Scrape::of(&surface.state).write(&mut writer);
    let mut encoder = OtlpEncoder::new(push.origin(&settings), MAX_POINTS);
    let mut expected = encoder.push(UP);
    expected.extend(encoder.push(std::str::from_utf8(&writer.finish()).unwrap()));
    expected.extend(encoder.take());
    let pushed: Vec<Vec<u8>> = collector.taken().into_iter().map(|(_, body)| body).collect();
    assert_eq!(pushed, expected);
    let whole = String::from_utf8_lossy(&pushed.concat()).into_owned();
    for part in ["here:10984", "prod", "recliner_mode", "up"] {
        assert!(whole.contains(part), "{part}");
    }
}

#[tokio::test]
async fn push_sends_the_authorization_from_its_file() {
    let collector = Collector::start(taken_all).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("authorization");
    std::fs::write(&path, "Bearer abc\n").unwrap();
    let settings =
        OtlpSettings { authorization_file: Some(path.clone()), ..OtlpSettings::default() };
    let push = push_of(&Surface::new());
    push.push(&client(), &settings, &collector.address).await.unwrap();
    assert_eq!(collector.taken()[0].0[AUTHORIZATION], "Bearer abc");
    std::fs::write(&path, "two\nlines").unwrap();
    let why = push.push(&client(), &settings, &collector.address).await.unwrap_err();
    assert!(why.contains("is not one line of text") && !why.contains("lines"), "{why}");
}

#[tokio::test]
async fn failed_push_names_the_receivers_answer() {
    let refusing = || (StatusCode::TOO_MANY_REQUESTS, "slower\n please").into_response();
    let rejecting = || {
        // ExportMetricsServiceResponse { partial_success: { rejected_data_points: 3, error_message } }
        b"\x0a\x10\x08\x03\x12\x0cout of order".into_response()
    };
    let elsewhere = || Redirect::temporary("/elsewhere").into_response();
    for (collector, says) in [
        (Collector::start(refusing).await, "it answered 429 Too Many Requests: slower  please"),
        (Collector::start(rejecting).await, "it rejected 3 values: out of order"),
        (Collector::start(elsewhere).await, "it answered 307 Temporary Redirect: "),
    ] {
        assert_eq!(push_to(&collector).await.unwrap_err(), says);
        // The rest is not sent to a receiver that did not take the beginning.
        assert_eq!(collector.taken().len(), 1);
    }
}

#[tokio::test]
async fn settings_change_redirects_the_push_to_another_receiver() {
    let (first, second) = (Collector::start(taken_all).await, Collector::start(taken_all).await);
    let (settings, receiver) = watch::channel(OtlpSettings::default());
    let push = OtlpPush { settings: receiver, ..push_of(&Surface::new()) };
    let metrics = push.metrics.clone();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(push.run(stop.clone()));
    for collector in [&first, &second] {
        let url = Some(collector.address.parse().unwrap());
        settings.send_replace(OtlpSettings { url, ..OtlpSettings::default() });
        let arrived = async {
            while collector.taken().is_empty() {
                time::sleep(Duration::from_millis(1)).await;
            }
        };
        time::timeout(Duration::from_secs(20), arrived).await.unwrap();
    }
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(metrics.failures.with_label_values::<&str>(&[]).get(), 0);
}
