use super::*;
use crate::{
    model::facts::{FactSource, Facts, Measurement},
    table::{DbName, Draft, SearchAttributes, ShardMapEntry, View},
};
use couchdb_names::Engine;

const NOW: Moment = Moment::from_unix(1_795_222_440);

fn measured(update_seq: Option<u64>) -> Facts {
    Facts {
        update_seq: update_seq.into(),
        measured_at: Some(Measurement { at: NOW, source: FactSource::Http }),
        ..Facts::default()
    }
}

/// Measures a search index of a database with two ranges, each with a copy on two nodes at the
/// given sequences.
fn lags(copies: [[Option<u64>; 2]; 2], indexed: Option<u64>, offered: Option<bool>) -> IndexLags {
    let mut draft = Draft::new(1);
    let nodes = ["couchdb@a", "couchdb@b"].map(|name| draft.get_or_add_node(name));
    let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
    draft.set_shard_map(db, ShardMapEntry { copies: 4, ranges: 2 }, &[]);
    let half = 1 << 31;
    let ranges = [Range { from: 0, to: half - 1 }, Range { from: half, to: u32::MAX }];
    for (range, seqs) in ranges.into_iter().zip(copies) {
        for (node, seq) in nodes.into_iter().zip(seqs) {
            let ix = draft.get_or_add_shard(node, db, Some(range));
            draft.set_facts(ix, measured(seq));
        }
    }
    let search =
        SearchAttributes { engine: Engine::Nouveau, index: "text".into(), is_supported: offered };
    let view = View {
        designs: ["_design/x".into()].into(),
        search_index: Some(search),
        ..View::default()
    };
    let ix = draft.add_view(db, view);
    draft.set_facts(ix, measured(indexed));
    index_lags(&draft.publish(NOW))
}

#[test]
fn search_lag_is_bounded_by_the_sequences_of_the_copies() {
    let seqs = |a, b, c, d| [[Some(a), Some(b)], [Some(c), Some(d)]];
    for (copies, indexed, pending, unsure) in [
        // Copies of a range at the same sequence: the lag is exact.
        (seqs(100, 100, 80, 80), 150, 30, false),
        (seqs(100, 100, 80, 80), 180, 0, false),
        (seqs(100, 100, 80, 80), 0, 180, false),
        // One copy is 40 ahead: the index is behind both, possibly behind one, behind none.
        (seqs(100, 140, 80, 80), 150, 30, false),
        (seqs(100, 140, 80, 80), 180, 40, true),
        (seqs(100, 140, 80, 80), 200, 20, true),
        (seqs(100, 140, 80, 80), 220, 0, false),
        // The index was measured after its database.
        (seqs(100, 140, 80, 80), 300, 0, false),
    ] {
        let lags = lags(copies, Some(indexed), Some(true));
        let [lag] = &lags.buildable[..] else { panic!("{lags:?}") };
        let result = (lag.pending, lag.may_be_current);
        assert_eq!(result, (pending, unsure), "{copies:?}, {indexed} indexed");
        assert!(lag.is_search && lags.without_engine.is_empty());
        assert_eq!(lag.database.copies_by_node.values().sum::<usize>(), 4);
    }
}

#[test]
fn index_is_not_listed_unless_it_and_all_copies_are_measured() {
    let all = [[Some(100), Some(100)], [Some(80), Some(80)]];
    let one_unknown = [[Some(100), None], [Some(80), Some(80)]];
    for (copies, indexed) in [(all, None), (one_unknown, Some(10))] {
        assert_eq!(lags(copies, indexed, Some(true)), IndexLags::default());
    }
}

#[test]
fn search_index_without_its_engine_is_listed_separately() {
    let copies = [[Some(100), Some(100)], [Some(80), Some(80)]];
    for offered in [None, Some(false)] {
        let lags = lags(copies, Some(10), offered);
        assert_eq!((lags.buildable.len(), lags.without_engine.len()), (0, 1), "{offered:?}");
    }
}
