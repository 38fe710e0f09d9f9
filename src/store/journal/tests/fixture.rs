//! Journals of earlier releases, which every later version must read.
//!
//! `tests/data/journals` has a file of each release that changed what is written. For a new one:
//!
//! 1. Describe its content in a function beside [`contents_of_0_1_0`] and add it to [`RELEASES`].
//! 2. Write the file, with the code of that release:
//!    `RECLINER_WRITE=1 cargo test --lib store::journal::tests::fixture::writes_the_journal -- --ignored`
//! 3. Keep the earlier files and their tests.

use super::{
    super::{
        feed_tables as feed, marks, measured,
        store::{JournalStore, WriteBatch},
        tables::StoredFormat,
    },
    copy::dump,
    *,
};
use crate::{
    model::{
        facts::{Facts, OptionalU64},
        records::{
            AdviceKey, AdviceRecord, BuildSpeed, BuildSpeeds, Mute, RunEnding, ScorecardSide,
        },
        target::TargetKind,
    },
    table::{DbName, Draft, PublishedDbState, ShardMapEntry, TableBlock},
    text::Label,
};
use couchdb_client::wire::DbChange;
use couchdb_names::Range;
use redb::ReadableDatabase as _;
use serde_json::json;
use std::path::PathBuf;

/// A release with a file of its own.
struct Release {
    version: &'static str,
    /// The format of its journal.
    schema: u32,
    contents: fn() -> Contents,
}

/// The releases, oldest first. The newest one writes what this version writes.
const RELEASES: [Release; 1] =
    [Release { version: "0.1.0", schema: 2, contents: contents_of_0_1_0 }];

impl Release {
    fn file(&self) -> PathBuf {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/journals");
        PathBuf::from(directory).join(format!("{}.redb", self.version))
    }

    /// Copies its file to a directory, as the journal there.
    fn copy_to(&self, directory: &std::path::Path) -> DirectoryStorage {
        std::fs::copy(self.file(), directory.join("journal.redb")).expect("the file is there");
        DirectoryStorage::new(directory)
    }
}

/// Everything that a journal can have.
struct Contents {
    cluster: ClusterIdentity,
    changes: Vec<StateChange>,
    setting_overrides: Vec<(OverriddenSetting, bool)>,
    events: Vec<EventDetails>,
    progress: EventProgress,
    blocks: Vec<TableBlock>,
}

fn at(seconds: u64) -> Moment {
    Moment::from_unix(1_795_000_000 + seconds)
}

/// When the content is written, and read again.
fn now() -> Moment {
    at(600)
}

const NODE: &str = "couchdb@a";

fn shard(number: u64) -> TargetId {
    format!("db:{NODE}/shards%2F00000000-7fffffff%2Fdb{number}.17").parse().expect("it is an id")
}

/// One outcome of each result, kind and owner.
fn outcomes() -> Vec<Outcome> {
    use JobResult::{Failed, Freed, Grew, Lost, NothingFreed, Unmeasured};
    let view: TargetId =
        "view:_cluster/orders.17/0f045e3b41d71d93aaa32f23021ba536".parse().expect("it is an id");
    let cleanup: TargetId = "cleanup:orders".parse().expect("it is an id");
    [
        (Freed, shard(1), TargetKind::Db),
        (NothingFreed, view, TargetKind::View),
        (Grew, shard(2), TargetKind::Db),
        (Unmeasured, cleanup, TargetKind::Cleanup),
        (Failed, shard(3), TargetKind::Db),
        (Lost, shard(4), TargetKind::Db),
    ]
    .into_iter()
    .zip(1..)
    .map(|((ending, target, kind), number)| Outcome {
        target,
        kind,
        node: if kind == TargetKind::Db { NODE.into() } else { "_cluster".into() },
        design: (kind == TargetKind::View).then(|| "_design/reports".into()),
        channel: (number % 2 == 1).then(|| "ratio_dbs".into()),
        owner: if number % 2 == 1 { JobOwner::Recliner } else { JobOwner::Other },
        ordered_by: (number == 1).then(|| "ann from 10.0.0.7".into()),
        started_at: at(number),
        ended_after: None,
        charged_bytes: None,
        ended_at: at(number + 60),
        before_bytes: Some(1000 * number),
        after_bytes: (number < 4).then_some(400 * number * number),
        predicted_bytes: (number < 4).then_some(500),
        ending,
        why: (ending == Failed).then(|| "the server answered 500".into()),
    })
    .collect()
}

