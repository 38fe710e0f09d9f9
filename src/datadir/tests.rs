use super::*;
use crate::{text::Label, unprivileged::ran_as_nobody};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, fs::symlink},
    path::Path,
    sync::mpsc,
};
use tempfile::TempDir;

const SHARD: &str = "shards/00000000-7fffffff/app/orders.1795222434";

/// A file from the collection of real files.
fn real(name: &str) -> Vec<u8> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/couchdb-files/tests/data").join(name);
    fs::read(path).unwrap()
}

/// The expected reading of a file, from the collection.
fn expected(name: &str) -> Value {
    let all: Value = serde_json::from_slice(&real("expected.json")).unwrap();
    all[name]["parsed"].clone()
}

fn put(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn index_of(name: &str) -> String {
    expected(name)["signature"].as_str().unwrap().to_owned()
}

/// A data directory with one file of each kind.
fn tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    put(at, "_dbs.couch", &real("deletes.couch"));
    put(at, &format!("{SHARD}.couch"), &real("updates.couch"));
    put(at, &format!("{SHARD}.couch.compact.data"), &real("run.couch.compact.data"));
    let index = index_of("view_multi.view");
    put(at, &format!(".{SHARD}_design/mrview/{index}.view"), &real("view_multi.view"));
    put(at, &format!(".{SHARD}_design/mrview/{index}.compact.view"), b"12345");
    put(at, ".delete/0123456789abcdef0123456789abcdef", &[7; 1000]);
    put(at, &format!("{SHARD}.20261122.010203.deleted.couch"), &[7; 500]);
    put(at, &format!("nouveau/couchdb@a/{SHARD}/{index}/index/_0.cfs"), &[7; 200]);
    put(at, &format!("clouseau/{SHARD}/{index}/_0.cfs"), &[7; 100]);
    put(at, "README", b"ours");
    root
}

fn roots(root: &TempDir) -> NodeDirectories {
    NodeDirectories { data: root.path().to_owned(), views: None }
}

fn now() -> Moment {
    wall_clock::Clock::System.now()
}

/// One walk on two threads, with its findings by name.
fn walked(roots: &NodeDirectories, before: &WalkCache) -> (WalkResult, BTreeMap<String, WalkItem>) {
    let (sender, found) = mpsc::channel::<Vec<WalkItem>>();
    let walked = walk(roots, before, 2, now(), &|found| sender.send(found).is_ok()).unwrap();
    drop(sender);
    let name = |found: &WalkItem| match found {
        WalkItem::Db { shard, .. } => shard.to_string(),
        WalkItem::View { shard, signature, .. } => format!("{shard} {signature}"),
        WalkItem::Compaction { shard, signature, .. } => {
            format!("{shard} compaction{}", if signature.is_some() { " of a view" } else { "" })
        }
        WalkItem::Unread { path, problem } => format!("{path} {}", problem.label()),
    };
    (walked, found.into_iter().flatten().map(|found| (name(&found), found)).collect())
}

fn numbers(found: &WalkItem) -> HeaderValues {
    match found {
        WalkItem::Db { values: numbers, .. } | WalkItem::View { values: numbers, .. } => *numbers,
        WalkItem::Compaction { .. } | WalkItem::Unread { .. } => panic!("{found:?} has no numbers"),
    }
}

/// An upgrade of nouveau builds an index beside the one that is in use.
#[test]
fn old_and_new_nouveau_index_are_neither_scored_nor_orphans() {
    let root = tempfile::tempdir().unwrap();
    for signature in ["0f045e3b41d71d93aaa32f23021ba536", "8d777f385d3dfec8815d20f7496026dc"] {
        let file = format!("nouveau/couchdb@a/{SHARD}/{signature}/index/_0.cfs");
        put(root.path(), &file, &[7; 200]);
    }
    let (walked, found) = walked(&roots(&root), &WalkCache::default());
    assert!(found.is_empty(), "{found:?}");
    let sums = OtherFileSums { files: 2, nouveau: 400, ..OtherFileSums::default() };
    assert_eq!(walked.sums, sums);
}

