//! Nodes that hold much more than the others.

use super::moves::{Goal, Move, ShardCopy, find_moves};
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
    because: "CouchDB places the copies of a database when it is created, by name alone, and never moves them: a node that joins later gets only new databases, and several large databases may share one node (couchdb#1517, couchdb#3865). The fullest node decides when the cluster needs disks. Moves are chosen so that each brings the nodes closer together and no node gets two copies of a range, at most ten of them; recliner never moves anything. recliner does not know zones (`[cluster] placement`): keep copies in theirs. The limit is `advice.unbalanced_node`, and `advice.min_moved` or 100 shards more than the mean.",
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
}

impl Imbalance {
    /// None if the nodes are even, if the cluster is known only in part, or while any shard's size
    /// is unknown.
    fn of(situation: &Situation<'_>) -> Option<Self> {
        let members = situation.snapshot().members();
        let nodes: Vec<NodeIx> = members
            .map(|(ix, node)| {
                let is_known = node.is_served && !node.files_only && node.is_up == Some(true);
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
            let imbalance = Self::with_loads(measure, &nodes, loads)?;
            let percent = settings.unbalanced_node_percent;
            let limit = imbalance.mean as f64 * percent / 100.0;
            let excess = imbalance.excess;
            (excess >= min_excess && excess as f64 > limit).then_some(imbalance)
        })
    }

    fn with_loads(measure: Measure, nodes: &[NodeIx], loads: Vec<u64>) -> Option<Self> {
        let fullest = (0..loads.len()).max_by_key(|at| loads[*at])?;
        let sum = loads.iter().fold(0_u64, |sum, load| sum.saturating_add(*load));
        let mean = sum / loads.len() as u64;
        let excess = loads[fullest] - mean;
        Some(Self { measure, nodes: nodes.to_vec(), loads, fullest, mean, excess })
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
    let gain = match imbalance.measure {
        Measure::Bytes => Gain::Risk(imbalance.excess),
        Measure::Shards => Gain::Risk(0),
    };
    findings.offer(gain, || finding(situation, &imbalance, &moves, &after));
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
        "Move these copies one at a time, as CouchDB's manual says under \"Moving a shard\": copy the file, add the node to the range in the database's shard map, wait until it has caught up, then remove the old node."
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
