//! The query parameters of the API.

use crate::{
    model::{
        records::JobResult,
        target::{TargetKind, TargetState},
    },
    plan::Plan,
    serve::report::words,
    store::journal::{EventType, EventsQuery, HistoryQuery},
    table::{TargetIx, TargetRef},
    text::duration,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use std::{borrow::Cow, time::Duration};
use wall_clock::Moment;

/// The default and the maximum number of targets per response.
const LIMIT: usize = 100;
const LARGEST: usize = 10_000;

/// The maximum wait for an event: shorter than the timeouts of common proxies.
const PATIENCE: Duration = Duration::from_secs(60);

/// A route without parameters: a parameter is an error, as everywhere in the API.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}

/// Filters, order and page of a list of targets.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TargetQuery {
    /// Only targets of this node; `_cluster` has the views and index cleanups of the whole cluster.
    node: Option<String>,
    /// Only targets of this kind.
    #[schemars(with = "Option<words::Kind>")]
    kind: Option<String>,
    /// Only targets in this state.
    #[schemars(with = "Option<words::State>")]
    state: Option<String>,
    /// Only targets of this database.
    db: Option<String>,
    /// Only targets that this channel takes.
    channel: Option<String>,
    /// The field to sort by, largest first. Without it, the order is internal.
    #[schemars(with = "Option<SortName>")]
    sort: Option<String>,
    /// The maximum number of targets; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
    /// The number of targets to skip.
    #[schemars(range(max = usize::MAX))]
    offset: Option<usize>,
}

/// The queues to return, and how many of their targets.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QueueQuery {
    /// Only queues of this node; `_cluster` has those of views and index cleanups.
    pub(super) node: Option<String>,
    /// Only queues of this channel.
    pub(super) channel: Option<String>,
    /// The maximum number of targets of each queue or of the plan; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
    /// The number of these targets to skip.
    #[schemars(range(max = usize::MAX))]
    offset: Option<usize>,
}

/// The target to explain.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["target"]))]
pub(super) struct ExplainQuery {
    /// An id, a shard file's name, a database, or `<db>/_design/<name>`.
    pub(super) target: Option<String>,
    /// The maximum number of targets; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
    /// The number of targets to skip.
    #[schemars(range(max = usize::MAX))]
    offset: Option<usize>,
}

/// A filter for outcomes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HistoryParameters {
    /// Only jobs on targets with this name: an id, a shard file's name, a database, or
    /// `<db>/_design/<name>`; also deleted ones.
    pub(super) target: Option<String>,
    /// Only jobs on this node.
    node: Option<String>,
    /// Only jobs with this result.
    #[schemars(with = "Option<words::Ended>")]
    result: Option<String>,
    /// Only jobs that ended since this timestamp (`2026-11-21T00:54:00Z`), day or age (`2h`,
    /// `7d`).
    since: Option<String>,
    /// Only jobs with a lower number: the `next_before` of the previous page.
    #[schemars(range(max = u64::MAX))]
    before: Option<u64>,
    /// The maximum number of jobs; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
}

/// A filter for events.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EventsParameters {
    /// Only events about targets with this name: an id, a shard file's name, a database, or
    /// `<db>/_design/<name>`; also deleted ones.
    pub(super) target: Option<String>,
    /// Only events of these types, separated by commas.
    #[schemars(with = "Option<Vec<words::EventType>>")]
    types: Option<String>,
    /// Only events after the event with this number, or since this timestamp (`2026-11-21T00:54:00Z`),
    /// day or age (`2h`, `7d`). Without it, the newest.
    since: Option<String>,
    /// The maximum number of events; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
    /// How long an empty response may wait for the first event, such as `30s`, at most 60 seconds.
    /// Needs a number as `since`.
    wait: Option<String>,
}

/// The fields by which a list of targets can be sorted, for the OpenAPI document.
struct SortName;

impl JsonSchema for SortName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Sort".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Sort::ALL.map(Sort::label) })
    }
}

