//! Determines a file's meaning from its path in CouchDB's data directory.
//!
//! Owns CouchDB's file layout (`couch_server`, `couch_file:delete`,
//! `couch_mrview_util:index_file`, `couch_bt_engine_compactor`). Pure: works on names alone,
//! without disk access.

use couchdb_names::{ShardName, Signature};

/// The meaning of a file, by its path below the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMeaning<'a> {
    /// A database file: a shard's, or that of a node-local database such as `_dbs`.
    Db {
        /// CouchDB's name for it: the path without `.couch`.
        shard: &'a str,
    },
    /// A view index of one shard.
    View {
        /// The shard it indexes, as for [`FileMeaning::Db`].
        shard: &'a str,
        /// The signature in its file name.
        signature: Signature,
    },
    /// A file written by the compaction of a shard: `.compact`, `.compact.data`, `.compact.meta`.
    Compaction {
        /// The shard that is compacted.
        shard: &'a str,
    },
    /// A file written by the compaction of a view index; such a file is never resumed.
    ViewCompaction {
        /// The shard of that index.
        shard: &'a str,
        /// The signature of that index.
        signature: Signature,
    },
    /// Deleted by CouchDB but still there: files in `.delete`.
    Trash,
    /// A deleted database that `enable_database_recovery` keeps, or one of its indexes.
    Recoverable,
    /// Part of a Nouveau index.
    Nouveau,
    /// Part of a Clouseau index.
    Clouseau,
    /// Not a known CouchDB file.
    Other,
}

/// The meaning of the file at `path`, which is relative to the data or view directory.
#[must_use]
pub fn file_meaning(path: &[u8]) -> FileMeaning<'_> {
    if path.starts_with(b".delete/") {
        return FileMeaning::Trash;
    }
    if path.starts_with(b"nouveau/") {
        return FileMeaning::Nouveau;
    }
    // CouchDB's file names are ASCII, so a path that is not UTF-8 is not a CouchDB file.
    let Ok(path) = std::str::from_utf8(path) else { return FileMeaning::Other };
    if let Some(index) = path.strip_prefix('.') {
        return index_file(index).unwrap_or(FileMeaning::Other);
    }
    if is_clouseau_path(path) {
        FileMeaning::Clouseau
    } else {
        database_file(path).unwrap_or(FileMeaning::Other)
    }
}

/// Paths, relative to the directory, of the files that a compaction of a shard or of one of its indexes writes.
#[must_use]
pub fn compaction_files(shard: &str, signature: Option<Signature>) -> Vec<String> {
    match signature {
        None => ["data", "meta"].map(|part| format!("{shard}.couch.compact.{part}")).to_vec(),
        Some(signature) => vec![format!(".{shard}_design/mrview/{signature}.compact.view")],
    }
}

/// `<shard>.couch` and related files.
fn database_file(path: &str) -> Option<FileMeaning<'_>> {
    for ending in [".couch.compact.data", ".couch.compact.meta", ".couch.compact"] {
        if let Some(shard) = path.strip_suffix(ending) {
            return is_shard_name(shard).then_some(FileMeaning::Compaction { shard });
        }
    }
    let shard = path.strip_suffix(".couch")?;
    if shard.strip_suffix(".deleted").is_some_and(|before| without_deletion_time(before).is_some())
    {
        return Some(FileMeaning::Recoverable);
    }
    is_shard_name(shard).then_some(FileMeaning::Db { shard })
}

