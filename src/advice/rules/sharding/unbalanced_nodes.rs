//! Nodes that hold much more than the others.

use super::moves::{Goal, MAX_MOVES, Move, ShardCopy, find_moves};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    model::{rounding::to_bytes, target::TargetState},
    table::{DbIx, NodeIx, TargetRef},
    text::{counted, grouped, size::format_size_short},
};
use couchdb_names::Range;

pub(crate) const RULE: Rule = Rule {
    code: "unbalanced_nodes",
    finds: "Nodes that hold much more live data or many more shards than the others.",
    because: "CouchDB places the copies of a database when it is created, by name alone, and never moves them: a node that joins later gets only new databases, and several large databases may share one node (couchdb#1517, couchdb#3865). The fullest node decides when the cluster needs disks. Each of at most ten moves brings the nodes closer together, and no node gets two copies of a range. If a copy is too large for moves to help, it is named. recliner does not know zones (`[cluster] placement`): keep copies in theirs. The limit is `advice.unbalanced_node`, and `advice.min_moved` or 100 shards more than the mean.",
    ..Rule::warning(check)
};

/// Excess of shards over the mean below which the number alone does not justify a move.
const MIN_EXCESS_SHARDS: u64 = 100;

/// Divisor of the excess: a move has to remove at least one fiftieth of it.
const MIN_SHARE: u64 = 50;

type DbRange = (DbIx, Range);

/// What is unevenly distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Bytes,
    Shards,
}

impl Measure {
    fn load(self, target: TargetRef<'_>) -> Option<u64> {
        match self {
            Self::Bytes => target.active_bytes(),
            Self::Shards => Some(1),
        }
    }

    fn text(self, load: u64) -> String {
        match self {
            Self::Bytes => format!("{} of live data", format_size_short(load)),
            Self::Shards => format!("{} shard copies", grouped(load)),
        }
    }
}

/// The members of the cluster, with their loads; one of them has too much.
#[derive(Clone, Debug)]
struct Imbalance {
    measure: Measure,
    nodes: Vec<NodeIx>,
    loads: Vec<u64>,
    fullest: usize,
    mean: u64,
    excess: u64,
    /// The most that a node may have.
    limit: u64,
}

impl Imbalance {
    /// None if the nodes are even, if the cluster is known only in part, or while any shard's size
    /// is unknown.
    fn of(situation: &Situation<'_>) -> Option<Self> {
        let members = situation.snapshot().members();
        let nodes: Vec<NodeIx> = members
            .map(|(ix, node)| {
                let is_known = node.is_served && !node.files_only && node.answers();
                is_known.then_some(ix)
            })
            .collect::<Option<_>>()?;
        let surveys: Vec<_> = nodes.iter().map(|node| situation.survey.node(*node)).collect();
        if surveys.iter().any(|node| node.unmeasured_shards > 0) {
            return None;
        }
        let settings = situation.settings();
        let bytes = surveys.iter().map(|node| node.active_bytes).collect();
        let shards = surveys.iter().map(|node| node.shards).collect();
        [
            (Measure::Bytes, bytes, settings.min_moved_bytes),
            (Measure::Shards, shards, MIN_EXCESS_SHARDS),
        ]
        .into_iter()
        .find_map(|(measure, loads, min_excess)| {
            let percent = settings.unbalanced_node_percent;
            let it = Self::with_loads(measure, &nodes, loads, percent)?;
            (it.excess >= min_excess && it.mean + it.excess > it.limit).then_some(it)
        })
    }

    fn with_loads(
        measure: Measure,
        nodes: &[NodeIx],
        loads: Vec<u64>,
        percent: f64,
    ) -> Option<Self> {
        let fullest = (0..loads.len()).max_by_key(|at| loads[*at])?;
        let sum = loads.iter().fold(0_u64, |sum, load| sum.saturating_add(*load));
        let mean = sum / loads.len() as u64;
        let excess = loads[fullest] - mean;
        let limit = to_bytes(mean as f64 * (1.0 + percent / 100.0));
        Some(Self { measure, nodes: nodes.to_vec(), loads, fullest, mean, excess, limit })
    }

