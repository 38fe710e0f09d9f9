use super::*;
use crate::shared_limits::{Granted, Now};
use proptest::{prelude::*, sample::Index};
use wall_clock::Moment;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(60);

const fn share(jobs: usize, bytes_per_hour: u64) -> Share {
    Share { jobs, bytes_per_hour }
}

fn settings(total: Share, members: &[(&str, Share)]) -> KeeperSettings {
    let members = members.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
    let Share { jobs, bytes_per_hour } = total;
    KeeperSettings { jobs, bytes_per_hour, lease: LEASE, members }
}

fn request(name: &str, acts_on: u64, used: Share, wanted: Share) -> LeaseRequest {
    let (name, instance) = (name.to_owned(), format!("journal of {name}"));
    LeaseRequest { name, instance, acts_on, used, wanted }
}

/// A keeper with its settings, and the time.
struct Timeline {
    settings: KeeperSettings,
    keeper: Keeper,
    now: Instant,
}

impl Timeline {
    /// A keeper whose members cannot have leases of an earlier one.
    fn new(total: Share, members: &[(&str, Share)]) -> Self {
        let settings = settings(total, members);
        let keeper = Keeper::fresh(&settings, 1, Instant::now());
        let now = Instant::now();
        let keeper = Keeper { unknown_until: None, ..keeper };
        Self { settings, keeper, now }
    }

    fn ask(&mut self, request: &LeaseRequest) -> Result<Lease, Refused> {
        let (keeper, lease) = self.keeper.grant(&self.settings, request, self.now)?;
        self.keeper = keeper;
        Ok(lease)
    }

    fn granted(&mut self, request: &LeaseRequest) -> Lease {
        self.ask(request).expect("a lease")
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
    }

    fn restart(&mut self) {
        self.keeper = Keeper::restored(self.keeper.to_store(), self.now);
    }
}

const ALL: Share = share(100, 10_000);

#[tokio::test(start_paused = true)]
async fn single_member_gets_everything_but_the_others_own_shares() {
    let mut it = Timeline::new(share(8, 800), &[("a", share(1, 100)), ("b", share(2, 50))]);
    let lease = it.granted(&request("a", 0, Share::NONE, ALL));
    assert_eq!((lease.lease, lease.own_share), (share(6, 750), share(1, 100)));
    assert_eq!(lease.most, share(6, 750));
    let less = it.granted(&request("a", lease.id, Share::NONE, share(3, 0)));
    assert_eq!(less.lease, share(3, 100), "what it wants, but no less than its own share");
}

#[tokio::test(start_paused = true)]
async fn every_member_is_listed_and_unknown_usage_is_not_zero() {
    let mut it = Timeline::new(share(8, 800), &[("a", share(1, 100)), ("b", Share::NONE)]);
    it.granted(&request("a", 0, Share::NONE, share(3, 300)));
    let shown = |it: &Timeline| -> Vec<_> {
        let members = it.keeper.counted(&it.settings, it.now);
        members.map(|(name, counted)| (name.to_owned(), counted.held, counted.lease)).collect()
    };
    let leased = Some(share(3, 300));
    assert_eq!(shown(&it), [("a".into(), leased, leased), ("b".into(), None, None)]);
    it.pass(LEASE + MARGIN + BUDGET_PERIOD);
    let held = Some(share(3, 100));
    assert_eq!(shown(&it), [("a".into(), held, None), ("b".into(), None, None)]);
}