/// `<shard>_design/mrview/<signature>.view`, without the leading dot.
fn index_file(path: &str) -> Option<FileMeaning<'_>> {
    let (directory, file) = path.rsplit_once('/')?;
    let owner = directory.strip_suffix("/mrview")?;
    // The index directory of a node-local database ends in `_design.<date>.<time>.deleted`; that of
    // a shard keeps its extension: `.<date>.<time>.deleted.<suffix>_design`.
    if owner.strip_suffix(".deleted").is_some_and(|before| without_deletion_time(before).is_some())
    {
        return Some(FileMeaning::Recoverable);
    }
    let shard = owner.strip_suffix("_design")?;
    let before = shard.rsplit_once('.').and_then(|(before, _)| before.strip_suffix(".deleted"));
    if before.is_some_and(|before| without_deletion_time(before).is_some()) {
        return Some(FileMeaning::Recoverable);
    }
    if !is_shard_name(shard) {
        return None;
    }
    if let Some(name) = file.strip_suffix(".compact.view") {
        return Some(FileMeaning::ViewCompaction { shard, signature: parse_signature(name)? });
    }
    Some(FileMeaning::View { shard, signature: parse_signature(file.strip_suffix(".view")?)? })
}

/// Parses a signature. CouchDB writes lower case only, so a name in upper case is not a CouchDB
/// file.
fn parse_signature(name: &str) -> Option<Signature> {
    name.parse().ok().filter(|_| !name.bytes().any(|byte| byte.is_ascii_uppercase()))
}

/// Whether CouchDB could have a database with this name: below `shards` it has a range and a
/// suffix, elsewhere it has no dot.
fn is_shard_name(name: &str) -> bool {
    if name.starts_with("shards/") {
        return ShardName::split(name).is_some_and(|split| {
            let digits = split.suffix.get(1..).unwrap_or_default();
            digits.bytes().all(|byte| byte.is_ascii_digit())
        });
    }
    !name.is_empty() && !name.contains('.') && !name.starts_with('/')
}

/// The part before `.<YYYYMMDD>.<HHMMSS>`.
fn without_deletion_time(name: &str) -> Option<&str> {
    let (before, time) = name.rsplit_once('.')?;
    let (before, date) = before.rsplit_once('.')?;
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|it| it.is_ascii_digit());
    (digits(time, 6) && digits(date, 8)).then_some(before)
}

