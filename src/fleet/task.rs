//! The task that owns what is known of the members: asks each once in every interval, and publishes the answers.

use super::{
    Fleet, Member, MemberAnswer, MemberState, Silence,
    discovery::{Discovery, Found},
    schedule::Schedule,
};
use crate::{
    model::settings::fleet::FleetSettings,
    sources::recliner::{Login, NoReply, ReclinerClient, login_in_environment},
    tasks::unwrap_join,
};
use couchdb_client::Address;
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    task,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// How long a member may take for a complete answer, and how large it may be.
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BYTES: usize = 4 << 20;

/// How often the files that list members are read.
const BETWEEN_READS: Duration = Duration::from_secs(5);

/// The largest file with a password.
const MAX_PASSWORD_BYTES: u64 = 4_096;

/// Asks a member.
trait AskMember: Send + Sync {
    fn ask(&self, address: Address) -> BoxFuture<'static, Result<MemberAnswer, NoReply>>;
}

impl AskMember for ReclinerClient {
    fn ask(&self, address: Address) -> BoxFuture<'static, Result<MemberAnswer, NoReply>> {
        let client = self.clone();
        Box::pin(async move {
            let request = client.get(&address, "status");
            let reply = client.answer::<MemberAnswer>(request, MAX_BYTES).await?;
            Ok(reply.data.checked())
        })
    }
}

/// The client for all members, or why there is none.
type Client = Result<Arc<dyn AskMember>, String>;

fn client(settings: &FleetSettings) -> Client {
    let login = login(settings)?;
    let client = ReclinerClient::with_tls(TIMEOUT, login, &settings.tls)?;
    Ok(Arc::new(client))
}

fn login(settings: &FleetSettings) -> Result<Option<Login>, String> {
    let (Some(user), Some(path)) = (&settings.username, &settings.password_file) else {
        return Ok(login_in_environment());
    };
    let unusable = |why: &dyn std::fmt::Display| {
        format!("fleet.password_file {} cannot be read: {why}", path.display())
    };
    let bytes = named_file::read_at_most(path, MAX_PASSWORD_BYTES).map_err(|why| unusable(&why))?;
    let text = String::from_utf8(bytes).map_err(|_| unusable(&"it is not UTF-8 text"))?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(unusable(&"it is empty"));
    }
    Ok(Some((user.clone(), password.into())))
}

/// The members and what is known of them.
struct Members {
    client: Client,
    clock: Clock,
    known: BTreeMap<Address, Arc<Member>>,
    /// When members that never answered were first asked.
    first_asked: BTreeMap<Address, Moment>,
    /// When each last answered.
    last_answer: BTreeMap<Address, Moment>,
    schedule: Schedule,
    requests: FuturesUnordered<BoxFuture<'static, (Address, Result<MemberAnswer, NoReply>)>>,
}

impl Members {
    fn new(client: Client, interval: Duration, clock: Clock) -> Self {
        Self {
            client,
            clock,
            known: BTreeMap::new(),
            first_asked: BTreeMap::new(),
            last_answer: BTreeMap::new(),
            schedule: Schedule::new(interval, Instant::now()),
            requests: FuturesUnordered::new(),
        }
    }

    fn set(&mut self, found: &Found, interval: Duration) {
        let addresses: BTreeSet<&Address> = found.members.keys().collect();
        self.schedule.set(&addresses, interval, Instant::now());
        self.first_asked.retain(|address, _| addresses.contains(address));
        self.last_answer.retain(|address, _| addresses.contains(address));
        let member = |(address, name): (&Address, &Option<String>)| {
            let known = self.known.get(address);
            let state = known.map_or(MemberState::Unasked, |known| known.state.clone());
            (
                address.clone(),
                Arc::new(Member { address: address.clone(), name: name.clone(), state }),
            )
        };
        self.known = found.members.iter().map(member).collect();
    }

    /// Asks all members that are due.
    fn ask_due(&mut self) {
        while let Some(address) = self.schedule.take(Instant::now()) {
            self.first_asked.entry(address.clone()).or_insert_with(|| self.clock.now());
            let asked = match &self.client {
                Ok(client) => client.ask(address.clone()),
                Err(why) => {
                    let why = NoReply::Other(why.clone());
                    Box::pin(async move { Err(why) })
                }
            };
            self.requests.push(Box::pin(async move { (address, asked.await) }));
        }
    }

