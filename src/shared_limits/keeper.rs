//! The keeper's grants. Pure.

use super::{
    Lease, LeaseRequest,
    fair::{Claim, divide},
};
use crate::model::{
    settings::{limits::BUDGET_PERIOD, shared::KeeperSettings},
    share::Share,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// How much longer a lease counts here than at the member, whose wall clock has a resolution of one second.
const MARGIN: Duration = Duration::from_secs(2);

/// Interval after which indivisible single compactions go to another member.
const TURN: Duration = BUDGET_PERIOD;

/// Number of lease numbers reserved at once, so that not every lease must be stored.
const IDS_AT_A_TIME: u64 = 1_000;

/// The keeper's state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keeper {
    started_at: Instant,
    /// Until when members may still use grants of an earlier keeper, of which nothing is stored.
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
    /// The most that it may be running, and may have started within the hour.
    held: Share,
    /// The most that it may use without a lease.
    held_share: Share,
    /// Until when its leases last.
    until: Instant,
    wanted: Share,
    /// Whether it showed that it acts on a lease of this keeper rather than of an earlier one.
    is_confirmed: bool,
    /// Since when the configuration has not listed it.
    removed_at: Option<Instant>,
}

/// The stored form of a [`Keeper`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredKeeper {
    /// Whether members may still use grants of an earlier keeper, of which nothing is stored.
    is_new: bool,
    next_id: u64,
    lasts: Duration,
    members: BTreeMap<String, StoredMember>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredMember {
    instance: String,
    held: Share,
    held_share: Share,
}

/// Why a member gets no lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The configuration does not list it.
    #[error(
        "no member is called {0:?}; add it to shared_limits.keeper.members of this keeper, or correct shared_limits.name of the recliner that asked"
    )]
    Unknown(String),
    /// Another process uses the name.
    #[error(
        "another recliner, with a different journal, uses the member name {name:?}: if this one's journal is new or was restored, it may use the name {wait_minutes} minutes after the other's last request; if both run, give this one another shared_limits.name"
    )]
    OtherInstance { name: String, wait_minutes: u64 },
}

/// A member as the keeper accounts for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// What it may use without a lease, according to the configuration.
    pub(crate) own_share: Share,
    /// The most that it may be running, and may have started within the hour; `None` if it never asked.
    pub(crate) held: Option<Share>,
    /// Its lease, if it is still valid.
    pub(crate) lease: Option<Share>,
}

impl Member {
    /// The most that the member may still act on or has in use. Its running compactions count until it
    /// asks again, because they outlive the process that started them.
    fn held(&self, now: Instant) -> Share {
        let bytes_per_hour = if self.is_gone(now) { 0 } else { self.held.bytes_per_hour };
        Share { bytes_per_hour, ..self.held }.max(self.held_share)
    }

    /// Whether its leases ended so long ago that starts under them no longer count in the current hour.
    fn is_gone(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.until) >= BUDGET_PERIOD
    }

    fn has_lease(&self, now: Instant) -> bool {
        self.newest.is_some() && now < self.until
    }
}

impl Keeper {
    /// A keeper without a stored state. Members may have leases of an earlier keeper, so no earlier keeper may have
    /// used `first_id` or a later number.
    pub(crate) fn fresh(settings: &KeeperSettings, first_id: u64, now: Instant) -> Self {
        Self {
            started_at: now,
            unknown_until: Some(unknown_until(settings.lease, now)),
            next_id: first_id,
            lasts: settings.lease,
            members: BTreeMap::new(),
        }
    }

    /// Restores the keeper of an earlier process. Its leases count as if they were granted now.
    pub(crate) fn restored(stored: StoredKeeper, now: Instant) -> Self {
        let StoredKeeper { is_new, next_id, lasts, members } = stored;
        // No keeper grants longer leases.
        let lasts = lasts.min(BUDGET_PERIOD);
        let member = |(name, it): (String, StoredMember)| {
            let StoredMember { instance, held, held_share } = it;
            let until = now + lasts + MARGIN;
            let known = Member {
                instance,
                newest: None,
                held,
                held_share,
                until,
                wanted: Share::NONE,
                is_confirmed: false,
                removed_at: None,
            };
            (name, known)
        };
        Self {
            started_at: now,
            unknown_until: is_new.then(|| unknown_until(lasts, now)),
            next_id,
            lasts,
            members: members.into_iter().map(member).collect(),
        }
    }

