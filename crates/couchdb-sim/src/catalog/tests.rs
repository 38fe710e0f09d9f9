use super::*;

fn catalog() -> Catalog {
    let config = Config::new(&["couchdb@a", "couchdb@b", "couchdb@c"])
        .with(Database { created: Some(Moment::from_unix(17)), ..Database::new("user-05x") })
        .with(Database::new("app/_design/x"))
        .with_fleet(Fleet::named(Database { q: 1, n: 1, ..Database::new("user-") }, 120, 8))
        .with_fleet(Fleet { digits: 1, ..Fleet::named(Database::new("user-0"), 3, 7) });
    Catalog::new(&config, 1)
}

#[test]
fn databases_are_sorted_and_found_by_name() {
    let catalog = catalog();
    let all: Vec<_> = catalog.from("").collect();
    assert_eq!(all.len() as u64, catalog.len());
    assert!(all.is_sorted_by(|a, b| a.1 < b.1), "{all:?}");
    for (db, name) in &all {
        assert_eq!(catalog.find(name), Some(*db));
        assert_eq!(catalog.name(*db), *name);
        let file = catalog.file(*db, 0);
        assert_eq!(catalog.owner(&file), Some((*db, 0)), "{file}");
    }
    let from: Vec<_> = catalog.from("user-05").map(|(_, name)| name.into_owned()).collect();
    let expected: Vec<_> = all
        .iter()
        .map(|(_, name)| name.to_string())
        .filter(|name| name.as_str() >= "user-05")
        .collect();
    assert_eq!(from, expected);
    for none in ["user-", "user-120", "user-1", "user-+01", "user-05y", "x"] {
        assert_eq!(catalog.find(none), None, "{none}");
    }
}

#[test]
fn deleted_databases_are_neither_listed_nor_found() {
    let mut catalog = catalog();
    let before = catalog.len();
    for name in ["user-007", "user-05x"] {
        let db = catalog.find(name).unwrap();
        catalog.remove(db);
        assert_eq!(catalog.find(name), None);
        assert!(catalog.from("").all(|(_, other)| other != name));
    }
    assert_eq!(catalog.len(), before - 2);
    assert_eq!(catalog.from("").count() as u64, before - 2);
}

#[test]
fn ranges_cover_the_ring_as_in_mem3() {
    for q in [1, 2, 3, 4, 7, 8, 256] {
        let ranges: Vec<_> = (0..q).map(|range| range_at(q, range)).collect();
        assert_eq!(ranges.first().map(|range| range.from), Some(0));
        assert_eq!(ranges.last().map(|range| range.to), Some(u32::MAX));
        assert!(ranges.windows(2).all(|pair| pair[0].to + 1 == pair[1].from), "{q}");
        for (index, range) in (0..).zip(&ranges) {
            assert_eq!(range_index(q, range.from), index);
            assert_eq!(range_index(q, range.to), index);
        }
    }
    let shown = |q, id| range_at(q, range_of_doc(q, id)).to_string();
    assert_eq!(shown(4, "_design/stats"), "80000000-bfffffff", "as 3.5.0 answered");
    assert_eq!(shown(4, "_design/mango"), "40000000-7fffffff");
}

#[test]
fn files_outside_the_shard_map_have_no_owner() {
    let catalog = catalog();
    assert!(catalog.owner("shards/00000000-7fffffff/user-05x.17").is_some());
    for none in [
        "shards/00000000-7fffffff/user-05x.18",
        "shards/00000000-7fffffff/user-05x.+17",
        "shards/00000000-3fffffff/user-05x.17",
        "shards/00000000-7fffffff/gone.17",
        "_dbs",
    ] {
        assert_eq!(catalog.owner(none), None, "{none}");
    }
}

#[test]
fn copies_of_a_range_are_on_different_nodes() {
    let catalog = catalog();
    let db = catalog.find("user-05x").unwrap();
    for range in 0..2 {
        let nodes: BTreeSet<_> = catalog.nodes_of(db, range).collect();
        assert_eq!(nodes.len(), 3);
    }
    let single = catalog.find("user-001").unwrap();
    assert_eq!(catalog.nodes_of(single, 0).count(), 1);
}