/// `<directory>/shards/<range>/<db>.<suffix>/<signature>/...`, below any directory that
/// `clouseau.ini` names.
fn is_clouseau_path(path: &str) -> bool {
    let Some(at) = path.find("/shards/") else { return false };
    let Some(shards) = path.get(at + 1..) else { return false };
    let mut parts = shards.split('/');
    let range = parts.nth(1).is_some_and(|range| range.parse::<couchdb_names::Range>().is_ok());
    range && parts.skip(1).any(|part| parse_signature(part).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIGNATURE: &str = "0f045e3b41d71d93aaa32f23021ba536";
    const SHARD: &str = "shards/00000000-7fffffff/app/orders.1795222434";

    #[test]
    fn compaction_files_are_recognised_by_their_paths() {
        let signature: Signature = SIGNATURE.parse().unwrap();
        for shard in [SHARD, "_dbs"] {
            for path in compaction_files(shard, None) {
                assert_eq!(file_meaning(path.as_bytes()), FileMeaning::Compaction { shard });
            }
            for path in compaction_files(shard, Some(signature)) {
                let meaning = FileMeaning::ViewCompaction { shard, signature };
                assert_eq!(file_meaning(path.as_bytes()), meaning);
            }
        }
    }

    #[test]
    fn file_meaning_follows_from_its_path() {
        let named: Signature = SIGNATURE.parse().unwrap();
        let db = |shard| FileMeaning::Db { shard };
        let view = |shard| FileMeaning::View { shard, signature: named };
        let compaction = |shard| FileMeaning::Compaction { shard };
        for (path, expected) in [
            ("_dbs.couch", db("_dbs")),
            ("_users.couch", db("_users")),
            (&format!("{SHARD}.couch"), db(SHARD)),
            (&format!("{SHARD}.couch.compact"), compaction(SHARD)),
            (&format!("{SHARD}.couch.compact.data"), compaction(SHARD)),
            (&format!("{SHARD}.couch.compact.meta"), compaction(SHARD)),
            ("_nodes.couch.compact.data", compaction("_nodes")),
            (&format!(".{SHARD}_design/mrview/{SIGNATURE}.view"), view(SHARD)),
            (&format!("._users_design/mrview/{SIGNATURE}.view"), view("_users")),
            (
                &format!(".{SHARD}_design/mrview/{SIGNATURE}.compact.view"),
                FileMeaning::ViewCompaction { shard: SHARD, signature: named },
            ),
            // A database may have the name of an index directory.
            (
                &format!(
                    ".shards/00000000-ffffffff/a_design/mrview.1_design/mrview/{SIGNATURE}.view"
                ),
                view("shards/00000000-ffffffff/a_design/mrview.1"),
            ),
            (".delete/0123456789abcdef0123456789abcdef", FileMeaning::Trash),
            (".delete/deep/file", FileMeaning::Trash),
            (&format!("{SHARD}.20261122.010203.deleted.couch"), FileMeaning::Recoverable),
            ("local.20261122.010203.deleted.couch", FileMeaning::Recoverable),
            (
                &format!(
                    ".shards/00000000-7fffffff/app/orders.20261122.010203.deleted.1795222434_design/mrview/{SIGNATURE}.view"
                ),
                FileMeaning::Recoverable,
            ),
            (
                &format!(".local_design.20261122.010203.deleted/mrview/{SIGNATURE}.view"),
                FileMeaning::Recoverable,
            ),
            (&format!("nouveau/couchdb@a/{SHARD}/{SIGNATURE}/index/_0.cfs"), FileMeaning::Nouveau),
            (&format!("clouseau/{SHARD}/{SIGNATURE}/_0.cfs"), FileMeaning::Clouseau),
            (&format!("search_index/deep/{SHARD}/{SIGNATURE}/segments_1"), FileMeaning::Clouseau),
            ("lost+found/x", FileMeaning::Other),
            ("notes.txt", FileMeaning::Other),
            (".couch", FileMeaning::Other),
            ("a.b.couch", FileMeaning::Other),
            ("shards/00000000-7fffffff/x.couch", FileMeaning::Other),
            ("shards/00000000-7fffffff/x.17a.couch", FileMeaning::Other),
            ("shards/oops/x.17.couch", FileMeaning::Other),
            (
                &format!(".{SHARD}_design/mrview/0F045E3B41D71D93AAA32F23021BA536.view"),
                FileMeaning::Other,
            ),
            (&format!(".{SHARD}_design/mrview/short.view"), FileMeaning::Other),
            (&format!(".{SHARD}_design/other/{SIGNATURE}.view"), FileMeaning::Other),
            (&format!(".{SHARD}/mrview/{SIGNATURE}.view"), FileMeaning::Other),
            (".hidden", FileMeaning::Other),
        ] {
            assert_eq!(file_meaning(path.as_bytes()), expected, "{path}");
        }
        assert_eq!(file_meaning(b"shards/00000000-7fffffff/\xff.17.couch"), FileMeaning::Other);
        assert_eq!(file_meaning(b".delete/\xff"), FileMeaning::Trash);
    }

    proptest! {
        #[test]
        fn arbitrary_paths_do_not_panic(path in proptest::collection::vec(any::<u8>(), 0..80)) {
            let again = path.clone();
            prop_assert_eq!(file_meaning(&path), file_meaning(&again));
        }

        #[test]
        fn shard_and_view_files_of_any_name_are_recognised(
            db in "[a-z][a-z0-9_$()+/-]{0,40}", seconds in any::<u32>(), from in any::<u32>(),
            signature: [u8; 16],
        ) {
            let shard = format!("shards/{from:08x}-ffffffff/{db}.{seconds:010}");
            let file = format!("{shard}.couch");
            prop_assert_eq!(file_meaning(file.as_bytes()), FileMeaning::Db { shard: &shard });
            let signature = Signature(signature);
            let file = format!(".{shard}_design/mrview/{signature}.view");
            prop_assert_eq!(file_meaning(file.as_bytes()), FileMeaning::View { shard: &shard, signature });
        }
    }
}