/// Records of targets, as 0.1.0 writes them.
fn target_records() -> Vec<(TargetId, TargetRecord)> {
    let empty = json!({
        "failures": 0, "failed_at": null, "rests_until": null, "quarantined_since": null,
        "futile": null, "copies_done": [],
    });
    [
        json!({ "failures": 2, "failed_at": at(5), "rests_until": at(1205) }),
        json!({ "failures": 5, "failed_at": at(6), "quarantined_since": at(6) }),
        json!({ "futile": {
            "at": at(7), "file_bytes": 4096, "active_bytes": 4000, "update_seq": 9,
            "caught_up": { "changes": 3, "seconds": 2 },
        } }),
        json!({ "copies_done": ["couchdb@a", "couchdb@b"] }),
        json!({ "ordered": { "at": at(8), "until": at(3608), "by": "ann", "force": true } }),
    ]
    .into_iter()
    .zip(11..)
    .map(|(fields, number)| {
        let mut record = empty.clone();
        let fields = fields.as_object().expect("it is an object").clone();
        record.as_object_mut().expect("it is an object").extend(fields);
        (shard(number), serde_json::from_value(record).expect("it is a record"))
    })
    .collect()
}

fn open_start(number: u64) -> Intent {
    Intent {
        target: shard(number),
        node: NODE.into(),
        shard: Some(format!("shards/00000000-7fffffff/db{number}.17")),
        design: None,
        channel: "slack_dbs".into(),
        ordered_by: (number == 22).then(|| "ann".into()),
        run: None,
        at: at(number),
        file_bytes: Some(1000),
        active_bytes: Some(10),
        update_seq: Some(5),
        compacted_seq: Some(2),
        predicted_bytes: Some(20),
        fitted_bytes: None,
        peak_bytes: 22,
    }
}

/// One event of each type.
fn events() -> Vec<EventDetails> {
    let (target, channel, node) = (shard(1), "ratio_dbs".to_owned(), NODE.to_owned());
    let (by, ann) = ("ann".to_owned(), Some("ann".to_owned()));
    let (code, subject) = ("orphan_shards".to_owned(), NODE.to_owned());
    let summary = EventSummary {
        also: vec![shard(2)],
        targets: Some(9),
        count: Some(7),
        first: Some(at(3)),
        last: Some(at(8)),
    };
    vec![
        EventDetails::Queued {
            target: target.clone(),
            channel: channel.clone(),
            summary: EventSummary::default(),
        },
        EventDetails::Refused {
            target: target.clone(),
            channel: channel.clone(),
            reason: "headroom".into(),
            summary,
        },
        EventDetails::Omitted { of: "queued".into(), targets: 9 },
        EventDetails::Started {
            target: target.clone(),
            node: node.clone(),
            channel,
            ordered_by: ann.clone(),
        },
        EventDetails::NotStarted {
            target: target.clone(),
            node: node.clone(),
            why: Some("refused".into()),
        },
        EventDetails::Finished {
            target: target.clone(),
            node,
            owner: JobOwner::Other,
            result: JobResult::Grew,
            freed_bytes: Some(-1),
        },
        EventDetails::Suspended {
            scope: SuspensionScope::Node(NODE.into()),
            by: ann.clone(),
            why: Some("disk".into()),
        },
        EventDetails::Resumed { scope: SuspensionScope::All, by: ann.clone() },
        EventDetails::RunBegan {
            run: 3,
            db: Some("orders".into()),
            node: None,
            by: by.clone(),
            force: true,
        },
        EventDetails::RunEnded {
            run: 3,
            db: None,
            node: Some(NODE.into()),
            result: RunEnding::Cancelled,
            by: ann.clone(),
            done: 5,
            members: 24,
            freed_bytes: Some(-1),
        },
        EventDetails::Ordered { target: target.clone(), by: by.clone(), force: true },
        EventDetails::Lapsed { target: target.clone(), by },
        EventDetails::Quarantined { target: target.clone(), failures: 5 },
        EventDetails::Released { target: target.clone() },
        EventDetails::TakenOver(setting("index_cleanup")),
        EventDetails::Restored(setting("index_cleanup")),
        EventDetails::IndexBuildStarted { target: target.clone(), class: "batch".into() },
        EventDetails::IndexBuildFinished { target, result: "built".into(), why: None },
        EventDetails::AdviceGiven { code: code.clone(), subject: subject.clone() },
        EventDetails::AdviceGone { code: code.clone(), subject: subject.clone() },
        EventDetails::AdviceMuted {
            code: code.clone(),
            subject: Some(subject.clone()),
            until: at(900),
            by: ann.clone(),
            why: Some("archived".into()),
        },
        EventDetails::AdviceUnmuted { code, subject: Some(subject) },
        EventDetails::Created { db: "orders".into() },
        EventDetails::Updated { db: "orders".into() },
        EventDetails::Deleted { db: "carts".into() },
    ]
}

