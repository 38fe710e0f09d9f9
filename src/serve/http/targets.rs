//! `/api/v1/targets`: targets, filtered, sorted and paged.

use super::{
    answer::{Answer, StreamedData},
    error::ApiError,
    query::{LARGEST, Named, PageRange, SortOrder},
    queues::check_channel,
    route::Route,
    state::AppState,
    turn::worked_out,
};
use crate::{
    model::target::{TargetId, TargetKind, TargetState},
    plan::{Decision, Plan, RefusalClass, RefusalReason},
    serve::report::{self, Target, Targets},
    table::{DbIx, TargetIx, TargetRef},
    text::size,
};
use hashbrown::HashSet;
use schemars::JsonSchema;
use serde::Deserialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

pub(super) fn routes() -> Vec<Route> {
    vec![Route::read("/api/v1/targets", "targets", targets, "Targets, filtered, sorted and paged.")]
}

/// Lists targets, filtered, sorted and paged.
async fn targets(state: AppState, query: TargetQuery) -> Result<Answer<Targets>, ApiError> {
    worked_out(&state, move |plan| {
        let (head, shown) = query.select(&plan).map_err(ApiError::bad)?;
        let lines = shown.into_iter();
        let lines = lines.filter_map(move |ix| Some(Target::of(&plan, plan.snapshot.target(ix)?)));
        Ok(StreamedData::with_list("targets", &head, lines))
    })
    .await
}

/// Filters, order and page of a list of targets.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TargetQuery {
    /// Only targets of this node; `_cluster` has the views and index cleanups of the whole cluster. The files
    /// of a view are listed only with their node or as orphans; otherwise the view stands for them.
    node: Option<String>,
    /// Only targets of this kind.
    kind: Option<Named<TargetKind>>,
    /// Only targets in this state.
    state: Option<Named<TargetState>>,
    /// Only targets of this database.
    db: Option<String>,
    /// Only targets that this channel takes.
    channel: Option<String>,
    /// Only targets that wait for this reason.
    reason: Option<Named<RefusalReason>>,
    /// Only targets that wait for a reason of this group.
    class: Option<Named<RefusalClass>>,
    /// Only targets with this text in the name of their database or of a design document, ignoring case; or the
    /// target with this id.
    search: Option<String>,
    /// Only targets of at least this size on disk, such as `100MiB`.
    min_size: Option<String>,
    /// Only targets of at most this size on disk, such as `10GiB`.
    max_size: Option<String>,
    /// The field to sort by; unknown values come last. Without it, the order is arbitrary.
    sort: Option<Named<SortKey>>,
    /// `asc`, smallest first, or `desc`, largest first. By default numbers are descending and names ascending.
    order: Option<Named<SortOrder>>,
    /// The maximum number of targets; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
    /// The number of targets to skip.
    #[schemars(range(max = usize::MAX))]
    offset: Option<usize>,
}

/// The sort key of a list of targets.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortKey {
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

impl SortKey {
    /// Whether the greatest comes first by default.
    const fn is_of_numbers(self) -> bool {
        matches!(self, Self::Reclaimable | Self::File | Self::Ratio | Self::Priority)
    }
}

impl TargetQuery {
    /// The targets of the requested page, sorted, and the list without them.
    ///
    /// # Errors
    /// If a filter has an invalid value.
    pub(super) fn select(&self, plan: &Plan) -> Result<(Targets, Vec<TargetIx>), String> {
        let page @ PageRange { offset, limit } = PageRange::new(self.offset, self.limit)?;
        let found = self.filter(plan)?;
        let generated_at = plan.snapshot.generated_at().rfc3339();
        let head = Targets { generated_at, total: found.len(), offset, limit, targets: Vec::new() };
        let Some((sort, ascending)) = self.sort() else {
            return Ok((head, page.of(&found).to_vec()));
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
        let end = offset.saturating_add(limit);
        // Only the entries up to the end of the page need to be sorted.
        if end < keyed.len() {
            keyed.select_nth_unstable_by(end, order);
            keyed.truncate(end);
        }
        keyed.sort_unstable_by(order);
        Ok((head, page.of(&keyed).iter().map(|(_, ix)| *ix).collect()))
    }

    /// The sort key, and whether the least comes first.
    fn sort(&self) -> Option<(SortKey, bool)> {
        let Named(sort) = self.sort?;
        let is_ascending = self.order.map(|Named(order)| order == SortOrder::Asc);
        Some((sort, is_ascending.unwrap_or_else(|| !sort.is_of_numbers())))
    }

    /// All matching targets, in the order of the tables.
    fn filter(&self, plan: &Plan) -> Result<Vec<TargetIx>, String> {
        let sized = |key: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(|text| {
                size::parse(text).map_err(|why| format!("{key}={text:?} is not a size: {why}"))
            });
            parsed.transpose()
        };
        let min_size = sized("min_size", &self.min_size)?;
        let max_size = sized("max_size", &self.max_size)?;
        check_channel(plan, self.channel.as_deref())?;
        let search = self.search.as_deref().map(|text| Search::new(plan, text));
        let named = search.as_ref().and_then(|search| search.named);
        let in_its_view = self.node.is_none()
            && self.state != Some(Named(TargetState::Orphan))
            && plan.snapshot.has_views();
        let wanted = |target: &TargetRef<'_>| {
            self.node.as_deref().is_none_or(|node| target.node() == node)
                && self.kind.is_none_or(|Named(kind)| target.kind() == kind)
                && self.state.is_none_or(|Named(state)| target.state() == state)
                && self.db.as_deref().is_none_or(|db| target.db_name().db == db)
                && self.channel.as_deref().is_none_or(|channel| {
                    plan.placement(target.ix()).is_some_and(|(has, _)| *has.name == *channel)
                })
                && min_size.is_none_or(|least| target.file_bytes() >= Some(least))
                && max_size.is_none_or(|most| target.file_bytes().is_some_and(|it| it <= most))
                && search.as_ref().is_none_or(|search| search.accepts(target))
                && self
                    .reason
                    .is_none_or(|Named(reason)| refused_for(plan, *target) == Some(reason))
                && self.class.is_none_or(|Named(class)| {
                    refused_for(plan, *target).is_some_and(|reason| reason.class() == class)
                })
                && (!in_its_view || !target.is_part() || named == Some(target.ix()))
        };
        Ok(plan.snapshot.targets().filter(wanted).map(TargetRef::ix).collect())
    }
}

