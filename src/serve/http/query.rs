//! The query parameters of the API.

use crate::{
    model::{
        records::JobResult,
        target::{TargetId, TargetKind, TargetState},
    },
    plan::{Decision, Plan, RefusalReason},
    serve::report::{self, words},
    store::journal::{EventType, EventsQuery, HistoryQuery},
    table::{TargetIx, TargetRef},
    text::Label,
    text::{duration, size},
};
use hashbrown::HashMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use std::{borrow::Cow, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// The default and the maximum number of targets per response.
const LIMIT: usize = 100;
const LARGEST: usize = 10_000;

/// How far hours are counted back, unless asked otherwise, and at most.
const HOURS_SINCE: &str = "2d";
const MAX_HOURS_SINCE: Duration = Duration::from_secs(35 * 86_400);

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
    /// Only targets of this node; `_cluster` has the views and index cleanups of the whole cluster. The files of a
    /// view on a node are only listed with that node, or as orphans: otherwise the view has them.
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
    /// Only targets that wait for this reason.
    #[schemars(with = "Option<words::RefusalReason>")]
    reason: Option<String>,
    /// Only targets with this text in the name of their database or of a design document, whatever its case;
    /// or the target with this id.
    search: Option<String>,
    /// Only targets with at least so many bytes on disk, such as `100MiB`.
    min_size: Option<String>,
    /// Only targets with at most so many bytes on disk, such as `10GiB`.
    max_size: Option<String>,
    /// The field to sort by; what is unknown comes last. Without it, the order is internal.
    #[schemars(with = "Option<SortName>")]
    sort: Option<String>,
    /// `asc`, the least first, or `desc`, the greatest first. Without it, numbers begin with the greatest and
    /// names with the first.
    #[schemars(with = "Option<OrderName>")]
    order: Option<String>,
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

/// The hours to count back to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HoursParameters {
    /// Since this timestamp (`2026-11-21T00:54:00Z`), day or age (`2h`, `7d`), from the full hour on; default
    /// `2d`, at most `35d`.
    since: Option<String>,
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
    /// Only events before the event with this number.
    #[schemars(range(max = u64::MAX))]
    before: Option<u64>,
    /// The maximum number of events; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
    /// How long an empty response may wait for the first event, such as `30s`, at most 60 seconds.
    /// Needs a number as `since`.
    wait: Option<String>,
}

/// A parameter that takes one of a few words, for the OpenAPI document.
macro_rules! words_of_parameter {
    ($name:ident, $title:literal, $words:expr) => {
        struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                $title.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "enum": $words })
            }
        }
    };
}

words_of_parameter!(SortName, "Sort", Sort::labels());
words_of_parameter!(OrderName, "Order", [ASCENDING, DESCENDING]);

/// The variant that a parameter names, or which there are.
fn one_of<T: Label>(label: &str, one: &str, many: &str) -> Result<T, String> {
    T::from_label(label)
        .ok_or_else(|| format!("{label:?} is not {one}; {many}: {}", T::labels().join(", ")))
}

const ASCENDING: &str = "asc";
const DESCENDING: &str = "desc";

/// A page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRange {
    pub(super) offset: usize,
    pub(super) limit: usize,
}

/// What a list of targets is sorted by.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    #[strum(serialize = "reclaimable_bytes")]
    Reclaimable,
    #[strum(serialize = "file_bytes")]
    File,
    Ratio,
    Priority,
    Db,
    Node,
    Kind,
    Channel,
}

