//! `/metrics`: what Prometheus scrapes, read from what other tasks published.

mod builds;
mod disks;
mod feeds;
mod files;
mod jobs;
mod journal;
mod plan;
mod present;
mod pressures;
mod takeovers;
mod top;

use super::{About, ConfigStatus, State, guard::Turns};
use crate::{
    changes,
    couch::{self, CertificateEnds},
    exposition::{self, Coding, Family, Format, Writer, accepts_gzip, negotiate},
    feed::Feed,
    follower,
    journal::Journal,
    plan::Plan,
    scanner,
    snapshot::{Node, NodeIx},
    takeover::Takeovers,
    warmer::Builds,
};
use axum::{
    Extension, extract,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use std::sync::Arc;

/// Answers a scrape. Away from the runtime's threads: a hundred thousand series take some
/// milliseconds, and nothing else may wait for them.
pub(super) async fn metrics(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    headers: HeaderMap,
) -> Response {
    let Some(turn) = turns.now() else {
        let why = "too many scrapes at a time\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], why)
            .into_response();
    };
    let format = negotiate(list(&headers, header::ACCEPT).as_deref());
    let gzip = accepts_gzip(list(&headers, header::ACCEPT_ENCODING).as_deref());
    let coding = if gzip { Coding::Gzip } else { Coding::Identity };
    let rendered = tokio::task::spawn_blocking(move || {
        // The turn ends with the work, not with the client's patience.
        let _turn = turn;
        Scrape::of(&state).render(format, coding)
    });
    let body = match rendered.await {
        Ok(body) => body,
        Err(failed) => return super::lost(failed),
    };
    let vary = (header::VARY, "accept, accept-encoding");
    let kind = (header::CONTENT_TYPE, format.content_type());
    if gzip {
        ([kind, vary, (header::CONTENT_ENCODING, "gzip")], body).into_response()
    } else {
        ([kind, vary], body).into_response()
    }
}

/// A header that is a list: several lines of it are one list. What is no text counts as
/// not sent.
fn list(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let lines: Vec<&str> =
        headers.get_all(name).iter().filter_map(|line| line.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

/// Families with the same labels, each with where its value comes from.
type Rows<S, V, const LABELS: usize, const ROWS: usize> =
    [(&'static Family<LABELS>, fn(S) -> V); ROWS];

/// Every node whose targets this process serves, with its place; the pseudo node included.
fn places(plan: &Plan) -> impl Iterator<Item = (NodeIx, &Node)> {
    let nodes = plan.snapshot.nodes().iter().enumerate();
    nodes
        .filter_map(|(at, node)| Some((NodeIx::from_usize(at)?, &**node)))
        .filter(|(at, node)| node.served && (*at == NodeIx::CLUSTER || node.member))
}

/// What was published last, each taken once for a whole scrape: its parts see this and not the
/// state, so that none of them shows another plan than the one before it.
pub(super) struct Scrape {
    plan: Arc<Plan>,
    status: Arc<scanner::Status>,
    config: Arc<ConfigStatus>,
    about: Arc<About>,
    couchdb: Arc<[couch::Entry]>,
    couchdb_certificates: CertificateEnds,
    web_certificates: CertificateEnds,
    counts: Arc<follower::Counts>,
    takeovers: Arc<Takeovers>,
    builds: Arc<Builds>,
    changes: Arc<changes::Status>,
    feed: Option<Feed>,
    journal: Option<Journal>,
    registry: prometheus::Registry,
}

impl Scrape {
    pub(super) fn of(state: &State) -> Self {
        Self {
            plan: Arc::clone(&state.plan.borrow()),
            status: Arc::clone(&state.status.borrow()),
            config: Arc::clone(&state.config.borrow()),
            about: Arc::clone(&state.about),
            couchdb: Arc::clone(&state.couchdb.borrow()),
            couchdb_certificates: *state.certificates.borrow(),
            web_certificates: state.web.certificate_ends(),
            counts: Arc::clone(&state.counts.borrow()),
            takeovers: Arc::clone(&state.takeovers.borrow()),
            builds: Arc::clone(&state.builds.borrow()),
            changes: Arc::clone(&state.changes.borrow()),
            feed: state.feed.clone(),
            journal: state.journal.clone(),
            registry: state.registry.clone(),
        }
    }

    /// The whole exposition in one format.
    pub(super) fn render(&self, format: Format, coding: Coding) -> Vec<u8> {
        let mut writer = Writer::new(format, coding);
        let plan = &*self.plan;
        let now = &plan.conditions;
        present::write(&mut writer, self);
        pressures::write(&mut writer, &now.pressures, &plan.snapshot);
        takeovers::write(&mut writer, &self.takeovers);
        builds::write(&mut writer, &self.builds);
        disks::write(&mut writer, &now.disks, &now.jobs, &plan.snapshot);
        files::write(&mut writer, plan);
        feeds::write(&mut writer, &self.changes, self.feed.as_ref());
        if let Some(journal) = &self.journal {
            journal::write(&mut writer, journal);
        }
        jobs::write(&mut writer, plan, &self.counts);
        exposition::write_gathered(&mut writer, &self.registry.gather());
        writer.finish()
    }
}
