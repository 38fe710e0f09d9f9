#![allow(dead_code,unused_imports)]
pub mod wall_clock { use std::time::Duration;
#[derive(Clone,Copy,Debug,PartialEq,Eq,PartialOrd,Ord)] pub struct Moment(pub u64);
impl Moment { pub fn age(self, now: Self)->Duration{Duration::from_secs(now.0.saturating_sub(self.0))} pub fn plus(self,d:Duration)->Self{Moment(self.0+d.as_secs())} }
#[derive(Clone,Copy)] pub struct Clock; impl Clock{pub fn now(self)->Moment{Moment(0)}} }
pub mod model { pub mod settings { pub mod limits { pub const BUDGET_PERIOD: std::time::Duration=std::time::Duration::from_secs(3600);}
 pub mod shared { use crate::model::share::Share; #[derive(Clone,Debug,PartialEq,Eq)] pub struct KeeperSettings{pub jobs:usize,pub bytes_per_hour:u64,pub lease:std::time::Duration,pub members:std::collections::BTreeMap<String,Share>}
 impl KeeperSettings{pub fn total(&self)->Share{Share{jobs:self.jobs,bytes_per_hour:self.bytes_per_hour}}} } }
 pub mod share {

/// Compactions at a time, and bytes of files whose compaction starts within an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Share {
    /// Compactions at a time.
    pub jobs: usize,
    /// Size, before compaction, of files whose compaction starts within any hour, in bytes.
    pub bytes_per_hour: u64,
}

impl Share {
    /// Nothing.
    pub const NONE: Self = Self { jobs: 0, bytes_per_hour: 0 };
    /// No limit.
    pub const ALL: Self = Self { jobs: usize::MAX, bytes_per_hour: u64::MAX };

    /// The larger of both, each number for itself.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.zip(other, usize::max, u64::max)
    }

    /// The smaller of both, each number for itself.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.zip(other, usize::min, u64::min)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, usize::saturating_add, u64::saturating_add)
    }

    /// What is left of this without the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        self.zip(other, usize::saturating_sub, u64::saturating_sub)
    }

    /// Whether neither number is above the other's.
    #[must_use]
    pub const fn fits(self, other: Self) -> bool {
        self.jobs <= other.jobs && self.bytes_per_hour <= other.bytes_per_hour
    }

    fn zip(self, other: Self, jobs: fn(usize, usize) -> usize, bytes: fn(u64, u64) -> u64) -> Self {
        Self {
            jobs: jobs(self.jobs, other.jobs),
            bytes_per_hour: bytes(self.bytes_per_hour, other.bytes_per_hour),
        }
    }
}

impl std::iter::Sum for Share {
    fn sum<I: Iterator<Item = Self>>(shares: I) -> Self {
        shares.fold(Self::NONE, Self::plus)
    }
}
}}
pub mod shared_limits {





pub use allowance::Allowance;
pub use member::{Granted, Now};

use crate::model::share::Share;

/// What a member uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedUse {
    /// What it runs, and what it started within the last hour.
    pub used: Share,
    /// Whether it may run more, because not all that an earlier process started was found yet.
    pub is_lower_bound: bool,
}

/// What a member asks the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The member, as the keeper's configuration names it.
    pub name: String,
    /// Identifies the member's journal, so that two processes with one name are noticed.
    pub instance: String,
    /// Number of the newest lease that it got and acts on; 0 since it was started.
    pub acts_on: u64,
    /// What it runs, and what it started within the last hour.
    pub used: Share,
    /// What it could use.
    pub wanted: Share,
}

/// The keeper's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Number of the lease; a later one is higher.
    pub id: u64,
    /// What the member may use while the lease lasts.
    pub lease: Share,
    /// How long it lasts, in milliseconds since the member asked.
    pub lasts_ms: u64,
    /// What the member may use without a lease.
    pub own_share: Share,
}
pub(crate) mod allowance {
use crate::model::share::Share;
use crate::wall_clock::Moment;

/// A share of shared limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// What may be used.
    pub share: Share,
    /// When the lease ends, after which less may be allowed; `None` without a lease.
    pub until: Option<Moment>,
}
}
pub(crate) mod fair {
/// What one member must have at least, and could use at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Claim {
    fn at(self, level: u64) -> u64 {
        level.clamp(self.least, self.most.max(self.least))
    }
}

