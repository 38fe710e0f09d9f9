//! Limits that several clusters on the same storage share.

use super::{HOUR, MINUTE, limits::Limits};
use crate::{
    config_format::{
        form::{Form, keys, mapping, section, settings},
        section::Section,
        values::{SECOND, bytes, duration_between, integer, text, url},
    },
    model::{channel::Channel, share::Share},
    text::size::format_size_short,
};
use couchdb_client::Address;
use std::{collections::BTreeMap, time::Duration};

settings! {
    /// Limits that several clusters on the same storage share; one recliner, the keeper, divides them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SharedLimits {
        /// URL of the keeper, which this recliner asks for its share; without it, nothing is shared. The login is the fleet's.
        "shared_limits.url" => url: Option<Address> = None, Live, url("the keeper", "http://recliner-a:10984").optional();
        /// The name of this recliner in the keeper's list of members.
        "shared_limits.name" => name: Option<String> = None, Live, text().optional();
        /// What is shared, and by whom; makes this recliner the keeper.
        "shared_limits.keeper" => keeper: Option<KeeperSettings> = None, Live, keeper().optional();
    }
    check = check_member;
}

settings! {
    /// What members share.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct KeeperSettings {
        /// Maximum compactions at a time in the clusters of all members.
        "jobs" => jobs: usize = Limits::default().cluster, Live, integer(1..=1_000_000);
        /// Maximum total size, before compaction, of files whose compaction starts within any hour in the clusters of
        /// all members.
        "bytes_per_hour" => bytes_per_hour: u64 = Limits::default().bytes_per_hour, Live, bytes();
        /// How long a member may use a lease without an answer from the keeper; it asks four times in that time.
        "lease" => lease: Duration = 2 * MINUTE, Live, duration_between(5 * SECOND, HOUR);
        /// The members by name, each with the share always reserved for it, which it may use without an answer from the
        /// keeper.
        "members" => members: BTreeMap<String, Share> = BTreeMap::new(), Live, mapping(text(), share());
    }
    check = check_keeper;
}

impl KeeperSettings {
    /// What all members may use together.
    pub const fn total(&self) -> Share {
        Share { jobs: self.jobs, bytes_per_hour: self.bytes_per_hour }
    }
}

fn keeper() -> Form<KeeperSettings> {
    KeeperSettings::form().starting_from(KeeperSettings::default())
}

fn share() -> Form<Share> {
    let keys = keys!(Share {
        /// Compactions at a time that the member may run without an answer from the keeper.
        "jobs" => jobs, Live, integer(0..=Channel::MAX_CONCURRENCY);
        /// Total size of the files whose compaction it may start within any hour without an answer.
        "bytes_per_hour" => bytes_per_hour, Live, bytes();
    });
    section(keys, |_, _| {}).starting_from(Share::NONE)
}

fn check_member(_: &mut SharedLimits, section: &mut Section<'_, '_>) {
    for (given, missing) in [("url", "name"), ("name", "url")] {
        if section.key_at(missing).is_none() {
            let says = format!(
                "found {given} without {missing}; a member needs the keeper's address and its own name"
            );
            section.refuse_key(given, says);
        }
    }
}

fn check_keeper(keeper: &mut KeeperSettings, section: &mut Section<'_, '_>) {
    let (total, aside) = (keeper.total(), keeper.members.values().copied().sum::<Share>());
    if keeper.members.is_empty() {
        section.refuse("the key members is missing or empty; it names who shares the limits");
    }
    if aside.jobs > total.jobs {
        let says = format!(
            "the members' reserved shares add up to {} jobs, more than the {} that they share",
            aside.jobs, total.jobs
        );
        section.refuse_value("members", says);
    }
    if aside.bytes_per_hour > total.bytes_per_hour {
        let says = format!(
            "the members' reserved shares add up to {} an hour, more than the {} that they share",
            format_size_short(aside.bytes_per_hour),
            format_size_short(total.bytes_per_hour)
        );
        section.refuse_value("members", says);
    }
}