    /// The copy without which the fullest node would be within the limit, if moves cannot bring it there.
    fn immovable<'a>(
        &self,
        situation: &Situation<'a>,
        moves: &[Move<DbRange>],
        after: &[u64],
    ) -> Option<TargetRef<'a>> {
        if self.measure == Measure::Shards {
            return None;
        }
        let is_left = |it: &TargetRef<'_>| {
            let range = it.range().map(|range| (it.db(), range));
            moves.iter().all(|moved| moved.from != self.fullest || Some(moved.copy.range) != range)
        };
        let left = situation.shards_on(*self.nodes.get(self.fullest)?).filter(is_left);
        let largest = left.max_by_key(|it| it.active_bytes())?;
        let other = after.get(self.fullest)?.saturating_sub(largest.active_bytes()?);
        (other <= self.limit).then_some(largest)
    }

    /// The moves that even them out, with the loads that they leave.
    fn moves(&self, situation: &Situation<'_>) -> (Vec<Move<DbRange>>, Vec<u64>) {
        let tolerated = situation.settings().unbalanced_node_percent / 2.0;
        let goal = Goal {
            enough: to_bytes(self.mean as f64 * (1.0 + tolerated / 100.0)),
            min_load: match self.measure {
                Measure::Bytes => self.excess / MIN_SHARE,
                Measure::Shards => 1,
            },
        };
        let copies = |node: usize| {
            let movable = situation.shards_on(self.nodes[node]);
            let movable = movable.filter(|it| it.state() == TargetState::Ok);
            let copy = |it: TargetRef<'_>| {
                let range = (it.db(), it.range()?);
                Some(ShardCopy { range, load: self.measure.load(it)? })
            };
            movable.filter_map(copy).collect()
        };
        let has_range = |node: usize, (db, range): DbRange| {
            let mut copies = situation.shards_of(db);
            copies.any(|it| it.node_ix() == self.nodes[node] && it.range() == Some(range))
        };
        let mut loads = self.loads.clone();
        let moves = find_moves(&mut loads, copies, has_range, goal);
        (moves, loads)
    }
}

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let Some(imbalance) = Imbalance::of(situation) else { return };
    let (moves, after) = imbalance.moves(situation);
    if moves.is_empty() {
        return;
    }
    // After the most moves that are shown at once, others can follow.
    let stuck = moves.len() < MAX_MOVES && after.iter().any(|load| *load > imbalance.limit);
    if stuck {
        if let Some(largest) = imbalance.immovable(situation, &moves, &after) {
            let gain = Gain::Risk(imbalance.excess);
            findings.offer(gain, || too_large(situation, &imbalance, largest));
        }
        return;
    }
    let gain = match imbalance.measure {
        Measure::Bytes => Gain::Risk(imbalance.excess),
        Measure::Shards => Gain::Risk(0),
    };
    findings.offer(gain, || finding(situation, &imbalance, &moves, &after));
}

/// The words about a node that has a copy too large to even the nodes out.
fn too_large(situation: &Situation<'_>, imbalance: &Imbalance, largest: TargetRef<'_>) -> Wording {
    let Imbalance { mean, excess, loads, .. } = imbalance;
    let (node, name) = (largest.node(), situation.db_name(largest.db()));
    let bytes = largest.active_bytes().unwrap_or_default();
    let copies = u64::from(largest.shard_map().copies);
    let ranges = u64::from(largest.shard_map().ranges);
    Wording {
        subject: Subject::Node(node.to_owned()),
        says: format!(
            "{node} has {}, {:.0} % more than the mean of {} nodes ({}), and copies move only whole: one of {name}, which has {} of its {}, has {}.",
            imbalance.measure.text(mean + excess),
            *excess as f64 / (*mean).max(1) as f64 * 100.0,
            loads.len(),
            format_size_short(*mean),
            counted(copies, "copy", "copies"),
            counted(ranges, "range", "ranges"),
            format_size_short(bytes),
        ),
        evidence: vec![
            ("live_bytes", (mean + excess).into()),
            ("mean", (*mean).into()),
            ("nodes", (loads.len() as u64).into()),
            ("largest_copy_bytes", bytes.into()),
        ],
        remedy: vec![Remedy::choice(format!(
            "No moves would bring the nodes within `advice.unbalanced_node`. Smaller ranges can be moved: split {name}'s (`_reshard`), or create it anew with a larger q. Otherwise give {node} the larger disk, and mute this."
        ))],
    }
}

