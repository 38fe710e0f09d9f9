//! Translates smoosh's channels into channels by rent.
//!
//! For each kind of target that smoosh compacts, there is one channel by rent with the common
//! settings of smoosh's channels by ratio and slack for that kind. Its horizon is the default: the
//! best one for a cluster depends on how it grows, which settings do not tell.

use crate::{
    model::{
        channel::{Channel, ChannelPreset, Channels},
        priority::PriorityKind,
        target::TargetKind,
    },
    text::pattern::NameFilter,
};

/// Channels by rent that replace smoosh's, and what could not be kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AsRent {
    /// Channels by rent, at most one for each kind of target.
    pub channels: Channels,
    /// Sentences about differences from smoosh.
    pub findings: Vec<String>,
}

/// Channels by rent that compact what these channels of smoosh compact.
pub(crate) fn as_rent(smoosh: &Channels) -> AsRent {
    let mut findings = Vec::new();
    let preset = ChannelPreset::Rent.channels().into_iter();
    let list = preset.filter_map(|channel| rent_channel(channel, smoosh, &mut findings)).collect();
    AsRent { channels: Channels { list, ignore: smoosh.ignore.clone() }, findings }
}

/// A channel by rent with the common settings of smoosh's channels of its kind; `None` if smoosh
/// starts no jobs of its kind.
fn rent_channel(
    mut channel: Channel,
    smoosh: &Channels,
    findings: &mut Vec<String>,
) -> Option<Channel> {
    let same_work = |it: &&Channel| match channel.kind {
        TargetKind::Cleanup => true,
        TargetKind::Db | TargetKind::View | TargetKind::Search => {
            matches!(it.priority, PriorityKind::Ratio | PriorityKind::Slack)
        }
    };
    let active = smoosh.list.iter().filter(|it| it.kind == channel.kind && it.concurrency > 0);
    let rivals: Vec<&Channel> = active.filter(same_work).collect();
    let Some(first) = rivals.first().copied() else {
        findings.push(format!(
            "with its present settings, smoosh {}, so there is no {} here",
            idle(channel.kind),
            channel.name
        ));
        return None;
    };
    let rivals = rivals.as_slice();
    channel.concurrency = rivals.iter().map(|it| it.concurrency).max().unwrap_or(1);
    if channel.kind != TargetKind::Cleanup {
        channel.min_size = rivals.iter().map(|it| it.min_size).min().unwrap_or_default();
        channel.min_changes = rivals.iter().map(|it| it.min_changes).min().unwrap_or_default();
        let has_end = rivals.iter().all(|it| it.max_size.is_some());
        channel.max_size = rivals.iter().filter_map(|it| it.max_size).max().filter(|_| has_end);
    }
    let mut differs = |what: &str, instead: &str| {
        let names: Vec<&str> = rivals.iter().map(|it| &*it.name).collect();
        let (names, name) = (names.join(", "), &channel.name);
        findings.push(format!("{names} have different {what}, so {name} {instead}"));
    };
    if rivals.iter().all(|it| it.windows == first.windows) {
        channel.windows.clone_from(&first.windows);
        channel.strict_window = rivals.iter().all(|it| it.strict_window);
    } else {
        differs("windows", "is always open: give it the windows that you want");
    }
    if rivals.iter().all(|it| it.databases == first.databases) {
        channel.databases = first.databases.clone();
    } else {
        channel.databases = NameFilter::default();
        differs("databases", "takes all of them");
    }
    Some(channel)
}

/// A phrase for what smoosh does not do.
const fn idle(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Db => "compacts no databases by ratio or slack",
        TargetKind::View => "compacts no views by ratio or slack",
        TargetKind::Cleanup | TargetKind::Search => "cleans up no index files",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::window::Window;

    /// smoosh's default channels, after applying `change` to each.
    fn smoosh(change: impl Fn(&mut Channel)) -> Channels {
        let mut channels = Channels::default();
        channels.list.iter_mut().for_each(change);
        channels
    }

    fn night() -> Window {
        use crate::model::window::Days;
        use jiff::{civil::time, tz::TimeZone};
        Window {
            days: Days::ALL,
            from: time(1, 0, 0, 0),
            to: time(5, 0, 0, 0),
            zone: TimeZone::UTC,
        }
    }

    #[test]
    fn default_smoosh_channels_become_the_rent_preset() {
        let AsRent { channels, findings } = as_rent(&Channels::default());
        assert_eq!(channels.list, ChannelPreset::Rent.channels());
        assert_eq!(findings, [""; 0]);
    }

    #[test]
    fn rent_channels_combine_the_settings_of_smoosh_channels() {
        let smoosh = smoosh(|channel| {
            if channel.kind == TargetKind::Db {
                // Upgrade channels have no counterpart by rent, so their settings are ignored.
                if channel.priority != PriorityKind::Upgrade {
                    channel.windows = vec![night()];
                    channel.strict_window = true;
                }
                channel.min_size = if &*channel.name == "ratio_dbs" { 5 << 20 } else { 7 << 20 };
                channel.max_size = Some(channel.min_size * 100);
                channel.concurrency = usize::from(&*channel.name == "slack_dbs") + 1;
            }
            if channel.kind == TargetKind::View {
                channel.databases = NameFilter::new::<&str>(&[], &["a"]).unwrap();
            }
        });
        let AsRent { channels, findings } = as_rent(&smoosh);
        assert_eq!(findings, [""; 0]);
        let dbs = &channels.list[0];
        assert_eq!((dbs.windows.as_slice(), dbs.strict_window), (&[night()][..], true));
        assert_eq!((dbs.min_size, dbs.max_size), (5 << 20, Some(700 << 20)));
        assert_eq!(dbs.concurrency, 2);
        assert_eq!(channels.list[1].databases, smoosh.list[3].databases);
        assert!(channels.list[1].windows.is_empty());
    }

    #[test]
    fn reports_settings_that_differ_between_channels() {
        let smoosh = smoosh(|channel| {
            if &*channel.name == "slack_dbs" {
                channel.windows = vec![night()];
            }
            if matches!(channel.kind, TargetKind::View | TargetKind::Cleanup) {
                channel.concurrency = 0;
            }
        });
        let AsRent { channels, findings } = as_rent(&smoosh);
        let names: Vec<&str> = channels.list.iter().map(|channel| &*channel.name).collect();
        assert_eq!(names, ["rent_dbs"]);
        assert!(channels.list[0].windows.is_empty());
        assert_eq!(
            findings,
            [
                "ratio_dbs, slack_dbs have different windows, so rent_dbs is always open: give it the windows that you want",
                "with its present settings, smoosh compacts no views by ratio or slack, so there is no rent_views here",
                "with its present settings, smoosh cleans up no index files, so there is no index_cleanup here",
            ]
        );
    }
}