fn setting(channel: &str) -> OverriddenSetting {
    OverriddenSetting {
        node: NODE.into(),
        section: format!("smoosh.{channel}"),
        key: "concurrency".into(),
        was: Some("2".into()),
    }
}

/// A measured shard.
fn block() -> TableBlock {
    let mut draft = Draft::new(1);
    let node = draft.get_or_add_node(NODE);
    let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".17" });
    let ix = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: 0x7fff_ffff }));
    draft.set_shard_map(db, ShardMapEntry { copies: 3, ranges: 2 }, &[]);
    draft.set_facts(ix, facts());
    draft.publish(now()).build_block(0).compress()
}

fn facts() -> Facts {
    Facts { update_seq: OptionalU64::new(77), ..Facts::sized(1 << 20, 1 << 18) }
}

/// One record of each part of the scorecard.
fn scorecard() -> Vec<StateChange> {
    let side = ScorecardSide {
        compactions: 3,
        freed_bytes: 1 << 30,
        waste_byte_seconds: 1.5e12,
        ..ScorecardSide::default()
    };
    let hour = ScorecardHour {
        advised_seconds: 3_000,
        enforced_seconds: 60,
        real: side,
        advised: ScorecardSide { unmeasured: 1, ..side },
        conflicts: 2,
        is_incomplete: true,
    };
    let target = AdvisedTarget {
        compacted_at: at(14),
        file_bytes: 5_000,
        left_bytes: 2_000,
        active_bytes: Some(1_800),
        left_active_bytes: None,
        update_seq: Some(70),
        compacted_seq: Some(60),
    };
    let job = AdvisedJob {
        target: shard(2),
        node: NODE.into(),
        shard: Some("shards/00000000-7fffffff/db2.17".into()),
        design: None,
        channel: "ratio_dbs".into(),
        started_at: at(590),
        ends_at: at(700),
        rewrite_bytes: 900,
        peak_bytes: 2_000,
        is_in_conflict: true,
    };
    let changes = [
        ScorecardChange::Hour(498_611, Some(hour)),
        ScorecardChange::Target(shard(1), Some(target)),
        ScorecardChange::Jobs(vec![job]),
    ];
    changes.map(StateChange::Scorecard).into()
}

/// Advice that is given, that is gone, and that is muted.
fn advice() -> Vec<StateChange> {
    let mute = Mute { since: at(15), until: at(9_000), by: Some("ann".into()), why: None };
    let given = AdviceRecord { first_seen: Some(at(16)), ..AdviceRecord::default() };
    let gone = AdviceRecord { gone_at: Some(at(17)), ..given.clone() };
    let muted = AdviceRecord { mute: Some(mute), ..AdviceRecord::default() };
    let keys =
        [AdviceKey::of("stale_indexes", "orders".into()), AdviceKey::of("trash", NODE.into())];
    let all = AdviceKey::of_code("lagging_index");
    let records = keys.into_iter().chain([all]).zip([given, gone, muted]);
    records.map(|(key, record)| StateChange::SetAdvice(key, Some(record))).collect()
}

