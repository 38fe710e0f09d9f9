use super::*;
use crate::{
    model::records::{RecoveredState, StateChange, SuspensionScope},
    store::journal::{ClusterIdentity, EventProgress},
};
use proptest::prelude::*;
use tokio::sync::oneshot::{self, error::TryRecvError};

/// The state of a journal, with a clock that only the test moves.
struct Driven {
    state: JournalState,
    now: Now,
}

impl Driven {
    fn unclaimed() -> Self {
        let now = Now { wall: Moment::from_unix(1_800_000_000), at: Instant::now() };
        Self { state: JournalState::new(None, now), now }
    }

    fn claimed() -> Self {
        let mut driven = Self::unclaimed();
        let (claim, _answer) = claim();
        assert_eq!(names(&driven.request([claim])), ["serve"]);
        let (answer, _) = oneshot::channel::<()>();
        assert_eq!(names(&driven.handle(Event::Claimed(Reply::new(answer, ())))), ["reply"]);
        driven
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let effects = self.state.handle(event, self.now);
        let operations = effects.iter().filter(|it| ends_with_operation(std::slice::from_ref(it)));
        let operations = operations.count();
        assert!(operations <= 1 && (operations == 1) == ends_with_operation(&effects));
        effects
    }

    fn request(&mut self, requests: impl IntoIterator<Item = JournalRequest>) -> Vec<Effect> {
        self.handle(Event::Requests(requests.into_iter().collect()))
    }

    fn pass(&mut self, time: Duration) {
        self.now = Now { wall: self.now.wall.plus(time), at: self.now.at + time };
    }

    /// How long the state waits before it wants to be woken.
    fn wait(&self) -> Duration {
        self.state.next_wake().saturating_duration_since(self.now.at)
    }

    /// Lets time pass until the state wants to be woken, and wakes it.
    fn wake(&mut self) -> Vec<Effect> {
        self.pass(self.wait());
        self.handle(Event::Wake)
    }

    /// Fails a write.
    fn fail(&mut self, failure: &FileFailure) {
        let (change, _answer) = change();
        assert_eq!(names(&self.request([change])), ["write 1"]);
        self.handle(Event::Written(Err(failure.clone())));
    }
}

/// The effects by name, with their numbers.
fn names(effects: &[Effect]) -> Vec<String> {
    let name = |effect: &Effect| match effect {
        Effect::Write(batch) => format!("write {}", batch.changes.len() + batch.events.len()),
        Effect::Serve(_) => "serve".to_owned(),
        Effect::CheckFile => "check".to_owned(),
        Effect::Retry => "retry".to_owned(),
        Effect::PublishHealth(None) => "healthy".to_owned(),
        Effect::PublishHealth(Some((_, why))) => format!("unhealthy: {why}"),
        Effect::SendStored(events) => format!("send {}", events.len()),
        Effect::CountDropped(events) => format!("drop {events}"),
        Effect::Reply(_) => "reply".to_owned(),
    };
    effects.iter().map(name).collect()
}

/// Sends the replies among these effects.
fn send_replies(effects: Vec<Effect>) {
    for effect in effects {
        if let Effect::Reply(reply) = effect {
            reply.send();
        }
    }
}

type Answer<T, E = StoreError> = oneshot::Receiver<Result<T, E>>;

fn change() -> (JournalRequest, Answer<()>) {
    let (answer, answered) = oneshot::channel();
    let change = StateChange::Resume { scope: SuspensionScope::All, by: None };
    (JournalRequest::ApplyChanges(vec![change], answer), answered)
}

fn events(count: usize) -> JournalRequest {
    JournalRequest::RecordEvents(vec![event(); count], EventProgress::default(), None)
}

fn event() -> EventDetails {
    EventDetails::Updated { db: "db".to_owned() }
}

fn query() -> (JournalRequest, Answer<Vec<crate::store::journal::OverriddenSetting>>) {
    let (answer, answered) = oneshot::channel();
    (JournalRequest::Query(Query::OverriddenSettings(answer)), answered)
}

fn claim() -> (JournalRequest, Answer<RecoveredState, crate::store::journal::ClaimError>) {
    let (answer, answered) = oneshot::channel();
    let cluster = ClusterIdentity::default();
    (JournalRequest::Query(Query::Claim(Box::new(cluster), answer)), answered)
}

fn failure(why: &str, is_readable: bool) -> FileFailure {
    FileFailure { why: StoreError(why.to_owned()), is_readable }
}

fn written() -> Event {
    Event::Written(Ok(Committed::default()))
}