#[tokio::test(start_paused = true)]
async fn second_member_gets_what_the_first_has_released() {
    let mut it = Timeline::new(share(8, 800), &[("a", Share::NONE), ("b", Share::NONE)]);
    let first = it.granted(&request("a", 0, Share::NONE, ALL));
    assert_eq!(first.lease, share(8, 800));
    assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).lease, Share::NONE);
    let half = it.granted(&request("a", first.id, share(6, 600), ALL));
    assert_eq!(half.lease, share(4, 400));
    // It has not shown yet that it acts on the smaller lease.
    let b = it.granted(&request("b", 0, Share::NONE, ALL));
    assert_eq!(b.lease, Share::NONE);
    // It still runs six.
    let a = it.granted(&request("a", half.id, share(6, 600), ALL));
    let b = it.granted(&request("b", b.id, Share::NONE, ALL));
    assert_eq!(b.lease, share(2, 200));
    it.granted(&request("a", a.id, share(4, 300), ALL));
    assert_eq!(it.granted(&request("b", b.id, Share::NONE, ALL)).lease, share(4, 400));
}

#[tokio::test(start_paused = true)]
async fn late_requests_and_lost_answers_release_no_lease() {
    let mut it = Timeline::new(share(8, 800), &[("a", Share::NONE), ("b", Share::NONE)]);
    let first = it.granted(&request("a", 0, Share::NONE, ALL));
    let late = request("a", first.id, Share::NONE, Share::NONE);
    let second = it.granted(&request("a", first.id, share(8, 800), ALL));
    // A delayed report: at that time it neither ran nor wanted anything.
    it.granted(&late);
    // The answer was lost, so the next request names the previous lease.
    it.granted(&request("a", second.id, Share::NONE, Share::NONE));
    assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).lease, Share::NONE);
}

#[tokio::test(start_paused = true)]
async fn silent_member_keeps_its_jobs_and_its_bytes_for_an_hour() {
    let mut it = Timeline::new(share(8, 800), &[("a", share(1, 10)), ("b", Share::NONE)]);
    assert_eq!(it.granted(&request("a", 0, Share::NONE, share(5, 500))).lease, share(5, 500));
    for (passed, left, what) in [
        (SECOND, share(3, 300), "the lease lasts"),
        (LEASE + MARGIN, share(3, 300), "what was started counts for an hour"),
        (BUDGET_PERIOD, share(3, 790), "what was started counts no more, what runs still does"),
        (24 * BUDGET_PERIOD, share(3, 790), "a day later"),
    ] {
        it.pass(passed);
        assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).lease, left, "{what}");
    }
    // Its process starts again, and no answer is lost.
    let back = it.granted(&request("a", 0, share(2, 0), share(2, 0)));
    it.granted(&request("a", back.id, share(2, 0), share(2, 0)));
    assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).lease, share(6, 790));
}

#[tokio::test(start_paused = true)]
async fn removed_member_counts_until_an_hour_after_its_lease() {
    let mut it = Timeline::new(share(8, 800), &[("a", Share::NONE), ("b", Share::NONE)]);
    it.granted(&request("a", 0, Share::NONE, share(5, 500)));
    it.settings.members.remove("a");
    for (passed, left) in
        [(SECOND, share(3, 300)), (LEASE + MARGIN, share(3, 300)), (BUDGET_PERIOD, share(8, 800))]
    {
        it.pass(passed);
        assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).lease, left, "{passed:?}");
    }
    let refused = it.ask(&request("a", 0, Share::NONE, ALL));
    assert_eq!(refused, Err(Refused::Unknown("a".into())));
}

#[tokio::test(start_paused = true)]
async fn second_process_of_a_member_is_refused_until_the_first_is_gone() {
    let mut it = Timeline::new(share(8, 800), &[("a", Share::NONE)]);
    let first = it.granted(&request("a", 0, Share::NONE, ALL));
    let other =
        LeaseRequest { instance: "another".into(), ..request("a", first.id, Share::NONE, ALL) };
    it.pass(LEASE + MARGIN + BUDGET_PERIOD - SECOND);
    assert!(matches!(it.ask(&other), Err(Refused::OtherInstance { .. })));
    it.restart();
    assert!(matches!(it.ask(&other), Err(Refused::OtherInstance { .. })));
    it.pass(LEASE + MARGIN + BUDGET_PERIOD);
    assert_eq!(it.granted(&other).lease, share(8, 800));
    let refused = it.ask(&request("a", first.id, Share::NONE, ALL)).expect_err("the first one");
    assert_eq!(
        refused.to_string(),
        "another recliner, with a different journal, uses the member name \"a\": if this one's journal is new or was restored, it may use the name 62 minutes after the other's last request; if both run, give this one another shared_limits.name"
    );
}