/// Divides a total. Single units that cannot be divided go to members in order, beginning at `turn`. The result may
/// exceed the total only if what the members must have does.
pub(super) fn divide(total: u64, claims: &[Claim], turn: u64) -> Vec<u64> {
    let sum = |level: u64| claims.iter().map(|claim| u128::from(claim.at(level))).sum::<u128>();
    // The highest level at which all parts together fit.
    let (mut fits, mut above) = (0, total.saturating_add(1));
    while above - fits > 1 {
        let level = fits + (above - fits) / 2;
        if sum(level) <= u128::from(total) { fits = level } else { above = level }
    }
    let mut left = u128::from(total).saturating_sub(sum(fits));
    let mut parts: Vec<u64> = claims.iter().map(|claim| claim.at(fits)).collect();
    let count = claims.len().max(1);
    let first = usize::try_from(turn % (count as u64)).unwrap_or(0);
    for at in (0..claims.len()).map(|at| (first + at) % count) {
        let (Some(claim), Some(part)) = (claims.get(at), parts.get_mut(at)) else { continue };
        let more = claim.at(fits.saturating_add(1)) - *part;
        if u128::from(more) <= left {
            *part += more;
            left -= u128::from(more);
        }
    }
    parts
}

}
pub(crate) mod keeper {
use super::{
    Lease, LeaseRequest,
    fair::{Claim, divide},
};
use crate::model::{
    settings::{limits::BUDGET_PERIOD, shared::KeeperSettings},
    share::Share,
};
use std::{collections::BTreeMap, time::Duration};
use std::time::Instant;

/// How much longer a lease counts here than at the member, whose wall clock has whole seconds.
const MARGIN: Duration = Duration::from_secs(2);

/// How often single compactions that cannot be divided go to another member.
const TURN: Duration = BUDGET_PERIOD;

/// Numbers of leases that are reserved at once, so that not every lease is stored.
const IDS_AT_A_TIME: u64 = 1_000;

/// What the keeper knows of the members.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keeper {
    started_at: Instant,
    /// Until when leases of an earlier keeper may last of which nothing is stored.
    unknown_until: Option<Instant>,
    next_id: u64,
    /// The longest time for which a lease may last.
    lasts: Duration,
    members: BTreeMap<String, Member>,
}

/// A member that asked.
#[derive(Clone, Debug, PartialEq)]
struct Member {
    instance: String,
    /// Its newest lease; `None` if an earlier keeper granted it.
    newest: Option<Lease>,
    /// The most that it may run, and may have started within the hour.
    held: Share,
    /// The most that it may use without a lease.
    held_share: Share,
    /// Until when its leases last.
    until: Instant,
    wanted: Share,
}

/// What another process must know of a [`Keeper`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredKeeper {
    /// Whether leases of an earlier keeper may last of which nothing is stored.
    is_new: bool,
    next_id: u64,
    lasts: Duration,
    members: BTreeMap<String, StoredMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredMember {
    instance: String,
    held: Share,
    held_share: Share,
}

/// Why a member gets no lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The configuration does not list it.
        Unknown(String),
    /// Another process uses the name.
        OtherInstance { name: String, wait_minutes: u64 },
}

impl Refused {
    /// Whether the configuration does not list the member.
    pub(crate) const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

/// A member as the keeper sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// What it may use without a lease, by the configuration.
    pub(crate) own_share: Share,
    /// The most that it may run, and may have started within the hour; `None` if it never asked.
    pub(crate) held: Option<Share>,
    /// Its lease, if that lasts.
    pub(crate) lease: Option<Share>,
}

impl Member {
    /// The most that it may still act on or has in use. What it runs counts until it is heard again, because
    /// compactions outlive the process that started them.
    fn held(&self, now: Instant) -> Share {
        let lapsed = now.saturating_duration_since(self.until) >= BUDGET_PERIOD;
        let bytes_per_hour = if lapsed { 0 } else { self.held.bytes_per_hour };
        Share { bytes_per_hour, ..self.held }.max(self.held_share)
    }

    fn has_lease(&self, now: Instant) -> bool {
        self.newest.is_some() && now < self.until
    }
}

impl Keeper {
    /// A keeper without a stored state. Members may have leases of an earlier keeper.
    pub(crate) fn fresh(settings: &KeeperSettings, now: Instant) -> Self {
        Self {
            started_at: now,
            unknown_until: Some(now + 2 * settings.lease + MARGIN),
            next_id: 1,
            lasts: settings.lease,
            members: BTreeMap::new(),
        }
    }