/// A page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRange {
    pub(super) offset: usize,
    pub(super) limit: usize,
}

/// The sort order of a list of targets, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Reclaimable,
    File,
    Ratio,
    Priority,
}

impl Sort {
    const ALL: [Self; 4] = [Self::Reclaimable, Self::File, Self::Ratio, Self::Priority];

    const fn label(self) -> &'static str {
        match self {
            Self::Reclaimable => "reclaimable_bytes",
            Self::File => "file_bytes",
            Self::Ratio => "ratio",
            Self::Priority => "priority",
        }
    }
}

impl PageRange {
    fn new(offset: Option<usize>, limit: Option<usize>) -> Result<Self, String> {
        let limit = limit.unwrap_or(LIMIT);
        if limit > LARGEST {
            return Err(format!(
                "limit {limit} is more than {LARGEST}: read page by page with offset"
            ));
        }
        Ok(Self { offset: offset.unwrap_or(0), limit })
    }

    /// This page of `list`.
    pub(super) fn of<T>(self, list: &[T]) -> &[T] {
        let from = self.offset.min(list.len());
        let to = from.saturating_add(self.limit).min(list.len());
        list.get(from..to).unwrap_or_default()
    }
}

impl HistoryParameters {
    /// The journal's filter at `now`. The caller adds the targets, because resolving the name needs the
    /// plan.
    ///
    /// # Errors
    /// A parameter with an invalid value.
    pub(super) fn read(self, now: Moment) -> Result<HistoryQuery, String> {
        let result = self.result.as_deref().map(|label| {
            JobResult::ALL.into_iter().find(|it| it.label() == label).ok_or_else(|| {
                format!(
                    "{label:?} is not a result; results: {}",
                    JobResult::ALL.map(JobResult::label).join(", ")
                )
            })
        });
        Ok(HistoryQuery {
            target: None,
            node: self.node,
            since: self.since.as_deref().map(|text| time(text, now)).transpose()?,
            result: result.transpose()?,
            before: self.before,
            limit: PageRange::new(None, self.limit)?.limit,
        })
    }
}

impl EventsParameters {
    /// The journal's filter at `now`, without the targets, and how long the response may wait for the
    /// first event.
    ///
    /// # Errors
    /// A parameter with an invalid value.
    pub(super) fn read(self, now: Moment) -> Result<(EventsQuery, Duration), String> {
        let wait = self.wait.as_deref().map_or(Ok(Duration::ZERO), |text| {
            let wait = duration::parse(text).filter(|wait| *wait <= PATIENCE);
            wait.ok_or_else(|| {
                format!("wait={text:?} is not a duration from 0s to 60s, such as 30s")
            })
        })?;
        // A plain number is an event's, so that `last_seq` can be passed back.
        let since = self.since.as_deref().and_then(|text| text.parse::<u64>().ok());
        let moment = self.since.as_deref().filter(|_| since.is_none());
        let from = moment.map(|text| time(text, now)).transpose()?;
        if !wait.is_zero() && since.is_none() {
            return Err(
                "wait needs since= with the number of the event to continue after".to_owned()
            );
        }
        let types =
            self.types.as_deref().unwrap_or_default().split(',').filter(|it| !it.is_empty());
        let types = types.map(|label| {
            EventType::from_label(label).ok_or_else(|| {
                let known = EventType::ALL.map(EventType::label).join(", ");
                format!("{label:?} is not an event type; types: {known}")
            })
        });
        let query = EventsQuery {
            types: types.collect::<Result<_, _>>()?,
            target: None,
            after_seq: since,
            from,
            limit: PageRange::new(None, self.limit)?.limit,
        };
        Ok((query, wait))
    }
}

impl QueueQuery {
    pub(super) fn page(&self) -> Result<PageRange, String> {
        PageRange::new(self.offset, self.limit)
    }

    /// Refuses an unknown channel.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), String> {
        check_channel(plan, self.channel.as_deref())
    }
}

