//! The list of all rules.
//!
//! Owns the order of the families. Each family is a folder with a file for each rule.

mod queues;

pub(super) use documents::deleted_documents::copy_without_deleted;

/// Waste that compactions would free.
mod compaction {
    pub(super) mod failing_compaction;
    pub(super) mod waste_no_channel_takes;
    pub(super) mod waste_waits;
}

/// Files that should not be there, and files that should.
mod housekeeping {
    pub(super) mod compaction_leftovers;
    pub(super) mod copies_differ;
    mod files;
    pub(super) mod missing_copies;
    pub(super) mod orphan_shards;
    pub(super) mod oversized_compaction_file;
    pub(super) mod stale_indexes;
    pub(super) mod trash_and_recovered;
}

/// Documents: deleted and purged ones, and bytes that CouchDB hides.
mod documents {
    pub(super) mod deleted_documents;
    pub(super) mod hidden_bytes;
    pub(super) mod local_documents;
    pub(super) mod long_revision_trees;
    pub(super) mod unprocessed_purges;
}

/// View indexes: what they cost, and how far they are built.
mod views {
    mod designs;
    pub(super) mod duplicate_views;
    pub(super) mod failing_build;
    pub(super) mod growing_lag;
    pub(super) mod index_larger_than_database;
    pub(super) mod lagging_index;
    pub(super) mod many_views_in_one_design;
    pub(super) mod smoosh_compacts_building_index;
    pub(super) mod stalled_build;
    pub(super) mod unread_index;
}

/// Shard ranges, and how they are spread over the nodes.
mod sharding {
    mod moves;
    pub(super) mod shard_too_large_to_compact;
    pub(super) mod skewed_range;
    mod split;
    pub(super) mod too_many_shards;
    pub(super) mod unbalanced_nodes;
}

/// Space: volumes that fill up.
mod space {
    pub(super) mod volume_fills;
}

/// CouchDB's settings, and its versions, on the nodes.
mod settings {
    pub(super) mod disk_monitor_on;
    pub(super) mod fewer_copies;
    pub(super) mod mixed_versions;
    pub(super) mod no_file_compression;
    mod nodes;
    pub(super) mod old_compaction_rules;
    pub(super) mod settings_differ;
    pub(super) mod smoosh_channel_never_matches;
    pub(super) mod smoosh_channel_shadowed;
    pub(super) mod smoosh_channel_stopped;
    pub(super) mod smoosh_falls_behind;
    pub(super) mod too_few_open_databases;
    pub(super) mod version_end_of_life;
    pub(super) mod version_with_compaction_fault;
}

/// recliner itself: what it cannot see or does not know, and what its settings keep it from doing
/// in time.
mod service {
    pub(super) mod limits_hold_back;
    pub(super) mod missing_rights;
    pub(super) mod unknown_volumes;
    pub(super) mod window_too_short;
}

use super::{Family, Rule};

pub(crate) use views::duplicate_views::duplicates;

/// Every family, in the order of the book.
pub const FAMILIES: &[Family] = &[
    Family {
        title: "Compaction",
        rules: &[
            compaction::waste_waits::RULE,
            compaction::waste_no_channel_takes::RULE,
            compaction::failing_compaction::RULE,
        ],
    },
    Family {
        title: "Waste and missing files",
        rules: &[
            housekeeping::missing_copies::RULE,
            housekeeping::copies_differ::RULE,
            housekeeping::oversized_compaction_file::RULE,
            housekeeping::orphan_shards::RULE,
            housekeeping::stale_indexes::RULE,
            housekeeping::compaction_leftovers::RULE,
            housekeeping::trash_and_recovered::RULE,
        ],
    },
    Family {
        title: "Documents",
        rules: &[
            documents::deleted_documents::RULE,
            documents::hidden_bytes::RULE,
            documents::unprocessed_purges::RULE,
            documents::local_documents::RULE,
            documents::long_revision_trees::RULE,
        ],
    },
    Family {
        title: "View indexes",
        rules: &[
            views::failing_build::RULE,
            views::stalled_build::RULE,
            views::lagging_index::RULE,
            views::growing_lag::RULE,
            views::smoosh_compacts_building_index::RULE,
            views::unread_index::RULE,
            views::duplicate_views::RULE,
            views::index_larger_than_database::RULE,
            views::many_views_in_one_design::RULE,
        ],
    },
    Family {
        title: "Sharding",
        rules: &[
            sharding::shard_too_large_to_compact::RULE,
            sharding::skewed_range::RULE,
            sharding::too_many_shards::RULE,
            sharding::unbalanced_nodes::RULE,
        ],
    },
    Family { title: "Disk space", rules: &[space::volume_fills::RULE] },
    Family {
        title: "CouchDB's settings and versions",
        rules: &[
            settings::old_compaction_rules::RULE,
            settings::smoosh_channel_never_matches::RULE,
            settings::smoosh_channel_shadowed::RULE,
            settings::smoosh_channel_stopped::RULE,
            settings::smoosh_falls_behind::RULE,
            settings::no_file_compression::RULE,
            settings::too_few_open_databases::RULE,
            settings::disk_monitor_on::RULE,
            settings::settings_differ::RULE,
            settings::fewer_copies::RULE,
            settings::mixed_versions::RULE,
            settings::version_end_of_life::RULE,
            settings::version_with_compaction_fault::RULE,
        ],
    },
    Family {
        title: "recliner itself",
        rules: &[
            service::missing_rights::RULE,
            service::unknown_volumes::RULE,
            service::window_too_short::RULE,
            service::limits_hold_back::RULE,
        ],
    },
];

/// Every rule.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    FAMILIES.iter().flat_map(|family| family.rules)
}

/// The rule with this code.
pub fn rule_of_code(code: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique_and_valid_as_labels_and_anchors() {
        let codes: Vec<&str> = rules().map(|rule| rule.code).collect();
        let distinct: BTreeSet<&str> = codes.iter().copied().collect();
        assert_eq!(distinct.len(), codes.len());
        for code in codes {
            assert!(
                code.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_'),
                "{code}"
            );
        }
    }

    #[test]
    fn remedies_are_tested_on_couchdb_or_rule_says_why_not() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/remedies");
        let script = std::fs::read_to_string(script).expect("it is in the repository");
        let tried = script
            .lines()
            .filter_map(|line| line.strip_prefix("@situation(\"")?.strip_suffix("\")"));
        let tried: BTreeSet<&str> = tried.collect();
        let claimed = rules().filter(|rule| rule.untried.is_none()).map(|rule| rule.code);
        assert_eq!(tried, claimed.collect());
    }

    #[test]
    fn book_can_explain_every_rule() {
        for rule in rules() {
            assert!(rule.finds.ends_with('.') && rule.because.ends_with('.'), "{}", rule.code);
            assert!(!rule.severities.is_empty(), "{}", rule.code);
        }
    }
}