/// Why a queued target does not start.
fn refused_for(plan: &Plan, target: TargetRef<'_>) -> Option<RefusalReason> {
    match plan.decision(target) {
        Decision::Refused(refusal) => Some(refusal.reason),
        Decision::Start | Decision::NotTaken => None,
    }
}

/// A text to search for in the names of databases and design documents.
struct Search {
    lowercase: String,
    /// The target whose id is the text.
    named: Option<TargetIx>,
    /// The databases whose name contains the text.
    dbs: HashSet<DbIx>,
}

impl Search {
    fn new(plan: &Plan, text: &str) -> Self {
        let named = text.parse::<TargetId>().ok().map(|_| report::find(plan, text).all());
        let named = named.and_then(|found| found.first().copied());
        let found = Self { lowercase: text.to_lowercase(), named, dbs: HashSet::new() };
        let dbs = plan.snapshot.databases().filter(|(_, name)| found.is_in(name.db));
        Self { dbs: dbs.map(|(ix, _)| ix).collect(), ..found }
    }

    fn is_in(&self, name: &str) -> bool {
        name.to_lowercase().contains(&self.lowercase)
    }

    fn accepts(&self, target: &TargetRef<'_>) -> bool {
        self.dbs.contains(&target.db())
            || self.named == Some(target.ix())
            || target.view().is_some_and(|view| view.designs.iter().any(|it| self.is_in(it)))
    }
}

/// The sort keys of targets: numbers, or the ranks of names.
struct Ranks {
    sort: SortKey,
    /// The rank of each name of a database, node or channel.
    places: Vec<f64>,
}

impl Ranks {
    fn of(plan: &Plan, sort: SortKey) -> Self {
        let names: Vec<(usize, &str)> = match sort {
            SortKey::Db => {
                plan.snapshot.databases().map(|(ix, name)| (ix.as_usize(), name.db)).collect()
            }
            SortKey::Node => {
                plan.snapshot.nodes().iter().map(|node| &*node.name).enumerate().collect()
            }
            SortKey::Channel => {
                plan.channels.list.iter().map(|channel| &*channel.name).enumerate().collect()
            }
            SortKey::Reclaimable
            | SortKey::File
            | SortKey::Ratio
            | SortKey::Priority
            | SortKey::Kind => vec![],
        };
        Self { sort, places: places(names) }
    }

    /// A key for sorting in ascending order, whatever the direction; unknown values come last.
    fn key(&self, plan: &Plan, target: TargetRef<'_>, ascending: bool) -> f64 {
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        let place = |at: usize| self.places.get(at).copied();
        let placement = || plan.placement(target.ix());
        let key = match self.sort {
            SortKey::Reclaimable => bytes(target.reclaimable_bytes()),
            SortKey::File => bytes(target.file_bytes()),
            SortKey::Ratio => target.facts().ratio(),
            SortKey::Priority => placement().map(|(_, placed)| placed.priority),
            SortKey::Db => place(target.db().as_usize()),
            SortKey::Node => place(target.node_ix().as_usize()),
            SortKey::Kind => Some(f64::from(target.kind() as u8)),
            SortKey::Channel => {
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

/// The rank of each name in alphabetical order, by index.
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