    /// The state that must be stored before an answer is sent.
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
        after.members.retain(|name, it| {
            let is_listed = settings.members.contains_key(name);
            it.removed_at = if is_listed { None } else { it.removed_at.or(Some(now)) };
            it.removed_at.is_none_or(|at| now.duration_since(it.until.max(at)) < BUDGET_PERIOD)
        });
        after.lasts = after.lasts.max(settings.lease);
        let known = after.members.remove(&request.name);
        let mut member = heard(known, request, now, settings.lease)?;
        after.unknown_until = after.unknown_until.filter(|until| {
            let is_confirmed = |name: &String| {
                let other = after.members.get(name).is_some_and(|it| it.is_confirmed);
                other || (*name == request.name && member.is_confirmed)
            };
            now < *until && !settings.members.keys().all(is_confirmed)
        });

        let held_by_others = after.members.values().map(|it| it.held(now)).sum();
        let own_share = own.min(settings.total().without(held_by_others));
        let lease = own_share.max(after.fair_share(settings, request, now));
        let others = settings.members.iter().filter(|(name, _)| **name != request.name);
        let lease = Lease {
            id: after.next_id,
            lease,
            lasts_ms: u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX),
            own_share,
            most: settings.total().without(others.map(|(_, share)| *share).sum()),
        };
        after.next_id = after.next_id.saturating_add(1);
        member.held = member.held.max(lease.lease);
        member.held_share = member.held_share.max(own_share);
        member.until = member.until.max(now + settings.lease + MARGIN);
        member.newest = Some(lease);
        after.members.insert(request.name.clone(), member);
        Ok((after, lease))
    }

    /// A member's share besides what the others in `self` hold; nothing while members may still use grants of an
    /// earlier keeper.
    fn fair_share(&self, settings: &KeeperSettings, request: &LeaseRequest, now: Instant) -> Share {
        if self.unknown_until.is_some() {
            return Share::NONE;
        }
        let unlisted =
            self.members.iter().filter(|(name, _)| !settings.members.contains_key(*name));
        let mut silent: Share = unlisted.map(|(_, it)| it.held(now)).sum();
        let mut reserved = silent;
        let mut claims = Vec::new();
        let mut at = 0;
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

/// Until when members may use grants of an earlier keeper: while its leases last, plus the hour in which starts under
/// them count.
fn unknown_until(lease: Duration, now: Instant) -> Instant {
    now + 2 * lease + MARGIN + BUDGET_PERIOD
}

/// A member after its request and before its lease. Its held share shrinks only if it acts on its newest lease: a
/// delayed request, or one whose last answer was lost, may report less than is in use.
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
            is_confirmed: false,
            removed_at: None,
        });
    };
    if known.instance != *instance && !known.is_gone(now) {
        let wait = (BUDGET_PERIOD + lasts + MARGIN).as_secs().div_ceil(60);
        return Err(Refused::OtherInstance { name: name.clone(), wait_minutes: wait });
    }
    let newest = known.newest.filter(|newest| newest.id == *acts_on);
    let (held, held_share) = match newest {
        Some(Lease { lease, own_share, .. }) => (lease.max(*used), own_share),
        None => (known.held(now).max(*used), known.held_share),
    };
    let is_confirmed = newest.is_some() || (known.is_confirmed && known.instance == *instance);
    let instance = instance.clone();
    Ok(Member { instance, held, held_share, wanted: *wanted, is_confirmed, ..known })
}

impl StoredKeeper {
    /// Whether this stored state suffices for a keeper.
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

#[cfg(test)]
mod tests;