#[tokio::test(start_paused = true)]
async fn keeper_without_stored_state_waits_until_old_starts_expire() {
    let settings = settings(share(8, 800), &[("a", share(1, 100)), ("b", share(2, 50))]);
    let start = Instant::now();
    let mut it = Timeline { keeper: Keeper::fresh(&settings, 1, start), settings, now: start };
    it.pass(2 * LEASE);
    assert_eq!(it.granted(&request("a", 0, Share::NONE, ALL)).lease, share(1, 100));
    it.restart();
    it.pass(2 * LEASE + BUDGET_PERIOD);
    assert_eq!(it.granted(&request("a", 0, Share::NONE, ALL)).lease, share(1, 100));
    it.pass(MARGIN);
    assert_eq!(it.granted(&request("a", 0, Share::NONE, ALL)).lease, share(6, 750));
}

#[tokio::test(start_paused = true)]
async fn keeper_without_stored_state_waits_until_all_use_its_leases() {
    let settings = settings(share(8, 800), &[("a", share(1, 100)), ("b", share(2, 50))]);
    let start = Instant::now();
    let mut it = Timeline { keeper: Keeper::fresh(&settings, 1, start), settings, now: start };
    let a = it.granted(&request("a", 0, Share::NONE, ALL));
    // It may act on an earlier lease until it shows that it received this one.
    let b = it.granted(&request("b", 0, share(5, 500), ALL));
    let a = it.granted(&request("a", a.id, Share::NONE, ALL));
    assert_eq!(a.lease, share(1, 100));
    it.granted(&request("b", b.id, share(5, 500), ALL));
    assert_eq!(it.granted(&request("a", a.id, Share::NONE, ALL)).lease, share(3, 300));
}

#[tokio::test(start_paused = true)]
async fn changed_own_shares_never_exceed_the_total() {
    let total = share(4, 400);
    let start = Instant::now();
    let shares = settings(total, &[("a", share(3, 300)), ("b", Share::NONE)]);
    let mut it =
        Timeline { keeper: Keeper::fresh(&shares, 1, start), settings: shares, now: start };
    assert_eq!(it.granted(&request("a", 0, Share::NONE, ALL)).lease, share(3, 300));
    it.settings = settings(total, &[("a", Share::NONE), ("b", total)]);
    assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).lease, share(1, 100));
}

#[tokio::test(start_paused = true)]
async fn restarted_keeper_counts_leases_granted_before() {
    let mut it = Timeline::new(share(8, 800), &[("a", Share::NONE), ("b", Share::NONE)]);
    let first = it.granted(&request("a", 0, Share::NONE, share(5, 500)));
    it.restart();
    assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).lease, share(3, 300));
    // It must show the first lease of this keeper before its share shrinks.
    let second = it.granted(&request("a", first.id, Share::NONE, Share::NONE));
    assert!(second.id > first.id + 1, "{second:?}");
    assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).lease, share(3, 300));
    it.granted(&request("a", second.id, Share::NONE, Share::NONE));
    assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).lease, share(8, 800));
}

#[tokio::test(start_paused = true)]
async fn own_share_grows_only_after_others_have_released_it() {
    let mut it = Timeline::new(share(8, 800), &[("a", share(6, 600)), ("b", share(1, 100))]);
    let first = it.granted(&request("a", 0, Share::NONE, Share::NONE));
    it.settings = settings(share(8, 800), &[("a", share(1, 100)), ("b", share(6, 600))]);
    assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).own_share, share(2, 200));
    let told = it.granted(&request("a", first.id, Share::NONE, Share::NONE));
    assert_eq!(told.own_share, share(1, 100));
    assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).own_share, share(2, 200));
    it.granted(&request("a", told.id, Share::NONE, Share::NONE));
    assert_eq!(it.granted(&request("b", 0, Share::NONE, ALL)).own_share, share(6, 600));
}