#[test]
fn query_is_served_after_all_writes_requested_before_it() {
    let mut driven = Driven::claimed();
    let ((one, mut first), (two, mut second), (three, mut third)) = (change(), change(), change());
    let (query, _answer) = query();
    assert_eq!(names(&driven.request([one, two, query, three])), ["write 2"]);
    let effects = driven.handle(written());
    assert_eq!(names(&effects), ["healthy", "reply", "reply", "serve"]);
    assert_eq!(first.try_recv(), Err(TryRecvError::Empty), "answered once the effects are done");
    send_replies(effects);
    assert_eq!((first.try_recv(), second.try_recv()), (Ok(Ok(())), Ok(Ok(()))));
    let (answer, _) = oneshot::channel::<()>();
    let effects = driven.handle(Event::Served(Ok(()), Reply::new(answer, ())));
    assert_eq!(names(&effects), ["reply", "write 1"]);
    send_replies(driven.handle(written()));
    assert_eq!(third.try_recv(), Ok(Ok(())));
}

#[test]
fn nothing_is_written_before_the_claim() {
    let mut driven = Driven::unclaimed();
    let (early, mut refused) = change();
    let effects = driven.request([early, events(3)]);
    assert_eq!(names(&effects), ["drop 3", "reply"]);
    send_replies(effects);
    assert!(
        refused.try_recv().unwrap().unwrap_err().0.contains("does not belong to a cluster yet")
    );

    let ((claim, _), (later, _)) = (claim(), change());
    assert_eq!(names(&driven.request([claim, later])), ["serve"]);
    let (answer, _) = oneshot::channel::<()>();
    let effects = driven.handle(Event::Claimed(Reply::new(answer, ())));
    assert_eq!(names(&effects), ["reply", "write 1"]);
}

#[test]
fn claimed_journal_is_unused_while_couchdb_is_another_cluster() {
    let mut driven = Driven::claimed();
    let since = driven.now.wall;
    for _ in 0..2 {
        let (answer, _) = oneshot::channel::<()>();
        let refused = Event::ClaimRefused(StoreError("theirs".to_owned()), Reply::new(answer, ()));
        let effects = driven.handle(refused);
        assert_eq!(names(&effects), ["unhealthy: theirs", "reply"]);
        let Effect::PublishHealth(Some(failure)) = &effects[0] else { panic!("{effects:?}") };
        assert_eq!(failure, &(since, JournalFailure::OtherCluster("theirs".to_owned())));
        driven.pass(Duration::from_secs(1));
    }
    let ((change, mut written), (query, mut read)) = (change(), query());
    let effects = driven.request([change, query]);
    assert_eq!(names(&effects), ["reply", "reply"]);
    send_replies(effects);
    let why = || StoreError("theirs".to_owned());
    assert_eq!((written.try_recv(), read.try_recv()), (Ok(Err(why())), Ok(Err(why()))));

    let (answer, _) = oneshot::channel::<()>();
    let claimed = Event::Claimed(Reply::new(answer, ()));
    assert_eq!(names(&driven.handle(claimed)), ["healthy", "reply"]);
}

#[test]
fn write_failure_is_published_before_requesters_are_answered() {
    let mut driven = Driven::claimed();
    let (change, mut answer) = change();
    assert_eq!(names(&driven.request([change, events(2)])), ["write 3"]);
    let effects = driven.handle(Event::Written(Err(failure("disk full", true))));
    assert_eq!(names(&effects), ["unhealthy: disk full", "drop 2", "reply"]);
    send_replies(effects);
    assert_eq!(answer.try_recv(), Ok(Err(StoreError("disk full".to_owned()))));
}

#[test]
fn failure_refuses_writes_and_unreadable_file_refuses_queries() {
    for is_readable in [true, false] {
        let mut driven = Driven::claimed();
        driven.fail(&failure("broken", is_readable));
        let ((change, mut written), (query, mut read)) = (change(), query());
        let effects = driven.request([change, query]);
        let expected = if is_readable { ["reply", "serve"] } else { ["reply", "reply"] };
        assert_eq!(names(&effects), expected);
        send_replies(effects);
        let why = || StoreError("broken".to_owned());
        assert_eq!(written.try_recv(), Ok(Err(why())));
        let expected = if is_readable { Err(TryRecvError::Closed) } else { Ok(Err(why())) };
        assert_eq!(read.try_recv(), expected);
    }
}