    /// The keeper of an earlier process. Its leases may last as if they were granted now.
    pub(crate) fn restored(stored: StoredKeeper, now: Instant) -> Self {
        let StoredKeeper { is_new, next_id, lasts, members } = stored;
        // No keeper grants longer leases.
        let lasts = lasts.min(BUDGET_PERIOD);
        let member = |(name, it): (String, StoredMember)| {
            let StoredMember { instance, held, held_share } = it;
            let until = now + lasts + MARGIN;
            let wanted = Share::NONE;
            (name, Member { instance, newest: None, held, held_share, until, wanted })
        };
        Self {
            started_at: now,
            unknown_until: is_new.then(|| now + 2 * lasts + MARGIN),
            next_id,
            lasts,
            members: members.into_iter().map(member).collect(),
        }
    }

    /// What must be stored before an answer is sent.
    pub(crate) fn to_store(&self) -> StoredKeeper {
        let member = |(name, it): (&String, &Member)| {
            let Member { ref instance, held, held_share, .. } = *it;
            (name.clone(), StoredMember { instance: instance.clone(), held, held_share })
        };
        StoredKeeper {
            is_new: self.unknown_until.is_some(),
            next_id: self.next_id.saturating_add(IDS_AT_A_TIME),
            lasts: self.lasts,
            members: self.members.iter().map(member).collect(),
        }
    }

    /// The state after a request, and its answer.
    pub(crate) fn grant(
        &self,
        settings: &KeeperSettings,
        request: &LeaseRequest,
        now: Instant,
    ) -> Result<(Self, Lease), Refused> {
        let own = settings.members.get(&request.name);
        let own = *own.ok_or_else(|| Refused::Unknown(request.name.clone()))?;
        let mut after = self.clone();
        after.members.retain(|name, _| settings.members.contains_key(name));
        after.lasts = after.lasts.max(settings.lease);
        after.unknown_until = after.unknown_until.filter(|until| now < *until);
        let known = after.members.remove(&request.name);
        let mut member = heard(known, request, now, settings.lease)?;

        let held_by_others = after.members.values().map(|it| it.held(now)).sum();
        let own_share = own.min(settings.total().without(held_by_others));
        let lease = own_share.max(after.fair_share(settings, request, now));
        let lease = Lease {
            id: after.next_id,
            lease,
            lasts_ms: u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX),
            own_share,
        };
        after.next_id = after.next_id.saturating_add(1);
        member.held = member.held.max(lease.lease);
        member.held_share = member.held_share.max(own_share);
        member.until = member.until.max(now + settings.lease + MARGIN);
        member.newest = Some(lease);
        after.members.insert(request.name.clone(), member);
        Ok((after, lease))
    }

    /// What a member may have beside what the others hold, who are all that are in `self`; nothing while unknown leases
    /// may last.
    fn fair_share(&self, settings: &KeeperSettings, request: &LeaseRequest, now: Instant) -> Share {
        if self.unknown_until.is_some() {
            return Share::NONE;
        }
        let mut reserved = Share::NONE;
        let mut claims = Vec::new();
        let mut at = 0;
        let mut silent = Share::NONE;
        for (name, least) in &settings.members {
            if *name == request.name {
                at = claims.len();
                claims.push((*least, request.wanted));
                continue;
            }
            let known = self.members.get(name);
            let held = known.map_or(Share::NONE, |it| it.held(now)).max(*least);
            reserved = reserved.plus(held);
            match known.filter(|it| it.has_lease(now)) {
                Some(it) => claims.push((*least, it.wanted)),
                None => silent = silent.plus(held),
            }
        }
        let turn = now.saturating_duration_since(self.started_at).as_secs() / TURN.as_secs();
        let total = settings.total();
        let part = |of: fn(Share) -> u64| {
            let claims = claims.iter();
            let claims: Vec<Claim> =
                claims.map(|&(least, most)| Claim { least: of(least), most: of(most) }).collect();
            divide(of(total.without(silent)), &claims, turn).get(at).copied().unwrap_or(0)
        };
        let jobs = part(|share| u64::try_from(share.jobs).unwrap_or(u64::MAX));
        let fair = Share {
            jobs: usize::try_from(jobs).unwrap_or(usize::MAX),
            bytes_per_hour: part(|share| share.bytes_per_hour),
        };
        fair.min(total.without(reserved))
    }

    /// Each member of the configuration.
    pub(crate) fn counted<'a>(
        &'a self,
        settings: &'a KeeperSettings,
        now: Instant,
    ) -> impl Iterator<Item = (&'a str, Counted)> {
        settings.members.iter().map(move |(name, own_share)| {
            let known = self.members.get(name);
            let lease = known.filter(|it| it.has_lease(now)).and_then(|it| it.newest);
            let counted = Counted {
                own_share: *own_share,
                held: known.map(|it| it.held(now)),
                lease: lease.map(|it| it.lease),
            };
            (name.as_str(), counted)
        })
    }
}

