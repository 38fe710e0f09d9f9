//! A user's text that selects targets. It is matched against ids, so that it also selects deleted
//! targets of which only the id is left.

use super::{TargetId, database_of};
use couchdb_names::encode_part;
use std::collections::BTreeSet;

/// The targets that a text selects: one by its id, or all of a shard file, of a database, or of a
/// design document written `<db>/_design/<name>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSelector {
    selection: Selection,
    /// Other targets known to match: the id of a view does not contain its design documents.
    also_selected: BTreeSet<TargetId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    Id(TargetId),
    Text(String),
}

impl TargetSelector {
    /// The selection of `text`; `known` are existing targets that it selects.
    pub fn new(text: &str, known: impl IntoIterator<Item = TargetId>) -> Self {
        let selection = match text.parse() {
            Ok(id) => Selection::Id(id),
            Err(_) => Selection::Text(text.to_owned()),
        };
        Self { selection, also_selected: known.into_iter().collect() }
    }

    /// Whether a target is selected; `design` is one of its design documents, where known.
    pub fn selects(&self, id: &TargetId, design: Option<&str>) -> bool {
        let named = match &self.selection {
            Selection::Id(wanted) => wanted == id,
            Selection::Text(text) => matches_text(text, id, design),
        };
        named || self.also_selected.contains(id)
    }

    /// Whether a whole database is selected.
    pub fn selects_database(&self, db: &str) -> bool {
        matches!(&self.selection, Selection::Text(text) if text == db)
    }

    /// A text that occurs in the id of every selected target, if there is one: searching for it is
    /// cheaper than parsing an id.
    pub fn id_substring(&self) -> Option<String> {
        match &self.selection {
            Selection::Id(id) if self.also_selected.is_empty() => Some(id.to_string()),
            // A design document's name is not part of a view's id.
            Selection::Text(text)
                if self.also_selected.is_empty() && !text.contains("/_design/") =>
            {
                Some(encode_part(text).to_string())
            }
            Selection::Id(_) | Selection::Text(_) => None,
        }
    }
}

fn matches_text(text: &str, id: &TargetId, design: Option<&str>) -> bool {
    let of_design = |db: &str, design: &str| {
        text.strip_prefix(db).and_then(|rest| rest.strip_prefix('/')) == Some(design)
    };
    match id {
        TargetId::Db { shard, .. } => shard == text || database_of(shard) == text,
        TargetId::View { db, .. } => {
            let db = database_of(db);
            db == text || design.is_some_and(|design| of_design(db, design))
        }
        TargetId::Cleanup { db } => db == text,
        TargetId::Search { db, design, .. } => db == text || of_design(db, design),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &str = "0f045e3b41d71d93aaa32f23021ba536";

    #[test]
    fn each_form_of_selector_matches_the_right_ids() {
        let shard = "db:n@a/shards%2F00000000-7fffffff%2Fapp%2Forders.1795222434";
        let view = format!("view:_cluster/app%2Forders.1795222434/{SIGNATURE}");
        let part =
            format!("view:n@a/shards%2F00000000-7fffffff%2Fapp%2Forders.1795222434/{SIGNATURE}");
        let search = "search:app%2Forders/nouveau/_design%2Ffind/by_text";
        let other = "db:n@a/shards%2F00000000-7fffffff%2Fapp%2Forders-old.1795222434";
        let all = [shard, &view, &part, "cleanup:app%2Forders", search, other, "db:n@a/_dbs"];
        for (text, expected) in [
            ("app/orders", &[0, 1, 2, 3, 4][..]),
            ("shards/00000000-7fffffff/app/orders.1795222434", &[0]),
            ("app/orders/_design/reports", &[1, 2]),
            ("app/orders/_design/find", &[4]),
            (shard, &[0]),
            (&view, &[1]),
            ("_dbs", &[6]),
            ("orders", &[]),
            ("", &[]),
        ] {
            let selector = TargetSelector::new(text, []);
            let found = all.iter().enumerate().filter(|(_, id)| {
                let id: TargetId = id.parse().unwrap();
                let design = matches!(id, TargetId::View { .. }).then_some("_design/reports");
                let covered = selector.selects(&id, design);
                let id_substring = selector.id_substring();
                assert!(
                    !covered || id_substring.is_none_or(|it| id.to_string().contains(&it)),
                    "{text}"
                );
                covered
            });
            assert_eq!(found.map(|(at, _)| at).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn selector_also_matches_explicitly_given_targets() {
        let view: TargetId = format!("view:_cluster/a.1795222434/{SIGNATURE}").parse().unwrap();
        let selector = TargetSelector::new("a/_design/x", [view.clone()]);
        assert!(selector.selects(&view, None) && selector.id_substring().is_none());
        assert!(!TargetSelector::new("a/_design/x", []).selects(&view, None));
        assert!(TargetSelector::new("a", []).selects_database("a"));
        assert!(!TargetSelector::new("cleanup:a", []).selects_database("a"));
    }
}