#[test]
fn retries_slow_down_and_keep_the_time_of_the_first_failure() {
    let mut driven = Driven::claimed();
    let since = driven.now.wall;
    driven.fail(&failure("one", true));
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        let due = driven.now.at + Duration::from_secs(seconds);
        let effects = loop {
            // The other timers continue, but a file that is known to be unusable is not checked.
            let effects = driven.wake();
            match names(&effects)[..] {
                [] => {}
                _ => break effects,
            }
        };
        assert_eq!((names(&effects), driven.now.at), (vec!["retry".to_owned()], due));
        let effects = driven.handle(Event::Retried(Err(failure("two", false))));
        let [Effect::PublishHealth(Some((published, why)))] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!((*published, why.to_string().as_str()), (since, "two"));
    }
    driven.pass(Duration::from_secs(30));
    assert_eq!(names(&driven.handle(Event::Wake)), ["retry"]);
    assert_eq!(names(&driven.handle(Event::Retried(Ok(())))), ["healthy"]);
    let (change, _) = change();
    assert_eq!(names(&driven.request([change])), ["write 1"]);
    // The next failure begins with the shortest delay again.
    driven.handle(Event::Written(Err(failure("three", true))));
    let failure = driven.state.failure.unwrap();
    assert_eq!(failure.retry_at, driven.now.at + MIN_RETRY_DELAY);
}

#[test]
fn failed_read_also_fails_waiting_writes() {
    let mut driven = Driven::claimed();
    let ((query, _), (change, mut answer)) = (query(), change());
    assert_eq!(names(&driven.request([query, change])), ["serve"]);
    let (reply, _) = oneshot::channel::<()>();
    let served = Event::Served(Err(failure("damaged", false)), Reply::new(reply, ()));
    let effects = driven.handle(served);
    assert_eq!(names(&effects), ["unhealthy: damaged", "reply", "reply"]);
    send_replies(effects);
    assert_eq!(answer.try_recv(), Ok(Err(StoreError("damaged".to_owned()))));
}

#[test]
fn events_are_batched_for_half_a_second_or_until_a_request() {
    let mut driven = Driven::claimed();
    assert!(driven.handle(Event::Recorded(event())).is_empty());
    driven.pass(Duration::from_millis(300));
    assert!(driven.handle(Event::Recorded(event())).is_empty());
    assert_eq!(driven.wait(), Duration::from_millis(200), "the first event counts");
    assert_eq!(names(&driven.wake()), ["write 2"]);
    driven.handle(written());

    driven.handle(Event::Recorded(event()));
    let (change, _) = change();
    assert_eq!(names(&driven.request([change])), ["write 2"]);
    driven.handle(written());
    assert_eq!(driven.wait(), Duration::from_millis(4_500), "only the file check is left");
    assert_eq!(names(&driven.wake()), ["check"]);
}

#[test]
fn waiting_events_are_written_at_shutdown() {
    let mut driven = Driven::claimed();
    assert!(driven.handle(Event::Stopping).is_empty(), "nothing waits");
    driven.handle(Event::Recorded(event()));
    driven.handle(Event::Recorded(event()));
    assert_eq!(names(&driven.handle(Event::Stopping)), ["write 2"]);
    assert_eq!(names(&driven.handle(written())), ["healthy"]);
    // While the file cannot be written, they are counted as dropped.
    driven.fail(&failure("broken", true));
    driven.handle(Event::Recorded(event()));
    assert_eq!(names(&driven.handle(Event::Stopping)), ["drop 1"]);
}

#[test]
fn failed_write_drops_events_and_leaves_nothing_for_shutdown() {
    let mut driven = Driven::claimed();
    driven.handle(Event::Recorded(event()));
    let (change, mut answer) = change();
    assert_eq!(names(&driven.request([change])), ["write 2"]);
    let effects = driven.handle(Event::Written(Err(failure("broken", true))));
    assert_eq!(names(&effects), ["unhealthy: broken", "drop 1", "reply"]);
    send_replies(effects);
    assert!(answer.try_recv().unwrap().is_err());
    assert!(driven.handle(Event::Stopping).is_empty());
}

#[test]
fn incomplete_trim_continues_after_waiting_requests() {
    let mut driven = Driven::claimed();
    let more = || Event::Written(Ok(Committed { has_more_to_trim: true, new_events: Vec::new() }));
    let (change, _) = change();
    driven.request([change]);
    driven.handle(more());
    assert!(driven.wait() > Duration::ZERO, "a request does not trim more than its share");
    let began = driven.now.at;
    let trims = |driven: &mut Driven| loop {
        match names(&driven.wake()).first().map(String::as_str) {
            Some("check") => assert!(driven.handle(Event::FileChecked(Ok(()))).is_empty()),
            Some("write 0") => break,
            other => panic!("{other:?}"),
        }
    };
    trims(&mut driven);
    assert_eq!(driven.now.at, began + TRIM_INTERVAL);
    driven.handle(more());
    assert_eq!(driven.wait(), Duration::ZERO);
    trims(&mut driven);
    assert_eq!(driven.now.at, began + TRIM_INTERVAL);
    driven.handle(written());
    trims(&mut driven);
    assert_eq!(driven.now.at, began + TRIM_INTERVAL * 2);
}

