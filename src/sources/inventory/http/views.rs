//! View indexes over HTTP: exact on the range that contains the design document.

use super::{HttpSource, MAX_OPEN_SHARDS, convert, searches::Offers};
use crate::{
    model::{
        facts::Facts,
        target::{TargetKind, TargetState},
    },
    sources::inventory::{
        Databases, Design, DesignGroup, IndexAnswer, Observation, ReadError, ViewAnswer, doc_hash,
        groups,
    },
    table::{IndexSet, Node, NodeIx, Snapshot, TargetIx, TargetRef},
};
use couchdb_client::{Cache, Error, ErrorKind as Failed, wire};
use couchdb_names::{Range, Signature};
use futures::{
    StreamExt,
    future::join_all,
    stream::{self, BoxStream},
};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

/// The number of databases whose views are read concurrently: each costs a request to every range.
const CONCURRENT_DATABASES: usize = 4;

impl HttpSource {
    /// Reads the views database by database.
    pub(super) fn views(
        self,
        snapshot: Arc<Snapshot>,
        dbs: Databases,
        without_designs: Arc<IndexSet>,
    ) -> BoxStream<'static, Observation> {
        let count = dbs.len();
        let dbs = Arc::new(dbs);
        let offers = Arc::new(Offers::default());
        stream::iter(0..count)
            .map(move |at| {
                let (this, snapshot, dbs) = (self.clone(), Arc::clone(&snapshot), Arc::clone(&dbs));
                let (offers, without) = (Arc::clone(&offers), Arc::clone(&without_designs));
                async move { this.views_of(&snapshot, dbs.copies(at), &without, &offers).await }
            })
            .buffer_unordered(CONCURRENT_DATABASES)
            .filter_map(std::future::ready)
            .boxed()
    }

    async fn views_of(
        &self,
        snapshot: &Snapshot,
        copies: &[TargetIx],
        without_designs: &IndexSet,
        offers: &Offers,
    ) -> Option<Observation> {
        let copies: Vec<TargetRef<'_>> =
            copies.iter().filter_map(|ix| snapshot.target(*ix)).collect();
        let name = copies.first()?.db_name();
        let ranges = copies.first()?.shard_map().ranges;
        let (mut signatures, mut searches) = (None, Vec::new());
        let docs = match self.unreachable_range(&copies) {
            Some(unread) => Err(unread),
            None => match self.design_docs(snapshot, name.db, &copies, without_designs).await {
                // The database was deleted since the map was read: the next sweep removes it.
                Err(error) if error.kind() == Failed::NotFound => return None,
                docs => docs.map_err(ReadError::from),
            },
        };
        let views = match docs {
            Ok(docs) => {
                signatures = all_signatures(&docs);
                searches = self.searches(snapshot, name.db, ranges, &docs, offers).await;
                let designs = docs.iter().filter_map(design).collect();
                let groups = groups(designs, &self.settings.languages);
                let mut views = Vec::with_capacity(groups.len());
                for group in groups {
                    views.push(self.view(snapshot, name.db, &copies, group).await);
                }
                Ok(merged(views))
            }
            Err(unread) => Err(unread),
        };
        let (db, suffix) = (name.db.to_owned(), name.suffix.to_owned());
        Some(Observation::Views { db, suffix, views, searches, signatures })
    }

    /// The design documents of a database, sorted by id.
    ///
    /// For a request to the database CouchDB opens every copy of every range. Where it does not keep all files open,
    /// one copy of each range that may hold any is asked instead.
    async fn design_docs(
        &self,
        snapshot: &Snapshot,
        db: &str,
        copies: &[TargetRef<'_>],
        without_designs: &IndexSet,
    ) -> Result<Vec<wire::DesignDoc>, Error> {
        // A sweep reads design documents after the shards, so shards that stay open are open now.
        let cold: Vec<&str> = copies
            .iter()
            .filter(|copy| reopens(snapshot, copy.node_ix()))
            .map(|copy| copy.node())
            .collect();
        if !cold.is_empty()
            && let Some(docs) = self.designs_of_ranges(snapshot, copies, without_designs).await
        {
            return Ok(docs);
        }
        self.client.design_docs(db, cold).await
    }

    /// The design documents that one copy of each range holds; `None` if some range has no copy that can be
    /// read.
    async fn designs_of_ranges(
        &self,
        snapshot: &Snapshot,
        copies: &[TargetRef<'_>],
        without_designs: &IndexSet,
    ) -> Option<Vec<wire::DesignDoc>> {
        let has_none = |copy: &TargetRef<'_>| without_designs.contains(copy.ix().as_usize());
        let answers = |copy: &TargetRef<'_>| {
            is_up(snapshot, copy.node_ix()) && !self.client.seems_to_hang(copy.node())
        };
        let mut up: Vec<TargetRef<'_>> = copies.iter().copied().filter(answers).collect();
        up.sort_by_key(|copy| (!has_none(copy), copy.node()));
        let mut holders: BTreeMap<Range, TargetRef<'_>> = BTreeMap::new();
        for copy in up {
            holders.entry(copy.range()?).or_insert(copy);
        }
        if holders.len() != copies.first()?.shard_map().ranges as usize {
            return None;
        }
        let mut docs = Vec::new();
        for holder in holders.values().filter(|copy| !has_none(copy)) {
            let cache = if reopens(snapshot, holder.node_ix()) { Cache::Cold } else { Cache::Warm };
            let shard = holder.shard_name()?;
            docs.extend(self.client.shard_design_docs(holder.node(), &shard, cache).await.ok()?);
        }
        docs.sort_by(|one, other| one.id.cmp(&other.id));
        docs.dedup_by(|one, other| one.id == other.id);
        Some(docs)
    }

    /// Why a database's design documents cannot be requested: all copies of some range are on nodes that
    /// hang, and CouchDB would wait for them again for each database.
    fn unreachable_range(&self, copies: &[TargetRef<'_>]) -> Option<ReadError> {
        let map = copies.first()?.shard_map();
        if copies.len() < map.copies as usize {
            return None;
        }
        let (silent, others): (Vec<&TargetRef<'_>>, Vec<_>) =
            copies.iter().partition(|copy| self.client.seems_to_hang(copy.node()));
        let lost =
            silent.iter().find(|copy| others.iter().all(|other| other.range() != copy.range()))?;
        let (db, range) = (lost.db_name().db, lost.range()?);
        Some(ReadError {
            reason: Failed::NodeDown.label(),
            message: format!(
                "cannot read the design documents of {db}: {} does not answer, and no node that answers has range {range}",
                lost.node()
            ),
            right: None,
        })
    }

    /// One index, requested through the first of its documents that a request can carry.
    async fn view(
        &self,
        snapshot: &Snapshot,
        db: &str,
        copies: &[TargetRef<'_>],
        group: DesignGroup,
    ) -> ViewAnswer {
        let mut index = Err(ReadError::nothing_to_ask());
        for design in &group.ids {
            index = self.index(snapshot, db, copies, design).await;
            if !is_unaddressable(&index) {
                break;
            }
        }
        ViewAnswer {
            unaddressable: is_unaddressable(&index),
            index,
            designs: group.ids,
            language: group.language,
            built_by: group.built_by,
            functions: group.functions,
        }
    }

    async fn index(
        &self,
        snapshot: &Snapshot,
        db: &str,
        copies: &[TargetRef<'_>],
        design: &str,
    ) -> Result<IndexAnswer, ReadError> {
        let hash = doc_hash(design);
        let holders = copies.iter().copied().filter(|copy| {
            is_up(snapshot, copy.node_ix())
                && copy.range().is_some_and(|range| range.contains(hash))
        });
        let mut holders: Vec<TargetRef<'_>> = holders.collect();
        // Always the same copy, the first by node, so that values do not jump between copies that were
        // compacted at different times.
        holders.sort_by_key(|copy| copy.node());
        let holder = holders.first();
        if let Some((copy, shard)) = holder.and_then(|copy| Some((copy, copy.shard_name()?))) {
            match self.client.shard_view_info(copy.node(), &shard, design, Cache::Warm).await {
                Ok(info) => {
                    let version = snapshot.node(copy.node_ix()).and_then(Node::version);
                    let facts =
                        convert::view_facts(&info.view_index, None, version, self.clock.now());
                    let mut copies = Vec::new();
                    // All copies of a database with one range can be read.
                    if copy.shard_map().ranges == 1 {
                        copies.push((copy.ix(), facts));
                        let others = holders.get(1..).unwrap_or_default();
                        copies.extend(self.copies(snapshot, &info, others, design).await);
                    }
                    let answer = seen(db, info, facts, Some(copy.ix()))?;
                    return Ok(IndexAnswer { copies, ..answer });
                }
                // Either another hash function applies, or the document was just moved: ask the cluster.
                Err(error) if error.kind() == Failed::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        let info = self.client.view_info(db, design).await?;
        let ranges = copies.first().map_or(1, |copy| u64::from(copy.shard_map().ranges));
        let facts = convert::view_facts(&info.view_index, Some(ranges), None, self.clock.now());
        seen(db, info, facts, None)
    }

    /// The facts of these copies of an index, as far as they can be read.
    async fn copies(
        &self,
        snapshot: &Snapshot,
        first: &wire::ViewInfo,
        others: &[TargetRef<'_>],
        design: &str,
    ) -> Vec<(TargetIx, Facts)> {
        let asked = others.iter().map(|copy| async move {
            let shard = copy.shard_name()?;
            let info = self.client.shard_view_info(copy.node(), &shard, design, Cache::Warm).await;
            let index = info.ok()?.view_index;
            let version = snapshot.node(copy.node_ix()).and_then(Node::version);
            let facts = convert::view_facts(&index, None, version, self.clock.now());
            (index.signature == first.view_index.signature).then_some((copy.ix(), facts))
        });
        join_all(asked).await.into_iter().flatten().collect()
    }
}

/// Whether a node has more files than it keeps open, or not all its files were read in the last sweep.
fn reopens(snapshot: &Snapshot, node: NodeIx) -> bool {
    let files =
        snapshot.totals().sums_of(node, TargetKind::Db).counts_by_state[TargetState::Ok as usize];
    let many = files > MAX_OPEN_SHARDS as u64;
    is_up(snapshot, node) && (many || snapshot.node(node).is_some_and(|node| node.skipped_shards))
}

fn is_up(snapshot: &Snapshot, node: NodeIx) -> bool {
    snapshot.node(node).is_some_and(|node| node.answers())
}

fn seen(
    db: &str,
    info: wire::ViewInfo,
    facts: Facts,
    copy: Option<TargetIx>,
) -> Result<IndexAnswer, ReadError> {
    let signature = info.view_index.signature.ok_or_else(|| ReadError {
        reason: Failed::Malformed.label(),
        message: format!("_info of a design document of {db} has no signature"),
        right: None,
    })?;
    let collators = info.view_index.collator_versions.unwrap_or_default();
    Ok(IndexAnswer { signature, facts, collators, copy, copies: Vec::new() })
}

fn is_unaddressable(asked: &Result<IndexAnswer, ReadError>) -> bool {
    asked.as_ref().is_err_and(|unread| unread.reason == Failed::Unaddressable.label())
}

fn design(doc: &wire::DesignDoc) -> Option<Design> {
    let views = doc.views.as_ref();
    Some(Design {
        id: doc.id.clone()?,
        language: doc.language.clone(),
        has_views: doc.has_views(),
        query: views.and_then(|views| views.first.clone()).filter(|_| doc.autoupdate.views),
        definition: format!("{:?}{}", doc.options, views.map_or("", |views| &views.text)),
        functions: views.map_or_else(Vec::new, |views| functions(doc, views)),
    })
}

/// A sorted list of hashes, one per view, of everything except its name that determines what it
/// indexes. Equal views have equal hashes in every document and sweep of one process.
fn functions(doc: &wire::DesignDoc, views: &wire::Views) -> Vec<u64> {
    let Ok(defined) = serde_json::from_str::<serde_json::Map<_, serde_json::Value>>(&views.text)
    else {
        return Vec::new();
    };
    let lib = defined.get("lib").map(ToString::to_string);
    let options = format!("{:?}", doc.options);
    let hash = |view: &serde_json::Value| {
        let mut hasher = DefaultHasher::new();
        (doc.language(), &options, &lib, view.to_string()).hash(&mut hasher);
        hasher.finish()
    };
    let maps = defined.values().filter(|view| view.get("map").is_some());
    let mut functions: Vec<u64> = maps.map(hash).collect();
    functions.sort_unstable();
    functions
}

/// Every name that an index file of these documents may have: CouchDB 3's, and the previous one, which
/// remains until the file is first opened.
fn all_signatures(docs: &[wire::DesignDoc]) -> Option<Vec<Signature>> {
    let mut all = Vec::with_capacity(2 * docs.len());
    for doc in docs {
        let design = couchdb_files::Design::parse(&doc.text).ok()?;
        all.extend([design.signature, design.signature_2x]);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

/// Merges views whose definitions differ but whose signature is the same: they are one target.
fn merged(views: Vec<ViewAnswer>) -> Vec<ViewAnswer> {
    let mut merged: Vec<ViewAnswer> = Vec::with_capacity(views.len());
    for view in views {
        let same = merged.iter_mut().find(|known| match (&known.index, &view.index) {
            (Ok(known), Ok(index)) => known.signature == index.signature,
            _ => false,
        });
        match same {
            Some(known) => {
                known.designs.extend(view.designs);
                known.designs.sort_unstable();
                known.built_by = known.built_by.take().or(view.built_by);
            }
            None => merged.push(view),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions_of(views: &str, language: Option<&str>) -> Vec<u64> {
        let doc = wire::DesignDoc { language: language.map(Into::into), ..Default::default() };
        functions(&doc, &wire::Views { text: views.to_owned(), first: None })
    }

    #[test]
    fn view_hashes_depend_on_content_and_not_on_names() {
        let one = functions_of(r#"{"a":{"map":"m"},"b":{"map":"n","reduce":"_sum"}}"#, None);
        assert_eq!(one.len(), 2);
        let renamed = r#"{"x":{"map":"n","reduce":"_sum"},"y":{"map":"m"}}"#;
        assert_eq!(functions_of(renamed, Some("javascript")), one);
        for other in [
            r#"{"a":{"map":"m"},"b":{"map":"n"}}"#,
            r#"{"a":{"map":"m"},"b":{"map":"n","reduce":"_sum"},"lib":{"l":"1"}}"#,
        ] {
            assert_eq!(functions_of(other, None).len(), 2);
            assert_ne!(functions_of(other, None), one, "{other}");
        }
        assert_ne!(functions_of(renamed, Some("erlang")), one);
        assert!(functions_of(r#"{"lib":{"l":"1"}}"#, None).is_empty());
    }
}
