//! Moves of shard copies that even out the nodes.
//!
//! Owns the choice: always the copy whose move comes closest to halving the gap between the most
//! loaded node and another one. Knows nothing of CouchDB; loads are bytes or numbers of shards.

pub(super) const MAX_MOVES: usize = 10;

/// Maximum number of copies that are tried for a pair of nodes: if every node has every range, none
/// fits.
const MAX_TRIED: usize = 1_000;

/// A shard copy, by its range of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardCopy<K> {
    /// A node may have only one copy of a range.
    pub(super) range: K,
    pub(super) load: u64,
}

/// A move from one node to another, by their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move<K> {
    pub(super) copy: ShardCopy<K>,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// When to stop moving.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    /// A node with at most this load is not relieved further.
    pub(super) enough: u64,
    /// Copies with a smaller load are not worth a move.
    pub(super) min_load: u64,
}

/// Finds moves, best first, and updates `loads` as if they were made. `copies` returns the copies
/// on a node; `has_range` tells whether a node now has a copy of a range.
pub(super) fn find_moves<K: Copy + PartialEq>(
    loads: &mut [u64],
    copies: impl Fn(usize) -> Vec<ShardCopy<K>>,
    has_range: impl Fn(usize, K) -> bool,
    goal: Goal,
) -> Vec<Move<K>> {
    let mut moves: Vec<Move<K>> = Vec::new();
    let mut donors: Vec<(usize, Vec<ShardCopy<K>>)> = Vec::new();
    while moves.len() < MAX_MOVES {
        let Some(from) = (0..loads.len()).max_by_key(|at| loads[*at]) else { break };
        if loads[from] <= goal.enough {
            break;
        }
        let place = donors.iter().position(|(node, _)| *node == from).unwrap_or_else(|| {
            let mut own = copies(from);
            own.retain(|copy| copy.load >= goal.min_load.max(1));
            own.sort_unstable_by_key(|copy| copy.load);
            donors.push((from, own));
            donors.len() - 1
        });
        let own = &mut donors[place].1;
        let mut receivers: Vec<usize> = (0..loads.len()).filter(|at| *at != from).collect();
        receivers.sort_unstable_by_key(|at| loads[*at]);
        let chosen = receivers.into_iter().find_map(|to| {
            let is_free = |copy: &ShardCopy<K>| {
                let arrived = |it: &Move<K>| it.to == to && it.copy.range == copy.range;
                !moves.iter().any(arrived) && !has_range(to, copy.range)
            };
            let gap = loads[from].checked_sub(loads[to])?;
            Some((to, best_copy(own, gap, is_free)?))
        });
        let Some((to, at)) = chosen else { break };
        let copy = own.remove(at);
        loads[from] -= copy.load;
        loads[to] += copy.load;
        moves.push(Move { copy, from, to });
    }
    moves
}

/// The position of the copy whose move comes closest to halving a gap, among copies sorted by load.
fn best_copy<K>(
    copies: &[ShardCopy<K>],
    gap: u64,
    is_free: impl Fn(&ShardCopy<K>) -> bool,
) -> Option<usize> {
    let middle = copies.partition_point(|copy| copy.load <= gap / 2);
    let smaller = (0..middle).rev().take(MAX_TRIED).find(|at| is_free(&copies[*at]));
    let larger = (middle..copies.len()).take(MAX_TRIED).take_while(|at| copies[*at].load < gap);
    let larger = larger.into_iter().find(|at| is_free(&copies[*at]));
    let distance = |at: &usize| copies[*at].load.abs_diff(gap / 2);
    smaller.into_iter().chain(larger).min_by_key(distance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Places each range's copies on distinct nodes.
    fn placed(ranges: &[(u64, u8)], nodes: usize) -> Vec<Vec<ShardCopy<usize>>> {
        let mut placed = vec![Vec::new(); nodes];
        for (range, (load, nodes_bits)) in ranges.iter().enumerate() {
            for (at, node) in placed.iter_mut().enumerate() {
                if nodes_bits & (1 << at) != 0 {
                    node.push(ShardCopy { range, load: *load });
                }
            }
        }
        placed
    }

    fn load_of(copies: &[ShardCopy<usize>]) -> u64 {
        copies.iter().map(|copy| copy.load).sum()
    }

    fn squares(placed: &[Vec<ShardCopy<usize>>]) -> u128 {
        placed.iter().map(|copies| u128::from(load_of(copies)).pow(2)).sum()
    }

    fn moves_of(placed: &[Vec<ShardCopy<usize>>], goal: Goal) -> (Vec<Move<usize>>, Vec<u64>) {
        let mut loads: Vec<u64> = placed.iter().map(|copies| load_of(copies)).collect();
        let has = |node: usize, range| placed[node].iter().any(|copy| copy.range == range);
        let moves = find_moves(&mut loads, |node| placed[node].clone(), has, goal);
        (moves, loads)
    }

    proptest! {
        #[test]
        fn moves_lower_imbalance_and_never_duplicate_a_range(
            ranges in prop::collection::vec((0_u64..1_000, 1_u8..32), 0..40),
            enough in 0_u64..5_000,
        ) {
            let mut placed = placed(&ranges, 5);
            let (moves, loads) = moves_of(&placed, Goal { enough, min_load: 3 });
            prop_assert!(moves.len() <= MAX_MOVES);
            for it in moves {
                let before = squares(&placed);
                let at = placed[it.from].iter().position(|copy| *copy == it.copy);
                let copy = placed[it.from].remove(at.expect("the node has it"));
                prop_assert!(copy.load >= 3);
                placed[it.to].push(copy);
                prop_assert!(squares(&placed) < before);
                for node in &placed {
                    let distinct: BTreeSet<usize> = node.iter().map(|copy| copy.range).collect();
                    prop_assert_eq!(distinct.len(), node.len());
                }
            }
            let after: Vec<u64> = placed.iter().map(|copies| load_of(copies)).collect();
            prop_assert_eq!(after, loads);
        }
    }

    #[test]
    fn moves_the_copy_that_halves_the_gap_and_stops_at_the_goal() {
        let ranges = [(50, 0b01), (30, 0b01), (20, 0b01), (10, 0b10)];
        let (moves, loads) = moves_of(&placed(&ranges, 2), Goal { enough: 60, min_load: 1 });
        let moved: Vec<u64> = moves.iter().map(|it| it.copy.load).collect();
        assert_eq!((moved, loads), (vec![50], vec![50, 60]));
    }

    #[test]
    fn finds_no_move_if_every_node_has_every_range() {
        let (moves, _) =
            moves_of(&placed(&[(50, 0b11), (9, 0b01)], 2), Goal { enough: 0, min_load: 10 });
        assert_eq!(moves, []);
    }
}