#[test]
fn commits_are_limited_in_size() {
    let mut driven = Driven::claimed();
    let changes = (0..MAX_REQUESTS_PER_COMMIT + 1).map(|_| change().0);
    assert_eq!(names(&driven.request(changes)), ["write 256"]);
    assert_eq!(names(&driven.handle(written())).last().unwrap(), "write 1");
    driven.handle(written());

    let batches = (0..3).map(|_| events(EVENT_QUEUE_LEN / 2));
    assert_eq!(names(&driven.request(batches)), ["write 4096"]);
    assert_eq!(names(&driven.handle(written())).last().unwrap(), "write 2048");
    driven.handle(written());

    assert!(driven.state.accepts_events());
    for _ in 0..EVENT_QUEUE_LEN {
        driven.handle(Event::Recorded(event()));
    }
    assert!(!driven.state.accepts_events());
}

#[test]
fn empty_request_writes_nothing() {
    let mut driven = Driven::claimed();
    assert!(driven.request([events(0)]).is_empty());
    assert_eq!(names(&driven.request([events(0), events(1)])), ["write 1"]);
}

/// One event in the test of the journal.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Requests { changes: usize, events: usize, queries: usize },
    Event,
    Wake,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0_usize..4, 0_usize..4, 0_usize..3).prop_map(|(changes, events, queries)| {
            Happening::Requests { changes, events, queries }
        }),
        Just(Happening::Event),
        Just(Happening::Wake),
    ]
}

/// A file with random failures, and what was written to it.
#[derive(Default)]
struct RandomFile {
    events_written: usize,
    events_dropped: usize,
}

impl RandomFile {
    /// Performs effects, and those that follow from their results. The file fails when `works` returns false.
    fn perform(&mut self, driven: &mut Driven, event: Event, works: &mut impl FnMut() -> bool) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            for effect in driven.handle(event) {
                let mut result = || if works() { Ok(()) } else { Err(failure("broken", works())) };
                match effect {
                    Effect::Write(batch) => {
                        let result = result();
                        if result.is_ok() {
                            self.events_written += batch.events.len();
                        }
                        next = Some(Event::Written(result.map(|()| Committed::default())));
                    }
                    Effect::Serve(query) => {
                        let result = result();
                        let why = StoreError("served".to_owned());
                        next = Some(Event::Served(result, query.refuse(why)));
                    }
                    Effect::CheckFile => next = Some(Event::FileChecked(result())),
                    Effect::Retry => next = Some(Event::Retried(result())),
                    Effect::CountDropped(events) => self.events_dropped += events,
                    Effect::Reply(reply) => reply.send(),
                    Effect::PublishHealth(_) | Effect::SendStored(_) => {}
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_request_is_answered_and_every_event_is_accounted_for(
        happenings in proptest::collection::vec(happening(), 1..40),
        works in proptest::collection::vec(proptest::bool::weighted(0.7), 1..40),
    ) {
        let mut driven = Driven::claimed();
        let mut file = RandomFile::default();
        let mut works = works.into_iter().cycle();
        let mut works = || works.next().unwrap();
        let (mut recorded, mut changes_asked, mut queries_asked) = (0, Vec::new(), Vec::new());
        for happening in happenings {
            let event = match happening {
                Happening::Requests { changes, events: count, queries } => {
                    recorded += count;
                    let mut requests = vec![events(count)];
                    for _ in 0..changes {
                        let (request, answer) = change();
                        requests.push(request);
                        changes_asked.push(answer);
                    }
                    for _ in 0..queries {
                        let (request, answer) = query();
                        requests.insert(requests.len() / 2, request);
                        queries_asked.push(answer);
                    }
                    Event::Requests(requests)
                }
                Happening::Event => {
                    recorded += 1;
                    Event::Recorded(event())
                }
                Happening::Wake => {
                    driven.pass(driven.wait());
                    Event::Wake
                }
            };
            file.perform(&mut driven, event, &mut works);
            // While the task is idle, no request is waiting.
            for mut answer in changes_asked.drain(..) {
                prop_assert!(answer.try_recv().is_ok());
            }
            for mut answer in queries_asked.drain(..) {
                prop_assert!(answer.try_recv().is_ok());
            }
        }
        file.perform(&mut driven, Event::Stopping, &mut works);
        prop_assert_eq!(file.events_written + file.events_dropped, recorded);
    }
}
