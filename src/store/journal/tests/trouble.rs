use super::{disk::Disk, *};
use std::io;

const NOTE: fn() -> What = || What::Released { target: target(1) };

/// Waits until the journal says that it is well, or not.
async fn until(running: &Running, well: bool) -> Health {
    let mut health = running.journal.health();
    let found = soon(health.wait_for(|health| health.trouble.is_none() == well)).await;
    (**found.unwrap()).clone()
}

/// Keeps outcomes, larger and larger ones, until that fails.
async fn keep_until_it_fails(running: &Running, first: u64) -> (u64, Trouble) {
    for number in first..first + 10_000 {
        if let Err(why) = running.keep(vec![ended(number)]).await {
            return (number, why);
        }
    }
    panic!("the disk never got full");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_said_and_when_there_is_room_it_goes_on_by_itself() {
    let disk = Disk::formatted();
    let running = Running::claimed(disk.clone()).await;
    for number in 0..5 {
        running.keep(vec![ended(number)]).await.unwrap();
    }
    disk.fill(true);
    let (count, why) = keep_until_it_fails(&running, 5).await;
    assert!(why.0.starts_with("cannot write the disk of a test: "), "{why}");
    assert!(why.0.ends_with("make room on its disk: it then goes on by itself"), "{why}");
    let health = until(&running, false).await;
    assert_eq!(health.trouble.unwrap().1, why);

    // All that was acknowledged can be read; the rest is refused, and events are counted.
    assert_eq!(running.history().await.len(), usize::try_from(count).unwrap());
    assert_eq!(running.keep(vec![ended(count)]).await, Err(why));
    running.journal.note(NOTE());
    running.journal.note(NOTE());
    time::sleep(Duration::from_secs(300)).await;
    assert_eq!(running.journal.dropped(), 2);
    assert!(running.journal.health().borrow().trouble.is_some());
    assert_eq!(running.history().await.len(), usize::try_from(count).unwrap());

    disk.fill(false);
    time::sleep(Duration::from_secs(31)).await;
    assert_eq!(running.journal.health().borrow().trouble, None);
    running.keep(vec![ended(count), ended(count + 1)]).await.unwrap();
    running.journal.note(NOTE());
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!(running.history().await.len(), usize::try_from(count + 2).unwrap());
    assert_eq!(running.events().await.last(), Some(&NOTE()));
    assert_eq!(running.journal.dropped(), 2);
    running.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_breaks_and_comes_back_loses_nothing_acknowledged() {
    for (how, advice) in [
        (io::ErrorKind::ReadOnlyFilesystem, "mount it for writing"),
        (io::ErrorKind::Other, "look into the system's log"),
    ] {
        let disk = Disk::formatted();
        let running = Running::claimed(disk.clone()).await;
        running.keep((0..20).map(ended).collect()).await.unwrap();
        disk.breaks(Some(how));
        let why = running.keep(vec![ended(20)]).await.unwrap_err();
        assert!(why.0.contains(advice), "{why}");
        time::sleep(Duration::from_secs(3600)).await;
        let since = running.journal.health().borrow().trouble.as_ref().map(|(since, _)| *since);
        assert_eq!(since, Some(moment(1000)));
        // What was not synced when it broke may be lost, as after a crash.
        disk.reboot(|| false);
        disk.breaks(None);
        time::sleep(Duration::from_secs(31)).await;
        until(&running, true).await;
        running.keep(vec![ended(20)]).await.unwrap();
        assert_eq!(running.history().await.len(), 21);
        running.stopped().await;
    }
}

#[tokio::test]
async fn more_events_than_there_is_room_for_are_dropped_and_counted() {
    let clock = Clock::anchored(moment(0));
    let settings = watch::channel(work::Journal::default()).1;
    let (_task, journal) = Task::open(InMemory, clock, settings).unwrap();
    for _ in 0..5000 {
        journal.note(NOTE());
    }
    assert_eq!(journal.dropped(), 5000 - 4096);
}

const SMALL: &str = "RECLINER_TEST_SMALL_DISK";

/// The same on a file system that is full: a directory on one of a few MiB of its own, such
/// as a tmpfs.
#[tokio::test]
#[ignore = "needs RECLINER_TEST_SMALL_DISK, a directory on a file system of a few MiB"]
async fn a_file_system_that_is_full_and_has_room_again() {
    let small = std::env::var_os(SMALL).expect("it names a directory on a small file system");
    let dir = tempfile::tempdir_in(small).unwrap();
    let running = Running::claimed(Directory::new(dir.path())).await;
    running.keep((0..100).map(ended).collect()).await.unwrap();
    let ballast = dir.path().join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    let mut filled = 0;
    while io::Write::write_all(&mut file, &[1; 4096]).is_ok() {
        filled += 1;
        assert!(filled < 25_000, "{SMALL} has more than 100 MiB of room");
    }
    let (count, why) = keep_until_it_fails(&running, 100).await;
    assert!(why.0.contains("make room on its disk"), "{why}");
    assert_eq!(running.history().await.len(), usize::try_from(count).unwrap());
    // Its room is free when nobody has it open either.
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    until(&running, true).await;
    running.keep((count..count + 100).map(ended).collect()).await.unwrap();
    running.stopped().await;
    let running = Running::claimed(Directory::new(dir.path())).await;
    assert_eq!(running.history().await.len(), usize::try_from(count + 100).unwrap());
    running.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_moved_away_is_missed_and_goes_on_when_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (file, aside) = (dir.path().join("journal.redb"), dir.path().join("aside"));
    let running = Running::claimed(Directory::new(dir.path())).await;
    running.keep(vec![ended(1)]).await.unwrap();

    std::fs::rename(&file, &aside).unwrap();
    // Nobody writes: it is looked for all the same.
    let why = until(&running, false).await.trouble.unwrap().1;
    assert!(why.0.contains("it was deleted or moved away while it was open"), "{why}");
    assert_eq!(running.keep(vec![ended(2)]).await, Err(why));
    assert_eq!(running.history().await, [outcome(1)], "what is there can still be read");
    assert!(!file.exists(), "no new one is begun behind its back");

    std::fs::rename(&aside, &file).unwrap();
    until(&running, true).await;
    running.keep(vec![ended(2)]).await.unwrap();
    assert_eq!(running.history().await, [outcome(2), outcome(1)]);
    running.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_replaced_is_not_taken_for_the_one_that_was_open() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal.redb");
    let running = Running::claimed(Directory::new(dir.path())).await;
    running.keep(vec![ended(1)]).await.unwrap();

    let other = tempfile::tempdir().unwrap();
    Running::claimed(Directory::new(other.path())).await.stopped().await;
    std::fs::copy(other.path().join("journal.redb"), dir.path().join("copy")).unwrap();
    std::fs::rename(dir.path().join("copy"), &file).unwrap();
    // A write is refused at once, before anything is said of it.
    let why = running.keep(vec![ended(2)]).await.unwrap_err();
    assert!(why.0.contains("another file was put in its place"), "{why}");
    time::sleep(Duration::from_secs(3600)).await;
    let trouble = running.journal.health().borrow().trouble.clone();
    assert_eq!(trouble.map(|(_, why)| why), Some(why));
    running.stopped().await;

    // The next process takes what it finds.
    let running = Running::claimed(Directory::new(dir.path())).await;
    assert_eq!(running.history().await, []);
    running.stopped().await;
}