fn finding(
    situation: &Situation<'_>,
    imbalance: &Imbalance,
    moves: &[Move<DbRange>],
    after: &[u64],
) -> Wording {
    let name = |at: usize| {
        let node = imbalance.nodes.get(at).and_then(|ix| situation.snapshot().node(*ix));
        node.map_or("", |node| &node.name)
    };
    let Imbalance { measure, loads, fullest, mean, .. } = imbalance;
    let load = loads.get(*fullest).copied().unwrap_or_default();
    let percent = |load: u64| (load as f64 / (*mean).max(1) as f64 - 1.0) * 100.0;
    let largest = after.iter().copied().max().unwrap_or_default();
    let mean_text = match measure {
        Measure::Bytes => format_size_short(*mean).to_string(),
        Measure::Shards => grouped(*mean),
    };
    let node = name(*fullest);
    let mut remedy = vec![
        "Move these copies one at a time, as CouchDB's manual says under \"Moving a shard\": copy the file, add the node to the range in the database's shard map, wait until both copies have the same doc_count, then remove the old node from the map. Its file stays: `orphan_shards` then shows it, with commands that compare and set it aside."
            .into(),
    ];
    for it in moves {
        let (db, range) = it.copy.range;
        let size = match measure {
            Measure::Bytes => format!(" ({})", format_size_short(it.copy.load)),
            Measure::Shards => String::new(),
        };
        remedy.push(Remedy::choice(format!(
            "{} {}{size}: from {} to {}",
            situation.db_name(db),
            range.text().as_str(),
            name(it.from),
            name(it.to),
        )));
    }
    if let Some(first) = moves.first() {
        let db = situation.db_name(first.copy.range.0);
        let path = ["_node", "_local", "_dbs", db];
        remedy.push(Remedy::get("The shard map of the first of them:", &path));
    }
    Wording {
        subject: Subject::Node(node.to_owned()),
        says: format!(
            "{node} has {}, {:.0} % more than the mean of {} nodes ({mean_text}); {} would leave no node with more than {:.0} % above the mean.",
            measure.text(load),
            percent(load),
            loads.len(),
            counted(moves.len() as u64, "move", "moves"),
            percent(largest).ceil(),
        ),
        evidence: vec![
            match measure {
                Measure::Bytes => ("live_bytes", load.into()),
                Measure::Shards => ("shard_copies", load.into()),
            },
            ("mean", (*mean).into()),
            ("nodes", (loads.len() as u64).into()),
            ("moves", (moves.len() as u64).into()),
            ("largest_after_moves", largest.into()),
        ],
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const GIB: u64 = 1 << 30;

    /// Two ranges of one database on `a`, and one on each of `b` and `c`.
    fn shards(first_gib: u64) -> Vec<Shard> {
        let shard = |node, range, gib| Shard::new("orders", node, range, gib * GIB);
        vec![
            shard("a", 0, first_gib),
            shard("a", 1, 10),
            shard("b", 0, first_gib),
            shard("c", 2, 10),
        ]
    }

    fn found(shards: &[Shard]) -> Vec<Finding> {
        TestCluster::with_shards(shards).findings_of(&RULE)
    }

    #[test]
    fn move_balances_nodes_without_duplicating_a_range() {
        let found = found(&shards(30));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "a has 40 GiB of live data, 50 % more than the mean of 3 nodes (26.7 GiB); 1 move would leave no node with more than 13 % above the mean."
        );
        assert_eq!(only.subject, Subject::Node("a".to_owned()));
        assert_eq!(only.remedy[1].says, "orders 1fffffff-3ffffffd (10 GiB): from a to c");
    }

    #[test]
    fn names_the_copy_that_is_too_large_to_move() {
        let gib = |name, node, range, gib| Shard::new(name, node, range, gib * GIB);
        let mut all = vec![gib("big", "a", 0, 60), gib("small", "a", 0, 4)];
        all.extend([gib("full", "b", 0, 10), gib("full", "c", 1, 10)]);
        let found_large = found(&all);
        let [only] = &found_large[..] else { panic!("{found_large:?}") };
        assert_eq!(
            only.says,
            "a has 64 GiB of live data, 129 % more than the mean of 3 nodes (28 GiB), and copies move only whole: one of big, which has 1 copy of its 1 range, has 60 GiB."
        );
        assert_eq!((only.remedy.len(), only.gain), (1, Gain::Risk(36 * GIB)));
        // Without its largest copy, `a` still has too much, and the others have those ranges too.
        let mut stuck = vec![gib("small", "a", 0, 4)];
        for range in [0, 1] {
            stuck.extend(
                [("a", 30), ("b", 1), ("c", 1)].map(|(node, of)| gib("big", node, range, of)),
            );
        }
        assert_eq!(found(&stuck), []);
    }

    #[test]
    fn ignores_imbalance_that_is_small_or_not_worth_a_move() {
        let mut tolerated = TestCluster::with_shards(&shards(30));
        tolerated.settings.unbalanced_node_percent = 51.0;
        assert_eq!(tolerated.findings_of(&RULE), []);
        let mut small = TestCluster::with_shards(&shards(30));
        small.settings.min_moved_bytes = 14 * GIB;
        assert_eq!(small.findings_of(&RULE), []);
    }

    #[test]
    fn is_silent_if_a_size_is_unknown_or_a_node_is_down() {
        let mut unknown = shards(30);
        unknown[3].active_bytes = None;
        assert_eq!(found(&unknown), []);
        let mut cluster = TestCluster::with_shards(&shards(30));
        let down = cluster.draft.find_node("c").unwrap();
        cluster.draft.update_node(down, |node| node.is_up = Some(false));
        assert_eq!(cluster.findings_of(&RULE), []);
    }

    #[test]
    fn compares_the_number_of_shards_too() {
        let shards = |dbs: usize| {
            let name = |db| &*Box::leak(format!("db{db}").into_boxed_str());
            let names: Vec<&'static str> = (0..dbs).map(name).collect();
            let crowded = names
                .into_iter()
                .flat_map(|db| (0..8).map(move |range| Shard::new(db, "a", range, 1 << 20)));
            let other = (0..8).map(|range| Shard::new("other", "b", range, 1 << 20));
            crowded.chain(other).collect::<Vec<_>>()
        };
        let found_many = found(&shards(30));
        let [only] = &found_many[..] else { panic!("{found_many:?}") };
        assert_eq!(
            only.says,
            "a has 240 shard copies, 94 % more than the mean of 2 nodes (124); 10 moves would leave no node with more than 86 % above the mean."
        );
        assert_eq!(found(&shards(25)), [], "96 shards above the mean");
    }
}
