//! Design documents: which have a view index, and which share one.

use crate::table::IndexQuery;
use std::collections::BTreeMap;

/// The fields of a design document that determine its index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Design {
    /// The id, `_design/x`.
    pub id: String,
    /// The language of its functions; JavaScript by default.
    pub language: Option<String>,
    /// Whether it defines any view.
    pub has_views: bool,
    /// A view whose query builds the index; `None` if only readers' queries may build it.
    pub query: Option<String>,
    /// Everything that determines the index's signature, as one text: equal texts share an index.
    /// (`couch_mrview_util:ddoc_to_mrst/2` hashes views, language, options and lib.)
    pub definition: String,
    /// A hash of each view's functions and options, sorted.
    pub functions: Vec<u64>,
}

/// Design documents of one database that share an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignGroup {
    /// Their ids, sorted.
    pub ids: Vec<String>,
    /// Their language.
    pub language: String,
    /// The query that builds their index, from the first document that allows it.
    pub built_by: Option<IndexQuery>,
    /// Their definition.
    pub definition: String,
    /// A hash of each view's functions and options, sorted.
    pub functions: Vec<u64>,
}

/// Whether there is a query server for this language. Without one, `_info` reports an index that lags forever.
pub fn served(language: &str, languages: &[String]) -> bool {
    languages.iter().any(|served| served == language)
}

/// The indexes of a database's design documents, each once.
///
/// A document without views has no index, although `_info` reports one.
pub fn groups(designs: Vec<Design>, languages: &[String]) -> Vec<DesignGroup> {
    type Sharing = (Vec<(String, Option<String>)>, Vec<u64>);
    let mut groups: BTreeMap<(String, String), Sharing> = BTreeMap::new();
    for design in designs.into_iter().filter(|design| design.has_views) {
        let language = design.language.unwrap_or_else(|| "javascript".to_owned());
        if served(&language, languages) {
            let group = groups.entry((language, design.definition)).or_default();
            group.0.push((design.id, design.query));
            group.1 = design.functions;
        }
    }
    groups
        .into_iter()
        .map(|((language, definition), (mut designs, functions))| {
            designs.sort_unstable();
            let query = |(id, view): &(String, Option<String>)| {
                Some(IndexQuery { design: id.as_str().into(), view: view.as_deref()?.into() })
            };
            let built_by = designs.iter().find_map(query);
            let ids = designs.into_iter().map(|(id, _)| id).collect();
            DesignGroup { ids, language, built_by, definition, functions }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn design(id: &str, language: Option<&str>, definition: &str) -> Design {
        Design {
            id: id.into(),
            language: language.map(Into::into),
            has_views: !definition.is_empty(),
            query: (id != "_design/a").then(|| "v".into()),
            definition: definition.into(),
            functions: vec![definition.len() as u64],
        }
    }

    #[test]
    fn equal_definitions_share_an_index() {
        let languages = ["javascript".to_owned(), "query".to_owned()];
        let found = groups(
            vec![
                design("_design/b", None, "v"),
                design("_design/a", Some("javascript"), "v"),
                design("_design/c", None, "w"),
                design("_design/mango", Some("query"), "v"),
                design("_design/filters", None, ""),
                design("_design/coffee", Some("coffeescript"), "v"),
            ],
            &languages,
        );
        let ids: Vec<_> = found.iter().map(|group| group.ids.join(" ")).collect();
        assert_eq!(ids, ["_design/a _design/b", "_design/c", "_design/mango"]);
        assert_eq!(found[0].functions, [1]);
        // Of the two documents, the first does not allow automatic builds.
        let built_by = IndexQuery { design: "_design/b".into(), view: "v".into() };
        assert_eq!(found[0].built_by, Some(built_by));
    }
}