fn contents_of_0_1_0() -> Contents {
    let suspension = |why: Option<&str>| Suspension {
        since: at(3),
        by: Some("ann from 10.0.0.7".into()),
        why: why.map(str::to_owned),
    };
    let ended =
        outcomes().into_iter().map(|outcome| StateChange::JobEnded { outcome, closes: None });
    let records = target_records()
        .into_iter()
        .map(|(target, record)| StateChange::SetTargetRecord(target, Some(record)));
    let speed = BuildSpeed {
        db: "orders".into(),
        design: "_design/reports".into(),
        node: NODE.into(),
        language: Some("javascript".into()),
        views: Some(2),
        changes: 40_000,
        seconds: 20,
        indexers: 2,
        at: at(12),
    };
    let calibration = Calibration {
        headroom_factor: Some(2.5),
        rate: Some(1.5),
        db_ratio: Some(1.25),
        view_ratio: Some(0.5),
        builds: BuildSpeeds(vec![speed]),
    };
    let others = [
        StateChange::StartIntended(open_start(21)),
        StateChange::StartIntended(open_start(22)),
        StateChange::Suspend(SuspensionScope::All, suspension(Some("a move"))),
        StateChange::Suspend(SuspensionScope::Node(NODE.into()), suspension(None)),
        StateChange::Suspend(SuspensionScope::Channel("slack_dbs".into()), suspension(None)),
        StateChange::Calibrate(calibration),
        StateChange::SetCorrection(
            CorrectionKey { db: "orders".into(), suffix: ".17".into(), kind: TargetKind::Db },
            Some(CorrectionRecord { at: at(13), outcomes: 2.5, ..CorrectionRecord::default() }),
        ),
    ];
    let mark = PublishedDbState {
        db: "orders".into(),
        suffix: ".17".into(),
        there: true,
        fresh: false,
        copies: vec![(NODE.into(), 0, 0x7fff_ffff, 78)],
    };
    let position =
        FeedPosition { seq: "12-g1AAAA".into(), created_at: Some("1795000000".into()), at: at(9) };
    Contents {
        cluster: ClusterIdentity {
            uuids: ["0c5c7bd14a1f2cc0ab2d1f6d0f1ad9a1".to_owned()].into(),
            nodes: [NODE.to_owned(), "couchdb@b".to_owned()].into(),
        },
        changes: ended.chain(records).chain(others).chain(scorecard()).chain(advice()).collect(),
        setting_overrides: vec![(setting("ratio_dbs"), true)],
        events: events(),
        progress: EventProgress { position: Some(position), marks: vec![mark] },
        blocks: vec![block()],
    }
}

impl Contents {
    /// Writes everything as the journal of a directory.
    fn write_to(&self, storage: &DirectoryStorage) {
        let mut store = JournalStore::open(storage, true).unwrap();
        store.claim(&self.cluster).unwrap();
        let (changes, events) = (self.changes.clone(), self.events.clone());
        let budgets = work::JournalRetention::default();
        let first = WriteBatch { changes, ..WriteBatch::default() };
        let second = WriteBatch {
            setting_overrides: self.setting_overrides.clone(),
            events,
            progress: self.progress.clone(),
            backup_at: Some(at(599)),
            ..WriteBatch::default()
        };
        for batch in [first, second] {
            assert!(!store.write(&batch, &budgets, now()).unwrap());
        }
        let measured = MeasuredBlocks { changed: self.blocks.clone(), ..MeasuredBlocks::default() };
        store.save_measurements(&measured).unwrap();
        store.close().unwrap();
    }
}

#[test]
fn journal_of_the_newest_release_has_every_event_type() {
    let newest = RELEASES.last().expect("there is a release");
    let events = (newest.contents)().events;
    let has = |wanted: &EventType| events.iter().any(|event| event.event_type() == *wanted);
    let missing: Vec<EventType> = EventType::each().filter(|it| !has(it)).collect();
    assert_eq!(missing, []);
}

