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