/// A member after its request, before its lease. It holds less than before only if it acts on its newest lease: an
/// older request that comes late, or one whose last answer was lost, may know less than is in use.
fn heard(
    known: Option<Member>,
    request: &LeaseRequest,
    now: Instant,
    lasts: Duration,
) -> Result<Member, Refused> {
    let LeaseRequest { name, instance, acts_on, used, wanted } = request;
    let Some(known) = known else {
        return Ok(Member {
            instance: instance.clone(),
            newest: None,
            held: *used,
            held_share: Share::NONE,
            until: now,
            wanted: *wanted,
        });
    };
    let is_gone = now.saturating_duration_since(known.until) >= BUDGET_PERIOD;
    if known.instance != *instance && !is_gone {
        let wait = (BUDGET_PERIOD + lasts + MARGIN).as_secs().div_ceil(60);
        return Err(Refused::OtherInstance { name: name.clone(), wait_minutes: wait });
    }
    let newest = known.newest.filter(|newest| newest.id == *acts_on);
    let (held, held_share) = match newest {
        Some(Lease { lease, own_share, .. }) => (lease.max(*used), own_share),
        None => (known.held(now).max(*used), known.held_share),
    };
    Ok(Member { instance: instance.clone(), held, held_share, wanted: *wanted, ..known })
}

impl StoredKeeper {
    /// Whether nothing more than this must be stored for a keeper.
    pub(crate) fn covers(&self, keeper: &Keeper) -> bool {
        let is_covered = |(name, it): (&String, &Member)| {
            self.members.get(name).is_some_and(|stored| {
                stored.instance == it.instance
                    && it.held.fits(stored.held)
                    && it.held_share.fits(stored.held_share)
            })
        };
        keeper.unknown_until.is_some() == self.is_new
            && keeper.next_id <= self.next_id
            && keeper.lasts <= self.lasts
            && keeper.members.iter().all(is_covered)
    }
}

}
pub(crate) mod member {
use super::{Allowance, Lease};
use crate::model::share::Share;
use std::time::Duration;
use std::time::Instant;
use crate::wall_clock::{Clock, Moment};

/// No keeper grants longer leases.
const MAX_LEASE: Duration = Duration::from_secs(3_600);

/// A moment on both clocks: one may stop while the machine sleeps, the other may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Of the clock that is never set.
    pub elapsed: Instant,
    /// Of the wall clock.
    pub wall: Moment,
}

impl Now {
    /// The present.
    pub fn read(clock: Clock) -> Self {
        Self { elapsed: Instant::now(), wall: clock.now() }
    }

    /// How long ago an earlier moment is, by the clock that says more.
    fn since(self, earlier: Self) -> Duration {
        let elapsed = self.elapsed.saturating_duration_since(earlier.elapsed);
        // Seconds of the wall clock are rounded down.
        let wall = earlier.wall.age(self.wall);
        elapsed.max(wall)
    }
}

/// The newest answer of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    asked_at: Now,
    lease: Lease,
    lasts: Duration,
}

/// What the keeper granted a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// What it may use without a lease, as the keeper last said, in this process or an earlier one.
    own_share: Share,
    answer: Option<Answer>,
}

impl Granted {
    /// What an earlier process was granted without a lease; nothing if it never got an answer.
    pub const fn stored(own_share: Share) -> Self {
        Self { own_share, answer: None }
    }

    /// What it may use without a lease, to be stored.
    pub const fn own_share(&self) -> Share {
        self.own_share
    }

    /// Number of the newest lease; 0 if there was none.
    pub const fn acts_on(&self) -> u64 {
        match self.answer {
            Some(answer) => answer.lease.id,
            None => 0,
        }
    }

