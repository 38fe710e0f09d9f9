use super::{disk::Disk, *};
use crate::model::records::JournalFailure;
use std::io;

const NOTE: fn() -> EventDetails = || EventDetails::Released { target: target(1) };

/// Waits until the journal is healthy, or until it is not.
async fn wait_for_health(running: &RunningJournal, well: bool) -> JournalHealth {
    let mut health = running.journal.health();
    let found = within_patience(health.wait_for(|health| health.failure.is_none() == well)).await;
    (**found.unwrap()).clone()
}

/// Stores larger and larger outcomes until that fails.
async fn store_until_failure(running: &RunningJournal, first: u64) -> (u64, StoreError) {
    for number in first..first + 10_000 {
        if let Err(why) = running.keep(vec![ended(number)]).await {
            return (number, why);
        }
    }
    panic!("the disk never got full");
}

#[tokio::test(start_paused = true)]
async fn full_disk_is_reported_and_writing_resumes_with_space() {
    let disk = Disk::formatted();
    let running = RunningJournal::claimed(disk.clone()).await;
    for number in 0..5 {
        running.keep(vec![ended(number)]).await.unwrap();
    }
    disk.fill(true);
    let (count, why) = store_until_failure(&running, 5).await;
    assert!(why.0.starts_with("cannot write the test disk: "), "{why}");
    assert!(
        why.0.ends_with("free space on its disk: recliner then continues automatically"),
        "{why}"
    );
    let health = wait_for_health(&running, false).await;
    assert_eq!(health.failure.unwrap().1, JournalFailure::NotWritable(why.0.clone()));

    // Acknowledged entries can be read; others are refused, and events are counted.
    assert_eq!(running.history().await.len(), usize::try_from(count).unwrap());
    assert_eq!(running.keep(vec![ended(count)]).await, Err(why));
    running.journal.record(NOTE());
    running.journal.record(NOTE());
    time::sleep(Duration::from_secs(300)).await;
    assert_eq!(running.journal.dropped_events(), 2);
    assert!(running.journal.health().borrow().failure.is_some());
    assert_eq!(running.history().await.len(), usize::try_from(count).unwrap());

    disk.fill(false);
    time::sleep(Duration::from_secs(31)).await;
    assert_eq!(running.journal.health().borrow().failure, None);
    running.keep(vec![ended(count), ended(count + 1)]).await.unwrap();
    running.journal.record(NOTE());
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!(running.history().await.len(), usize::try_from(count + 2).unwrap());
    assert_eq!(running.events().await.last(), Some(&NOTE()));
    assert_eq!(running.journal.dropped_events(), 2);
    running.stop_and_wait().await;
}