#[test]
fn finds_every_file_once_with_header_values() {
    let root = tree();
    let (walked, found) = walked(&roots(&root), &WalkCache::default());
    let index = index_of("view_multi.view");
    let view = format!("{SHARD} {index}");
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let compaction = format!("{SHARD} compaction");
    let of_view = format!("{SHARD} compaction of a view");
    assert_eq!(names, ["_dbs", SHARD, &view, &compaction, &of_view]);
    assert!(walked.is_complete);
    let sums = OtherFileSums {
        files: 10,
        trash: 1500,
        recent_trash: 1000,
        recoverable: 500,
        nouveau: 200,
        clouseau: 100,
        other: 4,
        ..OtherFileSums::default()
    };
    assert_eq!((walked.sums, walked.cache.len()), (sums, 3));
    for (name, file) in [(SHARD, "updates.couch"), (&view, "view_multi.view")] {
        let (read, expected) = (numbers(&found[name]), expected(file));
        let sizes = &expected["sizes"];
        assert_eq!(Some(read.file_bytes), sizes["file"].as_u64(), "{file}");
        assert_eq!(read.active_bytes.get(), sizes["active"].as_u64(), "{file}");
        assert_eq!(read.external_bytes.get(), sizes["external"].as_u64(), "{file}");
        assert_eq!(read.update_seq.get(), expected["update_seq"].as_u64(), "{file}");
        assert_eq!(read.docs.get(), expected["doc_count"].as_u64(), "{file}");
    }
    let WalkItem::View { collators, .. } = &found[&view] else { panic!("expected a view index") };
    assert_eq!(collators.len(), 1);
    assert_eq!(
        directory_owner(root.path()).as_deref(),
        expected("deletes.couch")["epochs"][0][0].as_str()
    );
}

#[test]
fn trash_older_than_an_hour_is_not_recent() {
    let root = tree();
    let later = now().plus(std::time::Duration::from_secs(3_601));
    let sums = walk(&roots(&root), &WalkCache::default(), 1, later, &|_| true).unwrap().sums;
    assert_eq!((sums.trash, sums.recent_trash, sums.recoverable), (1500, 0, 500));
}

#[test]
fn damaged_file_does_not_affect_other_files() {
    let all: Value = serde_json::from_slice(&real("expected.json")).unwrap();
    let root = tempfile::tempdir().unwrap();
    let mut shards = BTreeMap::new();
    for (at, name) in
        all.as_object().unwrap().keys().filter(|name| name.ends_with(".couch")).enumerate()
    {
        let shard = format!("shards/00000000-ffffffff/file.{at}");
        put(root.path(), &format!("{shard}.couch"), &real(name));
        shards.insert(shard, name.clone());
    }
    let (walked, found) = walked(&roots(&root), &WalkCache::default());
    assert!(walked.is_complete, "a damaged file is not an unread directory");
    let mut unreadable = 0;
    for (shard, name) in shards {
        let (read, expected) = (numbers(&found[&shard]), expected(&name));
        let sizes = &expected["sizes"];
        assert_eq!(read.file_bytes, real(&name).len() as u64, "{name}");
        if expected["error"].is_string() {
            unreadable += 1;
            let problems =
                found.keys().filter(|key| key.starts_with(&format!("{shard}.couch "))).count();
            // Whether an empty file is an error depends on the shard map.
            let is_empty = read.file_bytes == 0;
            let expected = (is_empty.then_some(0), usize::from(!is_empty));
            assert_eq!((read.active_bytes.get(), problems), expected, "{name}");
        } else {
            assert_eq!(read.active_bytes.get(), sizes["active"].as_u64(), "{name}");
            assert_eq!(read.compacted_seq.get(), expected["compacted_seq"].as_u64(), "{name}");
        }
    }
    assert!(unreadable >= 2, "the set has files without a header");
}

