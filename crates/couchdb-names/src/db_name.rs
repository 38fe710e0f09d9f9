//! Which names databases can have.

/// Length of the text that follows a database's name in the names of its shard files, such as
/// `.1795222434.couch`.
const FILE_SUFFIX_BYTES: usize = 17;

/// Maximum length of a file or directory name, and of a path, in the file systems that CouchDB runs
/// on. CouchDB sets no limit of its own (`fabric_db_create`, `enametoolong`).
const MAX_FILE_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 4_096;

/// A name that no database can have.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("a database name of {bytes} bytes is longer than file systems allow")]
pub struct DbNameTooLong {
    /// Length of the name in bytes.
    pub bytes: usize,
}

/// Whether a clustered database can have this name (`couch_db:validate_dbname/1`).
pub fn is_db_name(name: &str) -> bool {
    let is_system = |part: &str| {
        ["_dbs", "_global_changes", "_metadata", "_nodes", "_replicator", "_users"].contains(&part)
    };
    let is_plain = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_lowercase())
            && part.bytes().all(|letter| {
                letter.is_ascii_lowercase()
                    || letter.is_ascii_digit()
                    || b"_$()+-/".contains(&letter)
            })
    };
    let named = match name.rsplit_once('/') {
        Some((prefix, last)) if is_system(last) => is_plain(prefix),
        _ => is_plain(name) || is_system(name),
    };
    named && check_db_name_length(name).is_ok()
}

/// Checks that a database's name is short enough for the names of its files, in which each `/`
/// separates directories.
///
/// # Errors
/// If the name is too long, so that no database can have it.
pub fn check_db_name_length(name: &str) -> Result<(), DbNameTooLong> {
    let bytes = name.len();
    let parts_fit = name.split('/').all(|part| part.len() <= MAX_FILE_NAME_BYTES);
    let file_fits = name
        .rsplit('/')
        .next()
        .is_none_or(|file| file.len() <= MAX_FILE_NAME_BYTES - FILE_SUFFIX_BYTES);
    if bytes <= MAX_PATH_BYTES && parts_fit && file_fits {
        Ok(())
    } else {
        Err(DbNameTooLong { bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_same_names_as_couchdb() {
        for name in ["a", "my/db", "a0_$()+-/", "_users", "x/_replicator", "userdb-61"] {
            assert!(is_db_name(name), "{name}");
        }
        for name in
            ["", "Orders", "_default ", "_x", "9a", "a.b", "a b", "A/_users", "/_users", "é"]
        {
            assert!(!is_db_name(name), "{name}");
        }
    }

    #[test]
    fn limits_names_to_what_file_names_allow() {
        let part = |length: usize| "a".repeat(length);
        for (name, fits) in [
            (String::new(), true),
            (part(238), true),
            (part(239), false),
            (format!("{}/{}", part(255), part(238)), true),
            (format!("{}/b", part(256)), false),
            (format!("{}/b", [part(255), part(255)].join("/")), true),
            ("a/".repeat(2_048), true),
            ("a/".repeat(2_049), false),
        ] {
            assert_eq!(check_db_name_length(&name).is_ok(), fits, "{} bytes", name.len());
        }
    }
}