#[test]
#[ignore = "writes the file of a release"]
fn writes_the_journal_of_the_newest_release() {
    if std::env::var_os("RECLINER_WRITE").is_none() {
        return;
    }
    let newest = RELEASES.last().expect("there is a release");
    assert_eq!(newest.version, env!("CARGO_PKG_VERSION"), "the file is written by its own release");
    let dir = tempfile::tempdir().unwrap();
    (newest.contents)().write_to(&DirectoryStorage::new(dir.path()));
    std::fs::create_dir_all(newest.file().parent().unwrap()).unwrap();
    std::fs::copy(dir.path().join("journal.redb"), newest.file()).unwrap();
}

#[test]
fn the_journal_of_each_release_is_read_and_continued() {
    for release in &RELEASES {
        let dir = tempfile::tempdir().unwrap();
        let storage = release.copy_to(dir.path());
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(dir.path().join("journal.redb"))
            .unwrap();
        let summary = check_copy(&file, "the fixture").unwrap();
        drop(file);
        let mut store = JournalStore::open(&storage, false).unwrap();
        let expected = (release.contents)();
        check_state(&store, &expected);
        check_entries(&store, &expected);
        assert_eq!(summary.last_seq, store.last_seq());
        assert_eq!((summary.outcomes, summary.last_at), (6, Some(now())));

        let more = WriteBatch {
            changes: vec![ended(1)],
            events: vec![EventDetails::Created { db: "later".into() }],
            ..WriteBatch::default()
        };
        store.write(&more, &work::JournalRetention::default(), moment(9)).unwrap();
        assert_eq!(store.last_seq(), summary.last_seq + 3);
        store.close().unwrap();
        // Opened again, now in the format of this version.
        let store = JournalStore::open(&storage, false).unwrap();
        assert!(store.load_state(now()).unwrap().remembered.len() == 5);
    }
}

/// Checks the state from which the job state task and others continue.
fn check_state(store: &JournalStore, expected: &Contents) {
    assert_eq!(store.cluster().unwrap().as_ref(), Some(&expected.cluster));
    let mut state = RecoveredState::default();
    expected.changes.iter().cloned().for_each(|change| state.apply(change));
    assert_eq!(store.load_state(now()).unwrap(), state);
    let kept: Vec<_> =
        expected.setting_overrides.iter().map(|(setting, _)| setting.clone()).collect();
    assert_eq!(store.overridden_settings().unwrap(), kept);
    assert_eq!(store.feed_position().unwrap(), expected.progress.position);
    let tx = store.begin_read().unwrap();
    assert_eq!(marks::read(&tx).unwrap(), expected.progress.marks);
    let blocks = measured::read(&tx).unwrap();
    assert_eq!(blocks.len(), expected.blocks.len());
    let mut draft = Draft::new(1);
    draft.restore(&blocks[0]).unwrap();
    let tables = draft.publish(now());
    let found: Vec<_> = tables.targets().map(|it| (it.node().to_owned(), it.facts())).collect();
    let found = found.into_iter().map(|(node, it)| (node, Facts { measured_at: None, ..it }));
    assert_eq!(found.collect::<Vec<_>>(), [(NODE.to_owned(), facts())]);
}

/// Checks events, outcomes and the feed.
fn check_entries(store: &JournalStore, expected: &Contents) {
    let tx = store.begin_read().unwrap();
    let query = HistoryQuery { limit: usize::MAX, ..HistoryQuery::default() };
    let history = query::history(&tx, &query).unwrap().entries;
    let history: Vec<_> = history.into_iter().rev().map(|(_, outcome)| outcome).collect();
    assert_eq!(history, outcomes());
    let query = EventsQuery { after_seq: Some(0), limit: usize::MAX, ..EventsQuery::default() };
    let events = query::events(&tx, &query).unwrap().entries;
    assert!(events.iter().all(|(_, event)| event.at == now()));
    let events: Vec<_> = events.into_iter().map(|(_, event)| event.details).collect();
    assert!(events.ends_with(&expected.events), "{events:?}");
    let query = FeedQuery {
        start: FeedStart::Beginning,
        until: None,
        newest_first: false,
        limit: usize::MAX,
    };
    let entries = feed::read(&tx, &query).unwrap().entries;
    let entries: Vec<_> = entries.iter().map(|it| (it.change, &*it.db)).collect();
    use DbChange::{Created, Deleted, Updated};
    assert_eq!(entries, [(Created, "orders"), (Updated, "orders"), (Deleted, "carts")]);
}