#[test]
fn directories_on_one_file_system_are_one_volume() {
    let (data, views) = (tree(), tree());
    let one = roots(&data).volumes();
    assert_eq!((one.len(), one[0].content), (1, DirectoryContent::Both));
    assert!(one[0].space.is_some_and(|space| space.size >= space.available));
    assert_eq!(*one[0].directory, *data.path().display().to_string());
    let two =
        |views: &Path| NodeDirectories { data: data.path().into(), views: Some(views.into()) };
    // Other programs write to the file system between two readings: its free space is not compared.
    let identity = |volumes: &[DirectoryVolume]| {
        let volume = |it: &DirectoryVolume| {
            (it.directory.clone(), it.content, it.space.map(|space| (space.size, space.device)))
        };
        volumes.iter().map(volume).collect::<Vec<_>>()
    };
    assert_eq!(identity(&two(views.path()).volumes()), identity(&one));
    let unknown = two(&views.path().join("gone")).volumes();
    let holds: Vec<DirectoryContent> = unknown.iter().map(|volume| volume.content).collect();
    assert_eq!(holds, [DirectoryContent::Databases, DirectoryContent::Views]);
    assert_eq!(unknown[1].space, None);
}

#[test]
fn a_second_walk_reads_only_what_changed() {
    let root = tree();
    let roots = roots(&root);
    let (first, before) = walked(&roots, &WalkCache::default());
    // Content that changed without new metadata, which CouchDB never causes, shows which files
    // were read again.
    let shard = root.path().join(format!("{SHARD}.couch"));
    let modified = fs::metadata(&shard).unwrap().modified().unwrap();
    let mut bytes = fs::read(&shard).unwrap();
    let length = bytes.len();
    bytes[length - 4096..].fill(0);
    fs::write(&shard, &bytes).unwrap();
    fs::File::options().write(true).open(&shard).unwrap().set_modified(modified).unwrap();
    let (second, same) = walked(&roots, &first.cache);
    let unmoved = |found: &WalkItem| matches!(found, WalkItem::Db { is_same_file: true, .. });
    assert_eq!(numbers(&same[SHARD]), numbers(&before[SHARD]));
    assert!(unmoved(&same[SHARD]) && !unmoved(&before[SHARD]));
    fs::OpenOptions::new().append(true).open(&shard).unwrap().write_all(&[0; 10]).unwrap();
    let (_, changed) = walked(&roots, &second.cache);
    assert_ne!(numbers(&changed[SHARD]), numbers(&before[SHARD]));
    assert!(unmoved(&changed[SHARD]), "the file only grew");
    // A compaction replaced the file.
    put(root.path(), "new", &real("deletes.couch"));
    fs::rename(root.path().join("new"), &shard).unwrap();
    let (third, swapped) = walked(&roots, &second.cache);
    assert_eq!(
        numbers(&swapped[SHARD]).update_seq.get(),
        expected("deletes.couch")["update_seq"].as_u64()
    );
    assert!(!unmoved(&swapped[SHARD]), "it is a different file");
    fs::remove_file(&shard).unwrap();
    let (fourth, gone) = walked(&roots, &third.cache);
    assert!(!gone.contains_key(SHARD) && fourth.is_complete);
    assert_eq!(fourth.cache.len(), third.cache.len() - 1);
}

#[test]
fn ignores_links_and_odd_names_and_stops_at_deep_paths() {
    let root = tree();
    let outside = tempfile::tempdir().unwrap();
    put(outside.path(), "shards/00000000-7fffffff/x.1.couch", &real("updates.couch"));
    symlink(outside.path().join("shards"), root.path().join("linked")).unwrap();
    symlink(root.path(), root.path().join("shards/round")).unwrap();
    let file = outside.path().join("shards/00000000-7fffffff/x.1.couch");
    symlink(file, root.path().join("shards/00000000-7fffffff/linked.1.couch")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"shards/\xff\xfe.couch");
    fs::write(root.path().join(odd), b"123").unwrap();
    let (plain, _) = walked(&roots(&tree()), &WalkCache::default());
    let (odd, found) = walked(&roots(&root), &WalkCache::default());
    assert_eq!(odd.sums, OtherFileSums { files: 11, other: 7, ..plain.sums });
    assert!(odd.is_complete && found.len() == 5);

    let mut deep = root.path().join("shards/00000000-7fffffff");
    for _ in 0..200 {
        deep.push("a");
    }
    fs::create_dir_all(&deep).unwrap();
    let (deep, found) = walked(&roots(&root), &WalkCache::default());
    assert!(!deep.is_complete && found.keys().any(|name| name.ends_with("too_deep")), "{found:?}");
}