impl Sort {
    /// Whether it begins with the greatest unless asked otherwise.
    const fn is_of_numbers(self) -> bool {
        matches!(self, Self::Reclaimable | Self::File | Self::Ratio | Self::Priority)
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
        let result =
            self.result.as_deref().map(|label| one_of::<JobResult>(label, "a result", "results"));
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

impl HoursParameters {
    /// The time to count back to, at `now`.
    ///
    /// # Errors
    /// It is no time, or too long ago.
    pub(super) fn read(self, now: Moment) -> Result<Moment, String> {
        let text = self.since.as_deref().unwrap_or(HOURS_SINCE);
        let since = time(text, now)?;
        if since.age(now) > MAX_HOURS_SINCE {
            let most = duration::format_exact(MAX_HOURS_SINCE);
            return Err(format!("since={text:?} is too long ago: hours are counted for {most}"));
        }
        Ok(since)
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
        let types = types.map(|label| one_of::<EventType>(label, "an event type", "types"));
        let query = EventsQuery {
            types: types.collect::<Result<_, _>>()?,
            target: None,
            after_seq: since,
            before_seq: self.before,
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

    /// How many targets are requested, and those of the requested page, sorted.
    ///
    /// # Errors
    /// A filter with an invalid value.
    pub(super) fn select(&self, plan: &Plan) -> Result<(usize, Vec<TargetIx>), String> {
        let page = self.page()?;
        let found = self.filter(plan)?;
        let total = found.len();
        let Some((sort, ascending)) = self.sort()? else {
            return Ok((total, page.of(&found).to_vec()));
        };
        let ranks = Ranks::of(plan, sort);
        let mut keyed: Vec<(f64, TargetIx)> = found
            .into_iter()
            .filter_map(|ix| Some((ranks.key(plan, plan.snapshot.target(ix)?, ascending), ix)))
            .collect();
        // Equal keys keep the order of the tables, so that pages do not overlap.
        let order = |one: &(f64, TargetIx), other: &(f64, TargetIx)| {
            one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
        };
        let end = page.offset.saturating_add(page.limit);
        // A page needs no more than its own end sorted.
        if end < keyed.len() {
            keyed.select_nth_unstable_by(end, order);
            keyed.truncate(end);
        }
        keyed.sort_unstable_by(order);
        Ok((total, page.of(&keyed).iter().map(|(_, ix)| *ix).collect()))
    }

    /// What to sort by, and whether the least comes first.
    fn sort(&self) -> Result<Option<(Sort, bool)>, String> {
        let order = match self.order.as_deref() {
            None => None,
            Some(ASCENDING) => Some(true),
            Some(DESCENDING) => Some(false),
            Some(other) => return Err(format!("order is {other:?}: use asc or desc")),
        };
        let Some(label) = self.sort.as_deref() else { return Ok(None) };
        let sort = Sort::from_label(label).ok_or_else(|| {
            let known = Sort::labels().join(", ");
            format!("cannot sort by {label:?}: use one of {known}")
        })?;
        Ok(Some((sort, order.unwrap_or_else(|| !sort.is_of_numbers()))))
    }

    /// All requested targets, in the order of the tables.
    fn filter(&self, plan: &Plan) -> Result<Vec<TargetIx>, String> {
        let kind = self.kind.as_deref().map(|kind| {
            TargetKind::from_label(kind)
                .ok_or_else(|| format!("{kind:?} is not a kind: db, view, cleanup or search"))
        });
        let state =
            self.state.as_deref().map(|label| one_of::<TargetState>(label, "a state", "states"));
        let reason = self.reason.as_deref().map(|label| {
            one_of::<RefusalReason>(label, "a reason for which targets wait", "reasons")
        });
        let sized = |key: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(|text| {
                size::parse(text).map_err(|why| format!("{key}={text:?} is not a size: {why}"))
            });
            parsed.transpose()
        };
        let min_size = sized("min_size", &self.min_size)?;
        let max_size = sized("max_size", &self.max_size)?;
        let (kind, state) = (kind.transpose()?, state.transpose()?);
        let reason = reason.transpose()?;
        check_channel(plan, self.channel.as_deref())?;
        let mut search = self.search.as_deref().map(|text| Search::new(plan, text));
        let named = search.as_ref().and_then(|search| search.named);
        let in_its_view =
            self.node.is_none() && state != Some(TargetState::Orphan) && plan.snapshot.has_views();
        let mut wanted = |target: &TargetRef<'_>| {
            self.node.as_deref().is_none_or(|node| target.node() == node)
                && kind.is_none_or(|kind| target.kind() == kind)
                && state.is_none_or(|state| target.state() == state)
                && self.db.as_deref().is_none_or(|db| target.db_name().db == db)
                && self.channel.as_deref().is_none_or(|channel| {
                    plan.placement(target.ix()).is_some_and(|(has, _)| *has.name == *channel)
                })
                && min_size.is_none_or(|least| target.file_bytes() >= Some(least))
                && max_size.is_none_or(|most| target.file_bytes().is_some_and(|it| it <= most))
                && search.as_mut().is_none_or(|search| search.accepts(target))
                && reason.is_none_or(|reason| refused_for(plan, *target) == Some(reason))
                && (!in_its_view || !target.is_part() || named == Some(target.ix()))
        };
        Ok(plan.snapshot.targets().filter(&mut wanted).map(TargetRef::ix).collect())
    }
}

/// Why a target that a channel takes does not start.
fn refused_for(plan: &Plan, target: TargetRef<'_>) -> Option<RefusalReason> {
    match plan.decision(target) {
        Decision::Refused(refusal) => Some(refusal.reason),
        Decision::Start | Decision::NotTaken => None,
    }
}

/// A text that names of databases and design documents are searched for.
struct Search {
    lowercase: String,
    /// The target whose id the text is.
    named: Option<TargetIx>,
    /// Whether each database's name has the text, once it was looked at.
    dbs: Vec<Option<bool>>,
}

impl Search {
    fn new(plan: &Plan, text: &str) -> Self {
        let named = text.parse::<TargetId>().ok().map(|_| report::find(plan, text).all());
        let named = named.and_then(|found| found.first().copied());
        Self { lowercase: text.to_lowercase(), named, dbs: Vec::new() }
    }

    fn accepts(&mut self, target: &TargetRef<'_>) -> bool {
        let at = target.db().as_usize();
        if self.dbs.len() <= at {
            self.dbs.resize(at + 1, None);
        }
        let has = |name: &str| name.to_lowercase().contains(&self.lowercase);
        let in_db = match self.dbs.get(at).copied().flatten() {
            Some(known) => known,
            None => has(target.db_name().db),
        };
        if let Some(known) = self.dbs.get_mut(at) {
            *known = Some(in_db);
        }
        in_db
            || self.named == Some(target.ix())
            || target.view().is_some_and(|view| view.designs.iter().any(|design| has(design)))
    }
}

/// The sort keys of targets: numbers, or the places of names in their order.
struct Ranks {
    sort: Sort,
    /// The place of each database's, node's or channel's name.
    places: Vec<f64>,
}

impl Ranks {
    fn of(plan: &Plan, sort: Sort) -> Self {
        let names: Vec<(usize, &str)> = match sort {
            Sort::Db => {
                let named = plan.snapshot.targets();
                let named = named.map(|target| (target.db().as_usize(), target.db_name().db));
                let known: HashMap<usize, &str> = named.collect();
                known.into_iter().collect()
            }
            Sort::Node => {
                plan.snapshot.nodes().iter().map(|node| &*node.name).enumerate().collect()
            }
            Sort::Channel => {
                plan.channels.list.iter().map(|channel| &*channel.name).enumerate().collect()
            }
            Sort::Reclaimable | Sort::File | Sort::Ratio | Sort::Priority | Sort::Kind => vec![],
        };
        Self { sort, places: places(names) }
    }

    /// A key by which a sort from the least puts targets in order; unknown is last in both directions.
    fn key(&self, plan: &Plan, target: TargetRef<'_>, ascending: bool) -> f64 {
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        let place = |at: usize| self.places.get(at).copied();
        let placement = || plan.placement(target.ix());
        let key = match self.sort {
            Sort::Reclaimable => bytes(target.reclaimable_bytes()),
            Sort::File => bytes(target.file_bytes()),
            Sort::Ratio => target.facts().ratio(),
            Sort::Priority => placement().map(|(_, placed)| placed.priority),
            Sort::Db => place(target.db().as_usize()),
            Sort::Node => place(target.node_ix().as_usize()),
            Sort::Kind => Some(f64::from(target.kind() as u8)),
            Sort::Channel => {
                let named = placement().map(|(channel, _)| &channel.name);
                let mut list = plan.channels.list.iter();
                named.and_then(|name| list.position(|it| it.name == *name)).and_then(place)
            }
        };
        match key {
            Some(key) if ascending => key,
            Some(key) => -key,
            None => f64::INFINITY,
        }
    }
}

/// The place of each name in their order, by index.
fn places(mut names: Vec<(usize, &str)>) -> Vec<f64> {
    names.sort_unstable_by_key(|(_, name)| *name);
    let end = names.iter().map(|(at, _)| at + 1).max().unwrap_or(0);
    let mut places = vec![f64::INFINITY; end];
    for (place, (at, _)) in names.into_iter().enumerate() {
        if let Some(of) = places.get_mut(at) {
            *of = place as f64;
        }
    }
    places
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