#[test]
fn this_version_writes_the_same_records_as_the_newest_release() {
    let newest = RELEASES.last().expect("there is a release");
    assert_eq!(
        tables::SCHEMA,
        newest.schema,
        "the format has changed: add a file of the new release, and keep that of {}",
        newest.version
    );
    let (now, before) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (contents, storage) = ((newest.contents)(), DirectoryStorage::new(now.path()));
    contents.write_to(&storage);
    // Not compared: eras, which have random names; the version, which differs with each release; and
    // blocks, which have their own version.
    let is_fixed = |line: &String| {
        !["meta \"eras\"", "meta \"version\"", "measured "].iter().any(|it| line.starts_with(it))
    };
    let read = |storage: &DirectoryStorage| -> Vec<String> {
        let store = JournalStore::open(storage, false).unwrap();
        dump(&store.begin_read().unwrap()).into_iter().filter(is_fixed).collect()
    };
    let (written, stored) = (read(&storage), read(&newest.copy_to(before.path())));
    assert!(stored.len() > 50, "{stored:#?}");
    for (written, stored) in written.iter().zip(&stored) {
        assert_eq!(
            written, stored,
            "records are written in another form than by {}: can that release still read them? If \
             not, raise SCHEMA, convert older files, and add a file of the new release. If it can, \
             add the file all the same.",
            newest.version
        );
    }
    assert_eq!(written.len(), stored.len());
}

#[test]
fn a_journal_of_a_newer_version_is_refused_and_left_as_it_is() {
    let newest = RELEASES.last().expect("there is a release");
    for (version, writer) in [
        (Some("0.9.0"), "written by recliner 0.9.0,"),
        (None, "written by another version of recliner,"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let storage = newest.copy_to(dir.path());
        let database = storage.open(false).unwrap();
        let tx = database.begin_write().unwrap();
        {
            let mut meta = tx.open_table(tables::META).unwrap();
            meta.insert("schema", (tables::SCHEMA + 1).to_string().as_bytes()).unwrap();
            match version {
                Some(version) => {
                    meta.insert("version", format!("{version:?}").as_bytes()).unwrap();
                }
                None => drop(meta.remove("version").unwrap()),
            }
        }
        tx.commit().unwrap();
        let before = dump(&database.begin_read().unwrap());
        database.close().unwrap();
        let path = dir.path().join("journal.redb");
        let refused = RunningJournal::open(storage.clone()).err().unwrap();
        assert_eq!(
            refused.to_string(),
            format!(
                "{} has format 3, {writer} but this version, {}, reads formats up to 2; its content \
                 is unchanged: run the version that wrote it, or restore a backup from before the upgrade",
                path.display(),
                env!("CARGO_PKG_VERSION")
            )
        );
        let database = storage.open(false).unwrap();
        assert_eq!(dump(&database.begin_read().unwrap()), before);
        database.close().unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let refused = check_copy(&file, "copy").unwrap_err().to_string();
        assert!(refused.starts_with("copy has format 3, written by "), "{refused}");
    }
}

#[test]
fn journal_records_which_version_wrote_it() {
    let newest = RELEASES.last().expect("there is a release");
    let dir = tempfile::tempdir().unwrap();
    let storage = newest.copy_to(dir.path());
    let database = storage.open(false).unwrap();
    let tx = database.begin_write().unwrap();
    tx.open_table(tables::META).unwrap().insert("version", &b"\"0.0.9\""[..]).unwrap();
    tx.commit().unwrap();
    database.close().unwrap();
    let version = |store: &JournalStore| {
        let format = StoredFormat::read(&store.begin_read().unwrap()).unwrap();
        format.refused(String::new()).to_string()
    };
    let mut store = JournalStore::open(&storage, false).unwrap();
    assert!(version(&store).contains("recliner 0.0.9,"), "reading changes nothing");
    let events = vec![EventDetails::Released { target: shard(1) }];
    let batch = WriteBatch { events, ..WriteBatch::default() };
    store.write(&batch, &work::JournalRetention::default(), now()).unwrap();
    assert!(version(&store).contains(&format!("recliner {},", env!("CARGO_PKG_VERSION"))));
}