    fn record(&mut self, address: &Address, answered: Result<MemberAnswer, NoReply>) {
        let now = self.clock.now();
        if !self.schedule.record(address, answered.is_ok(), Instant::now()) {
            return;
        }
        let state = match answered {
            Ok(answer) => {
                self.last_answer.insert(address.clone(), now);
                MemberState::Answered(Arc::new(answer))
            }
            Err(why) => {
                let last = self.last_answer.get(address);
                MemberState::Silent(Silence {
                    since: *last.or_else(|| self.first_asked.get(address)).unwrap_or(&now),
                    has_answered: last.is_some(),
                    is_refused: why == NoReply::Login,
                    why: why.to_string(),
                })
            }
        };
        if let Some(member) = self.known.get_mut(address) {
            *member = Arc::new(Member { state, ..Member::clone(member) });
        }
    }

    fn fleet(&self, problems: &[String], is_configured: bool) -> Arc<Fleet> {
        let members = self.known.values().cloned().collect();
        Arc::new(Fleet { is_configured, members, problems: problems.to_vec() })
    }
}

/// Asks each member once.
pub async fn ask_once(settings: &FleetSettings, clock: Clock) -> Fleet {
    let found = Discovery::default().read(settings);
    let mut members = Members::new(client(settings), settings.interval, clock);
    members.set(&found, settings.interval);
    let mut left = found.members.len();
    members.ask_due();
    while let Some((address, answered)) = members.requests.next().await {
        members.record(&address, answered);
        left -= 1;
        if left == 0 {
            break;
        }
        members.ask_due();
    }
    Arc::unwrap_or_clone(members.fleet(&found.problems, settings.is_configured()))
}

/// Follows all members.
#[derive(Debug)]
pub struct FleetTask {
    settings: watch::Receiver<FleetSettings>,
    published: watch::Sender<Arc<Fleet>>,
    clock: Clock,
}

impl FleetTask {
    /// The task, and what it publishes.
    pub fn new(
        settings: watch::Receiver<FleetSettings>,
        clock: Clock,
    ) -> (Self, watch::Receiver<Arc<Fleet>>) {
        let (published, fleet) = watch::channel(Arc::default());
        (Self { settings, published, clock }, fleet)
    }

    /// Asks members until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow(client)).await;
    }

    async fn follow(mut self, client: fn(&FleetSettings) -> Client) {
        let mut settings = self.settings.borrow_and_update().clone();
        let mut members = Members::new(client(&settings), settings.interval, self.clock);
        let (mut discovery, mut found) = (Discovery::default(), Found::default());
        let mut read_at = Instant::now();
        loop {
            members.ask_due();
            let next = members.schedule.next();
            let due = async {
                match next {
                    Some(next) => time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.settings.changed() => {
                    // The service ends together with the sender.
                    if changed.is_err() { return std::future::pending().await; }
                    settings = self.settings.borrow_and_update().clone();
                    members.client = client(&settings);
                    members.set(&found, settings.interval);
                    read_at = Instant::now();
                }
                () = time::sleep_until(read_at), if settings.is_configured() || !found.members.is_empty() => {
                    let (mut reader, wanted) = (discovery.clone(), settings.clone());
                    let read = task::spawn_blocking(move || (reader.read(&wanted), reader)).await;
                    let Some((now_found, reader)) = unwrap_join(read) else { return };
                    discovery = reader;
                    read_at = Instant::now() + BETWEEN_READS;
                    if now_found == found && self.published.borrow().is_configured == settings.is_configured() {
                        continue;
                    }
                    for why in now_found.problems.iter().filter(|why| !found.problems.contains(why)) {
                        tracing::warn!(why, "cannot read which recliners the fleet has");
                    }
                    found = now_found;
                    members.set(&found, settings.interval);
                }
                Some((address, answered)) = members.requests.next() => members.record(&address, answered),
                () = due => continue,
            }
            self.published.send_replace(members.fleet(&found.problems, settings.is_configured()));
        }
    }
}

#[cfg(test)]
mod tests;