    /// How long the newest lease lasts from its question on.
    pub fn lasts(&self) -> Option<Duration> {
        Some(self.answer?.lasts)
    }

    /// The same after an answer; `None` if a newer one came first.
    pub fn after(&self, asked_at: Now, lease: Lease) -> Option<Self> {
        let lasts = Duration::from_millis(lease.lasts_ms).min(MAX_LEASE);
        let answer = Answer { asked_at, lease, lasts };
        let is_newer = lease.id > self.acts_on();
        is_newer.then_some(Self { own_share: lease.own_share, answer: Some(answer) })
    }

    /// What it may use now.
    pub fn allowed(&self, now: Now) -> Share {
        self.lease(now).map_or(self.own_share, |(lease, _)| lease)
    }

    /// What it may use now, and until when by the wall clock.
    pub fn allowance(&self, now: Now) -> Allowance {
        // The wall clock has whole seconds.
        let until = self.lease(now).map(|(_, left)| now.wall.plus(left + Duration::from_secs(1)));
        Allowance { share: self.allowed(now), until }
    }

    /// The lease that lasts, and for how long still.
    pub fn lease(&self, now: Now) -> Option<(Share, Duration)> {
        let Answer { asked_at, lease, lasts } = self.answer?;
        let left = lasts.checked_sub(now.since(asked_at))?;
        (!left.is_zero()).then_some((lease.lease, left))
    }
}

}
}
#[cfg(test)]
mod cases {
    use crate::{model::{settings::shared::KeeperSettings, share::Share}, shared_limits::{*, keeper::*}, wall_clock::Moment};
    use std::time::{Duration, Instant};
    const LEASE: Duration = Duration::from_secs(120);
    const ALL: Share = Share { jobs: 100, bytes_per_hour: 100_000 };
    const OWN: Share = Share { jobs: 1, bytes_per_hour: 100 };
    fn settings(names: &[&str]) -> KeeperSettings {
        KeeperSettings { jobs: 8, bytes_per_hour: 800, lease: LEASE, members: names.iter().map(|n| (n.to_string(), OWN)).collect() }
    }
    fn req(name: &str, acts_on: u64, used: Share) -> LeaseRequest {
        LeaseRequest { name: name.into(), instance: name.into(), acts_on, used, wanted: ALL }
    }
    fn no() -> Share { Share::NONE }
    struct T { start: Instant, s: u64 }
    impl T { fn at(&self) -> Instant { self.start + Duration::from_secs(self.s) }
             fn now(&self) -> Now { Now { elapsed: self.at(), wall: Moment(1_000_000 + self.s) } } }

