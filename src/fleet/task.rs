//! The task that owns the state of the members: it asks each once per interval, and publishes the answers.

use super::{
    Fleet, Member, MemberAnswer, MemberState, Silence,
    discovery::{Discovery, Fetched, Found, Listed, MAX_LIST_BYTES},
    schedule::Schedule,
};
use crate::{
    model::settings::fleet::{FleetSettings, ListUrl},
    sources::recliner::{NoReply, ReclinerClient},
    tasks::unwrap_join,
};
use couchdb_client::Address;
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Fuse, FusedFuture as _, OptionFuture, join_all, ready},
    stream::FuturesUnordered,
};
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
const MAX_BYTES: usize = 1 << 20;

/// Interval between two reads of the files that list members.
const BETWEEN_READS: Duration = Duration::from_secs(5);

/// Asks members, and fetches lists of them.
trait AskMember: Send + Sync {
    fn ask(&self, member: &Member) -> BoxFuture<'static, Result<MemberAnswer, NoReply>>;

    fn fetch(&self, list: ListUrl) -> BoxFuture<'static, Result<Vec<u8>, String>>;
}

impl AskMember for ReclinerClient {
    fn ask(&self, member: &Member) -> BoxFuture<'static, Result<MemberAnswer, NoReply>> {
        let client = if member.has_login { self.clone() } else { self.without_login() };
        let request = client.get(&member.address, "status");
        Box::pin(async move {
            let reply = client.answer::<MemberAnswer>(request, MAX_BYTES).await?;
            Ok(reply.data.checked())
        })
    }

    fn fetch(&self, list: ListUrl) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        let client = self.clone();
        let most = usize::try_from(MAX_LIST_BYTES).unwrap_or(usize::MAX);
        Box::pin(async move { client.document(&list, most).await })
    }
}

type Client = Result<Arc<dyn AskMember>, String>;

fn client(settings: &FleetSettings) -> Client {
    Ok(Arc::new(ReclinerClient::of_fleet(settings, TIMEOUT)?))
}

/// The members and their state.
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
        let member = |(address, listed): (&Address, &Listed)| {
            let known = self.known.get(address);
            let state = known.map_or(MemberState::Unasked, |known| known.state.clone());
            let Listed { name, has_login } = listed.clone();
            let member = Member { address: address.clone(), name, has_login, state };
            (address.clone(), Arc::new(member))
        };
        self.known = found.members.iter().map(member).collect();
    }

    /// Asks all members that are due.
    fn ask_due(&mut self) {
        while let Some(address) = self.schedule.take(Instant::now()) {
            self.first_asked.entry(address.clone()).or_insert_with(|| self.clock.now());
            // The schedule and `known` contain the same members.
            let Some(member) = self.known.get(&address) else { continue };
            let asked = match &self.client {
                Ok(client) => client.ask(member),
                Err(why) => Box::pin(ready(Err(NoReply::Other(why.clone())))),
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
                    is_refused: why == NoReply::Login,
                    why: why.into_fleet_reason(),
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

/// Fetches the lists that are served over HTTP.
async fn fetch(client: Client, settings: &FleetSettings) -> Fetched {
    let fetched = settings.http_sd.iter().map(|url| async {
        let list = match &client {
            Ok(client) => client.fetch(url.clone()).await,
            Err(why) => Err(why.clone()),
        };
        (url.clone(), list)
    });
    join_all(fetched).await.into_iter().collect()
}

/// Asks each member once.
pub async fn ask_once(settings: &FleetSettings, clock: Clock) -> Fleet {
    let client = client(settings);
    let fetched = fetch(client.clone(), settings).await;
    let found = Discovery::default().read(settings, &fetched);
    let mut members = Members::new(client, settings.interval, clock);
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

#[derive(Clone, Default)]
struct Lists {
    discovery: Discovery,
    fetched: Fetched,
    fetched_at: Option<Instant>,
    found: Found,
}

impl Lists {
    /// Reads all lists: files every time, and lists over HTTP once per interval.
    async fn read(mut self, client: Client, settings: FleetSettings) -> Option<Self> {
        let is_due = self.fetched_at.is_none_or(|at| at.elapsed() >= settings.interval);
        if is_due || settings.http_sd.iter().any(|url| !self.fetched.contains_key(url)) {
            self.fetched = fetch(client, &settings).await;
            self.fetched_at = Some(Instant::now());
        }
        let read = task::spawn_blocking(move || {
            self.found = self.discovery.read(&settings, &self.fetched);
            self
        });
        unwrap_join(read.await)
    }
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

    async fn follow(mut self, client: impl Fn(&FleetSettings) -> Client) {
        let mut settings = self.settings.borrow_and_update().clone();
        let mut members = Members::new(client(&settings), settings.interval, self.clock);
        let mut lists = Lists::default();
        let (mut read_at, mut reading) = (Instant::now(), Fuse::terminated());
        loop {
            members.ask_due();
            let due = OptionFuture::from(members.schedule.next().map(time::sleep_until));
            let is_used = settings.is_configured() || !lists.found.members.is_empty();
            tokio::select! {
                changed = self.settings.changed() => {
                    // The service ends together with the sender.
                    if changed.is_err() { return std::future::pending().await; }
                    settings = self.settings.borrow_and_update().clone();
                    members.client = client(&settings);
                    members.set(&lists.found, settings.interval);
                    read_at = Instant::now();
                }
                () = time::sleep_until(read_at), if reading.is_terminated() && is_used => {
                    // A file with a password or a certificate may appear late.
                    if members.client.is_err() {
                        members.client = client(&settings);
                    }
                    reading = lists.clone().read(members.client.clone(), settings.clone()).boxed().fuse();
                    read_at = Instant::now() + BETWEEN_READS;
                    continue;
                }
                read = &mut reading => {
                    let Some(read) = read else { return };
                    let before = std::mem::replace(&mut lists, read).found;
                    for why in lists.found.problems.iter().filter(|why| !before.problems.contains(why)) {
                        tracing::warn!(why, "cannot read the list of the fleet's recliners");
                    }
                    if before.members != lists.found.members {
                        members.set(&lists.found, settings.interval);
                    }
                }
                Some((address, answered)) = members.requests.next() => members.record(&address, answered),
                Some(()) = due => continue,
            }
            let fleet = members.fleet(&lists.found.problems, settings.is_configured());
            self.published.send_replace(fleet);
        }
    }
}

#[cfg(test)]
mod tests;
