use super::{super::store::JournalStore, *};
use crate::{table::TableBlock, unprivileged::ran_as_nobody};
use proptest::prelude::*;
use std::path::Path;

/// A change made to the file from outside.
#[derive(Clone, Debug)]
enum Damage {
    Truncate(f64),
    Overwrite { from: f64, length: usize, with: u8 },
    Flip(f64),
    Grow(usize),
}

fn any_damage() -> impl Strategy<Value = Damage> {
    let part = 0.0..1.0_f64;
    prop_oneof![
        part.clone().prop_map(Damage::Truncate),
        (part.clone(), 1_usize..20_000, any::<u8>())
            .prop_map(|(from, length, with)| Damage::Overwrite { from, length, with }),
        // The start of the file holds the most important structures.
        (0.0..0.02_f64, 1_usize..400, any::<u8>())
            .prop_map(|(from, length, with)| Damage::Overwrite { from, length, with }),
        part.prop_map(Damage::Flip),
        (1_usize..10_000).prop_map(Damage::Grow),
    ]
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a length"
        )]
        let at = |part: f64| (length as f64 * part) as usize;
        match self {
            Self::Truncate(part) => bytes.truncate(at(*part)),
            Self::Overwrite { from, length, with } => {
                bytes[at(*from)..].iter_mut().take(*length).for_each(|byte| *byte = *with);
            }
            Self::Flip(part) => bytes[at(*part)] ^= 0x10,
            Self::Grow(more) => bytes.resize(length + more, 0x77),
        }
    }
}

/// Writes a journal with a few hundred outcomes and returns its bytes.
async fn written(dir: &Path) -> Vec<u8> {
    let running = RunningJournal::claimed(DirectoryStorage::new(dir)).await;
    running.keep((0..400).map(ended).collect()).await.unwrap();
    running
        .keep((400..600).map(|at| StateChange::StartIntended(intent(at))).collect())
        .await
        .unwrap();
    running.stop_and_wait().await;
    std::fs::read(dir.join("journal.redb")).unwrap()
}

/// Opens the journal and reads everything: it is intact, or opening reports the damage.
fn intact_or_refused(dir: &Path) -> Result<(), String> {
    let store = match JournalStore::open(&DirectoryStorage::new(dir), true) {
        Ok(store) => store,
        Err(why @ (JournalOpenError::Damaged { .. } | JournalOpenError::Schema { .. })) => {
            return Err(why.to_string());
        }
        Err(other) => panic!("not reported as damaged: {other}"),
    };
    let tx = store.begin_read().unwrap();
    let query = HistoryQuery { limit: usize::MAX, ..HistoryQuery::default() };
    assert_eq!(query::history(&tx, &query).unwrap().entries.len(), 400);
    assert_eq!(store.load_state(moment(0)).unwrap().intents.len(), 200);
    Ok(())
}

#[tokio::test]
async fn damaged_file_is_intact_or_refused_with_an_explanation() {
    let dir = tempfile::tempdir().unwrap();
    let good = written(dir.path()).await;
    let path = dir.path().join("journal.redb");
    let refused = std::cell::Cell::new(0);
    proptest!(ProptestConfig::with_cases(150), |(blow in any_damage())| {
        let mut bytes = good.clone();
        blow.apply(&mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        if let Err(text) = intact_or_refused(dir.path()) {
            let start = format!("{} is damaged: ", path.display());
            prop_assert!(text.starts_with(&start), "{text}");
            prop_assert!(text.ends_with(
                "move the file away to start without history, quarantines and suspensions"), "{text}");
            refused.set(refused.get() + 1);
        }
    });
    assert!(refused.get() > 20, "some damage was detected: {}", refused.get());
}

#[tokio::test]
async fn empty_and_foreign_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for bytes in [&b""[..], b"SQLite format 3\0 and more", &[0; 8192]] {
        std::fs::write(dir.path().join("journal.redb"), bytes).unwrap();
        let text = intact_or_refused(dir.path()).unwrap_err();
        assert!(text.contains("journal.redb is damaged: "), "{text}");
    }
}

#[tokio::test]
async fn a_file_of_another_format_is_refused_by_its_number() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    {
        let database = DirectoryStorage::new(dir.path()).open(false).unwrap();
        let tx = database.begin_write().unwrap();
        tx.open_table(tables::META).unwrap().insert("schema", &b"7"[..]).unwrap();
        tx.commit().unwrap();
    }
    let text = intact_or_refused(dir.path()).unwrap_err();
    assert!(text.contains("journal.redb has format 7, written by recliner "), "{text}");
}

#[tokio::test]
async fn a_read_only_file_is_refused() {
    if ran_as_nobody() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    written(dir.path()).await;
    let path = dir.path().join("journal.redb");
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    let refused = JournalStore::open(&DirectoryStorage::new(dir.path()), true).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, JournalOpenError::Io { .. }), "{text}");
    assert!(text.contains("give the user of this process read and write access"), "{text}");
}

#[tokio::test]
async fn saved_facts_of_another_format_are_discarded() {
    const OTHER: redb::TableDefinition<'static, &str, &str> =
        redb::TableDefinition::new("measured");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    RunningJournal::claimed(DirectoryStorage::new(&path)).await.stop_and_wait().await;
    let database = DirectoryStorage::new(&path).open(false).unwrap();
    let tx = database.begin_write().unwrap();
    tx.open_table(OTHER).unwrap().insert("a", "b").unwrap();
    tx.commit().unwrap();
    database.close().unwrap();

    let running = RunningJournal::claimed(DirectoryStorage::new(&path)).await;
    // The facts are unknown, and everything else works.
    let read = within_patience(running.journal.load_measurements()).await;
    assert!(!read.is_ok_and(|blocks| !blocks.is_empty()));
    let block = TableBlock { number: 2, at: moment(3), bytes: vec![1, 2, 3] };
    let measured = || MeasuredBlocks { changed: vec![block.clone()], ..MeasuredBlocks::default() };
    within_patience(running.journal.save_measurements(measured())).await.unwrap();
    let found = within_patience(running.journal.load_measurements()).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&block));
    running.keep(vec![ended(1)]).await.unwrap();
    assert_eq!(running.journal.health().borrow().failure, None);
    let fewer = MeasuredBlocks { total: Some(2), ..MeasuredBlocks::default() };
    within_patience(running.journal.save_measurements(fewer)).await.unwrap();
    assert_eq!(within_patience(running.journal.load_measurements()).await.unwrap(), []);
    running.stop_and_wait().await;
    // Nothing is stored before the cluster is known.
    let running = RunningJournal::open(DirectoryStorage::new(&path)).unwrap();
    within_patience(running.journal.save_measurements(measured())).await.unwrap_err();
    running.stop_and_wait().await;
}
