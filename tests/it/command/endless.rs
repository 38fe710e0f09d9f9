//! Services whose responses never end.

use super::recliner;
use axum::{
    Router,
    body::{Body, Bytes},
    response::Response,
};
use futures::stream;
use tokio::{net::TcpListener, task::JoinSet};

/// A server that answers everything with `times` pieces of a megabyte, filled by repeating these
/// bytes.
async fn repeating(piece: &'static str, times: usize) -> (String, JoinSet<()>) {
    let whole = Bytes::from(piece.repeat((1 << 20) / piece.len()));
    let answer = move || {
        let whole = whole.clone();
        async move {
            let pieces = stream::repeat(Ok::<_, String>(whole));
            Response::new(Body::from_stream(futures::StreamExt::take(pieces, times)))
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let mut servers = JoinSet::new();
    let router = Router::new().fallback(answer);
    servers.spawn(async move { axum::serve(listener, router).await.unwrap_or_default() });
    (url, servers)
}

#[tokio::test]
async fn size_of_service_responses_is_limited() {
    for (piece, times) in [("[[],", usize::MAX), ("[[],", 60)] {
        let (url, _server) = repeating(piece, times).await;
        for command in ["plan", "history", "events"] {
            let ran = recliner(&[command, "--recliner.url", &url, "--format", "json"], &[]).await;
            assert_eq!(ran.code, 1, "{command}: {ran:?}");
            let expected = "its response is larger than any that recliner sends; is it a recliner?";
            assert!(ran.err.contains(expected), "{command}: {ran:?}");
        }
    }
}