#[test]
fn unreadable_files_are_reported_and_the_walk_continues() {
    if ran_as_nobody() {
        return;
    }
    let root = tree();
    let closed = root.path().join("shards/closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let file = root.path().join(format!("{SHARD}.couch"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    let (walked, found) = walked(&roots(&root), &WalkCache::default());
    assert!(!walked.is_complete);
    assert!(found.contains_key("shards/closed/ permission"), "{found:?}");
    assert!(found.contains_key(&format!("{SHARD}.couch permission")), "{found:?}");
    let read = numbers(&found[SHARD]);
    assert_eq!(
        (read.file_bytes, read.active_bytes.get()),
        (real("updates.couch").len() as u64, None)
    );
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn walks_nested_view_directory_separately() {
    let root = tree();
    let index = index_of("view_multi.view");
    let inside = root.path().join("views");
    put(&inside, &format!(".{SHARD}_design/mrview/{index}.view"), &real("view_multi.view"));
    let both = NodeDirectories { data: root.path().to_owned(), views: Some(inside) };
    let (walked_both, found) = walked(&both, &WalkCache::default());
    assert!(found.contains_key(&format!("{SHARD} {index}")));
    let old = real("view_multi.view").len() as u64 + 5;
    assert_eq!(walked_both.sums.misplaced, old, "indexes from before the directory was set");
    // The same directory given twice counts once.
    let same = NodeDirectories { data: root.path().to_owned(), views: Some(root.path().join(".")) };
    let (one, _) = walked(&same, &WalkCache::default());
    assert_eq!((one.sums.files, one.sums.misplaced), (11, 0));
    let gone =
        NodeDirectories { data: root.path().to_owned(), views: Some(root.path().join("gone")) };
    assert!(!walked(&gone, &WalkCache::default()).0.is_complete);
    let gone = NodeDirectories { data: root.path().join("gone"), views: None };
    let why = walk(&gone, &WalkCache::default(), 2, now(), &|_| true).unwrap_err();
    let cause = "No such file or directory".to_owned();
    assert_eq!(why, RootError { problem: ReadProblem::Io, cause });
}

#[test]
fn walk_is_incomplete_when_receiver_stops() {
    let root = tempfile::tempdir().unwrap();
    for at in 0..2000 {
        put(root.path(), &format!("shards/00000000-ffffffff/db.{at}.couch"), b"x");
    }
    let walked = walk(&roots(&root), &WalkCache::default(), 2, now(), &|_| false).unwrap();
    assert!(!walked.is_complete && walked.sums.files < 2000, "{:?}", walked.sums);
}

#[test]
fn reads_consistent_state_of_changing_files() {
    let root = tree();
    let roots = roots(&root);
    let shard = root.path().join(format!("{SHARD}.couch"));
    let states = ["updates.couch", "deletes.couch"]
        .map(|name| (real(name), expected(name)["update_seq"].as_u64()));
    std::thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        let (states, root) = (&states, root.path());
        scope.spawn(move || {
            let mut at = 0;
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                let (bytes, _) = &states[at % 2];
                match at % 3 {
                    // Replace the file, as a compaction does.
                    0 => {
                        put(root, "swap", bytes);
                        fs::rename(root.join("swap"), &shard).unwrap();
                    }
                    // Grow the file without a commit.
                    1 => {
                        let mut file = fs::File::options().append(true).open(&shard).unwrap();
                        file.write_all(&[0; 5000]).unwrap();
                    }
                    _ => {
                        fs::remove_file(&shard).unwrap();
                        put(root, "swap", bytes);
                        fs::rename(root.join("swap"), &shard).unwrap();
                    }
                }
                at += 1;
            }
        });
        let mut cache = WalkCache::default();
        for _ in 0..200 {
            let (next, found) = walked(&roots, &cache);
            cache = next.cache;
            assert!(next.is_complete);
            if let Some(found) = found.get(SHARD) {
                let seq = numbers(found).update_seq.get();
                assert!(states.iter().any(|(_, state)| *state == seq), "{found:?}");
            }
        }
        stop.send(()).unwrap();
    });
}