#[tokio::test(start_paused = true)]
async fn single_shared_job_is_given_to_each_member_in_turn() {
    let mut it = Timeline::new(share(1, 800), &[("a", Share::NONE), ("b", Share::NONE)]);
    let (mut a, mut b) = (0, 0);
    let mut had = Vec::new();
    for _ in 0..4 {
        // Shares that one member returns go to the other one round later.
        for _ in 0..3 {
            let leases = [
                it.granted(&request("a", a, Share::NONE, ALL)),
                it.granted(&request("b", b, Share::NONE, ALL)),
            ];
            (a, b) = (leases[0].id, leases[1].id);
            had.push((leases[0].lease.jobs, leases[1].lease.jobs));
        }
        it.pass(TURN);
    }
    let settled: Vec<_> = had.into_iter().skip(2).step_by(3).collect();
    assert!(
        settled == [(1, 0), (0, 1), (1, 0), (0, 1)] || settled == [(0, 1), (1, 0), (0, 1), (1, 0)],
        "{settled:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn only_a_larger_grant_must_be_stored_before_the_answer() {
    let mut it = Timeline::new(share(8, 800), &[("a", Share::NONE)]);
    assert!(!StoredKeeper::default().covers(&it.keeper));
    let first = it.granted(&request("a", 0, Share::NONE, ALL));
    let stored = it.keeper.to_store();
    assert!(stored.covers(&it.keeper));
    let second = it.granted(&request("a", first.id, Share::NONE, share(1, 1)));
    it.granted(&request("a", second.id, Share::NONE, ALL));
    assert!(stored.covers(&it.keeper), "nothing above what is stored");
    for _ in 0..IDS_AT_A_TIME {
        it.granted(&request("a", 0, Share::NONE, ALL));
    }
    assert!(!stored.covers(&it.keeper), "the numbers are used up");
}

// The steps that may happen in any order.
#[derive(Clone, Debug)]
enum Step {
    Ask(usize),
    DeliverRequest(Index),
    RepeatRequest(Index),
    LoseRequest(Index),
    DeliverAnswer(Index),
    LoseAnswer(Index),
    Start(usize, u64),
    End(usize),
    Pass(u64),
    RestartKeeper,
    /// It is killed while its jobs continue.
    RestartMember(usize),
    ChangeShares(bool),
    /// Its journal is lost; the number of its next lease may be any unused one.
    LoseKeeper(u32),
    /// A member is removed from the list.
    Remove(usize),
}

/// Steps while the keeper's journal is kept.
fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => step_among_members(),
        1 => Just(Step::RestartKeeper),
        1 => any::<bool>().prop_map(Step::ChangeShares),
    ]
}

/// Steps while shares stay the same.
fn step_with_loss() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => step_among_members(),
        1 => Just(Step::RestartKeeper),
        1 => any::<u32>().prop_map(Step::LoseKeeper),
        1 => (0..3_usize).prop_map(Step::Remove),
    ]
}

fn step_among_members() -> impl Strategy<Value = Step> {
    let any_of = || any::<Index>();
    prop_oneof![
        6 => (0..3_usize).prop_map(Step::Ask),
        8 => any_of().prop_map(Step::DeliverRequest),
        1 => any_of().prop_map(Step::RepeatRequest),
        1 => any_of().prop_map(Step::LoseRequest),
        8 => any_of().prop_map(Step::DeliverAnswer),
        1 => any_of().prop_map(Step::LoseAnswer),
        8 => (0..3_usize, 0..120_u64).prop_map(|(member, bytes)| Step::Start(member, bytes)),
        5 => (0..3_usize, 200..900_u64).prop_map(|(member, bytes)| Step::Start(member, bytes)),
        2 => (0..3_usize).prop_map(Step::End),
        4 => (1..40_u64).prop_map(Step::Pass),
        2 => (60..9_000_u64).prop_map(Step::Pass),
        1 => (0..3_usize).prop_map(Step::RestartMember),
    ]
}