#[tokio::test(start_paused = true)]
async fn opening_on_a_full_disk_is_retried_until_it_has_space() {
    let disk = Disk::default();
    disk.fill(true);
    let running = RunningJournal::open(disk.clone()).unwrap();
    let (since, why) = wait_for_health(&running, false).await.failure.unwrap();
    assert!(why.to_string().ends_with("free space on its disk"), "{why}");
    time::sleep(Duration::from_secs(300)).await;
    let failure = running.journal.health().borrow().failure.clone();
    assert_eq!(failure.map(|(since, _)| since), Some(since));
    // Nothing of an unfinished file is used.
    disk.reboot(|| false);
    disk.fill(false);
    time::sleep(Duration::from_secs(31)).await;
    assert_eq!(running.journal.health().borrow().failure, None);
    running.recovered().await;
    running.keep(vec![ended(0)]).await.unwrap();
    assert_eq!(running.history().await.len(), 1);
    running.stop_and_wait().await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fails_and_recovers_loses_nothing_acknowledged() {
    for (how, advice) in [
        (io::ErrorKind::ReadOnlyFilesystem, "remount the file system as writable"),
        (io::ErrorKind::Other, "check the system log"),
    ] {
        let disk = Disk::formatted();
        let running = RunningJournal::claimed(disk.clone()).await;
        running.keep((0..20).map(ended).collect()).await.unwrap();
        disk.set_failure(Some(how));
        let why = running.keep(vec![ended(20)]).await.unwrap_err();
        assert!(why.0.contains(advice), "{why}");
        time::sleep(Duration::from_secs(3600)).await;
        let since = running.journal.health().borrow().failure.as_ref().map(|(since, _)| *since);
        assert_eq!(since, Some(moment(1000)));
        // Unsynced data may be lost when the disk fails, as in a crash.
        disk.reboot(|| false);
        disk.set_failure(None);
        time::sleep(Duration::from_secs(31)).await;
        wait_for_health(&running, true).await;
        running.keep(vec![ended(20)]).await.unwrap();
        assert_eq!(running.history().await.len(), 21);
        running.stop_and_wait().await;
    }
}

#[tokio::test]
async fn events_beyond_the_queue_are_dropped_and_counted() {
    let clock = Clock::anchored(moment(0));
    let settings = watch::channel(work::JournalRetention::default()).1;
    let (_task, journal) = JournalTask::open(InMemory::default(), clock, settings).unwrap();
    for _ in 0..5000 {
        journal.record(NOTE());
    }
    assert_eq!(journal.dropped_events(), 5000 - 4096);
}

const SMALL: &str = "RECLINER_TEST_SMALL_DISK";

/// Fills a real file system: the directory must be on one with a few MiB, such as a tmpfs.
#[tokio::test]
#[ignore = "needs RECLINER_TEST_SMALL_DISK, a directory on a file system of a few MiB"]
async fn a_full_file_system_recovers() {
    let small = std::env::var_os(SMALL).expect("it names a directory on a small file system");
    let dir = tempfile::tempdir_in(small).unwrap();
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    running.keep((0..100).map(ended).collect()).await.unwrap();
    let ballast = dir.path().join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    let mut filled = 0;
    while io::Write::write_all(&mut file, &[1; 4096]).is_ok() {
        filled += 1;
        assert!(filled < 25_000, "{SMALL} has more than 100 MiB of room");
    }
    let (count, why) = store_until_failure(&running, 100).await;
    assert!(why.0.contains("free space on its disk"), "{why}");
    assert_eq!(running.history().await.len(), usize::try_from(count).unwrap());
    // The space can be freed although the file is open.
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    wait_for_health(&running, true).await;
    running.keep((count..count + 100).map(ended).collect()).await.unwrap();
    running.stop_and_wait().await;
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    assert_eq!(running.history().await.len(), usize::try_from(count + 100).unwrap());
    running.stop_and_wait().await;
}

#[tokio::test(start_paused = true)]
async fn moved_file_is_detected_and_writing_resumes_when_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (file, aside) = (dir.path().join("journal.redb"), dir.path().join("aside"));
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    running.keep(vec![ended(1)]).await.unwrap();

    std::fs::rename(&file, &aside).unwrap();
    // The check happens even if nothing is written.
    let why = wait_for_health(&running, false).await.failure.unwrap().1.to_string();
    assert!(why.contains("it was deleted or moved away while it was open"), "{why}");
    assert_eq!(running.keep(vec![ended(2)]).await, Err(StoreError(why)));
    assert_eq!(running.history().await, [outcome(1)], "stored entries can still be read");
    assert!(!file.exists(), "no new file is created");

    std::fs::rename(&aside, &file).unwrap();
    wait_for_health(&running, true).await;
    running.keep(vec![ended(2)]).await.unwrap();
    assert_eq!(running.history().await, [outcome(2), outcome(1)]);
    running.stop_and_wait().await;
}

#[tokio::test(start_paused = true)]
async fn a_replaced_file_is_not_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal.redb");
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    running.keep(vec![ended(1)]).await.unwrap();

    let other = tempfile::tempdir().unwrap();
    RunningJournal::claimed(DirectoryStorage::new(other.path())).await.stop_and_wait().await;
    std::fs::copy(other.path().join("journal.redb"), dir.path().join("copy")).unwrap();
    std::fs::rename(dir.path().join("copy"), &file).unwrap();
    // A write is refused at once, before the failure is published.
    let why = running.keep(vec![ended(2)]).await.unwrap_err();
    assert!(why.0.contains("it was replaced by another file"), "{why}");
    time::sleep(Duration::from_secs(3600)).await;
    let failure = running.journal.health().borrow().failure.clone();
    assert_eq!(failure.map(|(_, why)| why), Some(JournalFailure::NotWritable(why.0)));
    running.stop_and_wait().await;

    // The next process uses the file it finds.
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    assert_eq!(running.history().await, []);
    running.stop_and_wait().await;
}