    // A: the keeper's record is lost (or its journal restored from a backup, which strips it); the member runs on.
    #[test] fn a_keeper_that_lost_its_state_is_heard_by_a_running_member() {
        let s = settings(&["a"]); let mut t = T { start: Instant::now(), s: 0 };
        let mut k = Keeper::fresh(&s, t.at()); let mut a = Granted::default();
        for _ in 0..2880 { // one day of asking every 30 s
            let asked = t.now(); let (n, l) = k.grant(&s, &req("a", a.acts_on(), no()), t.at()).unwrap(); k = n;
            if let Some(x) = a.after(asked, l) { a = x } t.s += 30;
        }
        assert_eq!(a.allowed(t.now()).jobs, 8);
        k = Keeper::fresh(&s, t.at());
        let mut silent = 0;
        for _ in 0..120 { // asked every 10 s without a lease; 20 minutes
            let asked = t.now(); let (n, l) = k.grant(&s, &req("a", a.acts_on(), no()), t.at()).unwrap(); k = n;
            match a.after(asked, l) { Some(x) => a = x, None => silent += 1 } t.s += 10;
        }
        assert_eq!(a.allowed(t.now()).jobs, 8, "{silent} of 120 answers were ignored, acts_on {}", a.acts_on());
    }
    // B: a member whose lease lasts is removed from the list by a reload.
    #[test] fn a_removed_member_counts_while_its_lease_lasts() {
        let s = settings(&["a", "b"]); let mut t = T { start: Instant::now(), s: 0 };
        let k = Keeper::fresh(&s, t.at()); t.s += 300;
        let asked = t.now(); let (k, l) = k.grant(&s, &req("a", 0, no()), t.at()).unwrap();
        let a = Granted::default().after(asked, l).unwrap();
        t.s += 1; let s = settings(&["b"]);
        let asked = t.now(); let (_, l) = k.grant(&s, &req("b", 0, no()), t.at()).unwrap();
        let b = Granted::default().after(asked, l).unwrap();
        let sum = a.allowed(t.now()).jobs + b.allowed(t.now()).jobs;
        assert!(sum <= 8, "a may run {} and b {} of 8", a.allowed(t.now()).jobs, b.allowed(t.now()).jobs);
    }
    // B2: the same a day later: a is refused (404) but keeps its own share, which nobody sets aside any more.
    #[test] fn a_member_that_is_refused_uses_nothing() {
        let s = settings(&["a", "b"]); let mut t = T { start: Instant::now(), s: 0 };
        let k = Keeper::fresh(&s, t.at()); t.s += 300;
        let asked = t.now(); let (k, l) = k.grant(&s, &req("a", 0, no()), t.at()).unwrap();
        let a = Granted::default().after(asked, l).unwrap();
        t.s += 86_400; let s = settings(&["b"]);
        assert!(matches!(k.grant(&s, &req("a", a.acts_on(), no()), t.at()), Err(Refused::Unknown(_))));
        let asked = t.now(); let (_, l) = k.grant(&s, &req("b", 0, no()), t.at()).unwrap();
        let b = Granted::default().after(asked, l).unwrap();
        // member.rs (task) returns the error and leaves `granted` and the stored share as they are.
        let sum = a.allowed(t.now()).jobs + b.allowed(t.now()).jobs;
        assert!(sum <= 8, "a may run {} and b {} of 8", a.allowed(t.now()).jobs, b.allowed(t.now()).jobs);
    }
    // C: lost state while a member is cut off; its compactions and its bytes of the hour count no more.
    #[test] fn a_keeper_that_lost_its_state_counts_a_silent_member() {
        let s = settings(&["a", "b"]); let mut t = T { start: Instant::now(), s: 0 };
        let k = Keeper::fresh(&s, t.at()); t.s += 300;
        let (_, l) = k.grant(&s, &req("a", 0, no()), t.at()).unwrap();
        let used_by_a = l.lease; // it starts all of it at once, then is cut off
        let k = Keeper::fresh(&s, t.at()); t.s += 300;
        let (_, l) = k.grant(&s, &req("b", 0, no()), t.at()).unwrap();
        assert!(used_by_a.plus(l.lease).fits(s.total()), "a uses {used_by_a:?}, b may use {:?}", l.lease);
    }
    // D: a member leaves enforce mode with nothing running; it asks no more.
    #[test] fn a_member_in_advise_mode_gives_its_jobs_back() {
        let s = settings(&["a", "b"]); let mut t = T { start: Instant::now(), s: 0 };
        let k = Keeper::fresh(&s, t.at()); t.s += 300;
        let (k, _) = k.grant(&s, &req("a", 0, no()), t.at()).unwrap();
        t.s += 7 * 86_400;
        let (_, l) = k.grant(&s, &req("b", 0, no()), t.at()).unwrap();
        assert_eq!(l.lease.jobs, 7, "a week later");
    }
    // F: a was cut off for over an hour but lives on its own share; another journal takes its name.
    #[test] fn two_processes_of_one_name_never_both_use_shares() {
        let s = settings(&["a"]); let mut t = T { start: Instant::now(), s: 0 };
        let k = Keeper::fresh(&s, t.at()); t.s += 300;
        let asked = t.now(); let (k, l) = k.grant(&s, &req("a", 0, no()), t.at()).unwrap();
        let a = Granted::default().after(asked, l).unwrap();
        t.s += 3_800;
        let other = LeaseRequest { instance: "other".into(), ..req("a", 0, no()) };
        let asked = t.now(); let (k, l) = k.grant(&s, &other, t.at()).unwrap();
        let b = Granted::default().after(asked, l).unwrap();
        assert!(matches!(k.grant(&s, &req("a", a.acts_on(), no()), t.at()), Err(Refused::OtherInstance{..})));
        let sum = a.allowed(t.now()).jobs + b.allowed(t.now()).jobs;
        assert!(sum <= 8, "the first may run {}, the second {} of 8", a.allowed(t.now()).jobs, b.allowed(t.now()).jobs);
    }
}