/// A member, and what it really runs.
#[derive(Debug, Default)]
struct Cluster {
    granted: Granted,
    /// Counts its requests and restarts; answers to earlier requests are dropped.
    question: u32,
    /// When each running compaction began.
    running: Vec<Instant>,
    started: Vec<(Instant, u64)>,
}

impl Cluster {
    fn used(&self, now: Instant) -> Share {
        let recent = self.started.iter().filter(|(at, _)| now - *at < BUDGET_PERIOD);
        share(self.running.len(), recent.map(|(_, bytes)| bytes).sum())
    }
}

/// Members, a keeper, and the messages in transit between them.
struct World {
    settings: KeeperSettings,
    keeper: Keeper,
    stored: StoredKeeper,
    clusters: Vec<Cluster>,
    requests: Vec<(usize, u32, Now, LeaseRequest)>,
    answers: Vec<(usize, u32, Now, Lease)>,
    now: Instant,
    start: Instant,
    /// Whether every compaction ends within an hour.
    all_end_within_an_hour: bool,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl World {
    fn new(is_new: bool) -> Self {
        let settings = shares(false);
        let start = Instant::now();
        // Nothing is stored, and no member exists yet.
        let fresh = Keeper::fresh(&settings, 1, start);
        let unknown_until = fresh.unknown_until.filter(|_| is_new);
        let keeper = Keeper { unknown_until, ..fresh };
        let stored = keeper.to_store();
        let clusters = NAMES.iter().map(|_| Cluster::default()).collect();
        let now = start;
        Self {
            settings,
            keeper,
            stored,
            clusters,
            requests: Vec::new(),
            answers: Vec::new(),
            now,
            start,
            all_end_within_an_hour: false,
        }
    }

    fn now(&self) -> Now {
        let wall = Moment::from_unix(1_000_000 + (self.now - self.start).as_secs());
        Now { elapsed: self.now, wall }
    }

    fn deliver(&mut self, (at, question, asked_at, request): (usize, u32, Now, LeaseRequest)) {
        let Ok((keeper, lease)) = self.keeper.grant(&self.settings, &request, self.now) else {
            return;
        };
        if !self.stored.covers(&keeper) {
            self.stored = keeper.to_store();
        }
        self.keeper = keeper;
        self.answers.push((at, question, asked_at, lease));
    }

    fn apply(&mut self, step: &Step) {
        let now = self.now();
        match step {
            &Step::Ask(at) => {
                let cluster = &mut self.clusters[at];
                cluster.question += 1;
                let (acts_on, used) = (cluster.granted.acts_on(), cluster.used(self.now));
                let request = request(NAMES[at], acts_on, used, share(9, 900));
                self.requests.push((at, cluster.question, now, request));
            }
            Step::DeliverRequest(at) if !self.requests.is_empty() => {
                let request = self.requests.remove(at.index(self.requests.len()));
                self.deliver(request);
            }
            Step::RepeatRequest(at) if !self.requests.is_empty() => {
                self.deliver(self.requests[at.index(self.requests.len())].clone());
            }
            Step::LoseRequest(at) if !self.requests.is_empty() => {
                self.requests.remove(at.index(self.requests.len()));
            }
            Step::DeliverAnswer(at) if !self.answers.is_empty() => {
                let (at, question, asked_at, lease) =
                    self.answers.remove(at.index(self.answers.len()));
                let cluster = &mut self.clusters[at];
                if cluster.question == question {
                    cluster.granted = Granted::answered(asked_at, lease);
                }
            }
            Step::LoseAnswer(at) if !self.answers.is_empty() => {
                self.answers.remove(at.index(self.answers.len()));
            }
            &Step::Start(at, bytes) => {
                let cluster = &mut self.clusters[at];
                let after = cluster.used(self.now).plus(share(1, bytes));
                if after.fits(cluster.granted.allowed(now)) {
                    cluster.running.push(self.now);
                    cluster.started.push((self.now, bytes));
                }
            }
            &Step::End(at) => {
                self.clusters[at].running.pop();
            }
            &Step::Pass(seconds) => {
                self.now += Duration::from_secs(seconds);
                if self.all_end_within_an_hour {
                    let now = self.now;
                    let recent = |began: &Instant| now - *began < BUDGET_PERIOD;
                    self.clusters.iter_mut().for_each(|it| it.running.retain(recent));
                }
            }
            // A keeper without its journal does not know members that are no longer listed.
            &Step::LoseKeeper(first_id) if self.settings.members.len() == NAMES.len() => {
                let first_id = (u64::from(first_id) + 1) << 12;
                self.keeper = Keeper::fresh(&self.settings, first_id, self.now);
                self.stored = self.keeper.to_store();
            }
            &Step::Remove(at) if self.keeper.unknown_until.is_none() => {
                self.settings.members.remove(NAMES[at]);
                // The keeper or its own configuration tells it.
                self.clusters[at].granted = Granted::default();
                self.clusters[at].question += 1;
            }
            Step::RestartKeeper => self.keeper = Keeper::restored(self.stored.clone(), self.now),
            &Step::RestartMember(at) => {
                let cluster = &mut self.clusters[at];
                cluster.granted = Granted::stored(cluster.granted.own_share());
                cluster.question += 1;
            }
            &Step::ChangeShares(to) => self.settings = shares(to),
            Step::DeliverRequest(_)
            | Step::RepeatRequest(_)
            | Step::LoseRequest(_)
            | Step::DeliverAnswer(_)
            | Step::LoseAnswer(_)
            | Step::LoseKeeper(_)
            | Step::Remove(_) => {}
        }
    }

    fn used(&self) -> Share {
        self.clusters.iter().map(|cluster| cluster.used(self.now)).sum()
    }
}

fn shares(other: bool) -> KeeperSettings {
    let of = if other {
        [share(0, 0), share(1, 100), share(2, 300)]
    } else {
        [share(2, 300), share(1, 0), share(0, 100)]
    };
    settings(share(5, 1_000), &[(NAMES[0], of[0]), (NAMES[1], of[1]), (NAMES[2], of[2])])
}

#[tokio::test(start_paused = true)]
async fn members_together_never_exceed_the_shared_limits() {
    proptest!(|(is_new in any::<bool>(), steps in proptest::collection::vec(step(), 1..400))| {
        let mut world = World::new(is_new);
        let total = world.settings.total();
        for step in &steps {
            world.apply(step);
            prop_assert!(world.used().fits(total), "{:?} after {:?}", world.used(), step);
        }
    });
}

/// Once the keeper's journal is lost, a silent member's compactions count for only an hour.
#[tokio::test(start_paused = true)]
async fn limits_hold_after_journal_loss_if_jobs_take_under_an_hour() {
    proptest!(|(steps in proptest::collection::vec(step_with_loss(), 1..400))| {
        let mut world = World { all_end_within_an_hour: true, ..World::new(true) };
        let total = world.settings.total();
        for step in &steps {
            world.apply(step);
            prop_assert!(world.used().fits(total), "{:?} after {:?}", world.used(), step);
        }
    });
}

#[tokio::test(start_paused = true)]
async fn shared_limits_are_fully_used_without_faults() {
    let mut world = World::new(false);
    for _ in 0..20 {
        for at in 0..3 {
            for _ in 0..4 {
                world.apply(&Step::Start(at, 100));
            }
            world.apply(&Step::Ask(at));
            let request = world.requests.remove(0);
            world.deliver(request);
            let (_, _, asked_at, lease) = world.answers.remove(0);
            let cluster = &mut world.clusters[at];
            cluster.granted = Granted::answered(asked_at, lease);
        }
        world.apply(&Step::Pass(15));
    }
    assert_eq!(world.used().jobs, 5);
}