impl ExplainQuery {
    pub(super) fn page(&self) -> Result<PageRange, String> {
        PageRange::new(self.offset, self.limit)
    }
}

impl TargetQuery {
    pub(super) fn page(&self) -> Result<PageRange, String> {
        PageRange::new(self.offset, self.limit)
    }

    /// The requested targets, sorted.
    ///
    /// # Errors
    /// A filter with an invalid value.
    pub(super) fn select(&self, plan: &Plan) -> Result<Vec<TargetIx>, String> {
        let kind = self.kind.as_deref().map(|kind| {
            TargetKind::from_label(kind)
                .ok_or_else(|| format!("{kind:?} is not a kind: db, view, cleanup or search"))
        });
        let state = self.state.as_deref().map(|state| {
            TargetState::from_label(state).ok_or_else(|| {
                format!(
                    "{state:?} is not a state: ok, orphan, missing, resharding or unaddressable"
                )
            })
        });
        let (kind, state) = (kind.transpose()?, state.transpose()?);
        check_channel(plan, self.channel.as_deref())?;
        let sort = self.sort.as_deref().map(|label| {
            Sort::ALL.into_iter().find(|sort| sort.label() == label).ok_or_else(|| {
                format!(
                    "cannot sort by {label:?}: use reclaimable_bytes, file_bytes, ratio or priority"
                )
            })
        });
        let sort = sort.transpose()?;
        let wanted = |target: &TargetRef<'_>| {
            self.node.as_deref().is_none_or(|node| target.node() == node)
                && kind.is_none_or(|kind| target.kind() == kind)
                && state.is_none_or(|state| target.state() == state)
                && self.db.as_deref().is_none_or(|db| target.db_name().db == db)
                && self.channel.as_deref().is_none_or(|channel| {
                    plan.placement(target.ix()).is_some_and(|(has, _)| *has.name == *channel)
                })
        };
        let found = plan.snapshot.targets().filter(wanted);
        let Some(sort) = sort else { return Ok(found.map(TargetRef::ix).collect()) };
        let mut keyed: Vec<_> =
            found.map(|target| (key(plan, target, sort), target.ix())).collect();
        keyed.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        Ok(keyed.into_iter().map(|(_, ix)| ix).collect())
    }
}

/// The sort key of a target; unknown sorts last.
fn key(plan: &Plan, target: TargetRef<'_>, sort: Sort) -> f64 {
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    let key = match sort {
        Sort::Reclaimable => bytes(target.reclaimable_bytes()),
        Sort::File => bytes(target.file_bytes()),
        Sort::Ratio => target.facts().ratio(),
        Sort::Priority => plan.placement(target.ix()).map(|(_, placement)| placement.priority),
    };
    key.unwrap_or(f64::NEG_INFINITY)
}

fn check_channel(plan: &Plan, channel: Option<&str>) -> Result<(), String> {
    let Some(channel) = channel.filter(|name| plan.channels.find(name).is_none()) else {
        return Ok(());
    };
    let names: Vec<&str> = plan.channels.list.iter().map(|channel| &*channel.name).collect();
    Err(format!("no channel is called {channel:?}; channels: {}", names.join(", ")))
}

/// Parses a time as the API and the commands accept it: a time, a day, or how long ago.
pub(super) fn time(text: &str, now: Moment) -> Result<Moment, String> {
    let ago = || {
        let then = Duration::from_secs(now.unix()).saturating_sub(duration::parse(text)?);
        Some(Moment::from_unix(then.as_secs()))
    };
    // A day begins at midnight UTC.
    let day = || Moment::parse(&[text, "T00:00:00Z"].concat());
    Moment::parse(text).or_else(ago).or_else(day).ok_or_else(|| {
        format!("since={text:?} is not a valid time (try 2h or 2026-11-21T00:00:00Z)")
    })
}

/// The undecoded value of a parameter in the URL.
pub(super) fn written<'a>(raw: &'a str, name: &str) -> Option<&'a str> {
    raw.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}
