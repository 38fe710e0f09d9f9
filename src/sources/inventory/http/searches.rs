//! Search indexes over HTTP: the indexes of a database, whether the cluster can build them, and how far
//! they are built.

use super::HttpSource;
use crate::{
    model::facts::{FactFlags, FactSource, Facts, Measurement, OptionalU64},
    sources::inventory::{ReadError, SearchAnswer, served},
    table::Snapshot,
};
use couchdb_client::{ErrorKind as Failed, wire};
use couchdb_names::Engine;
use futures::future::join_all;
use std::{collections::BTreeSet, time::Duration};
use tokio::{sync::OnceCell, time};

/// How long a node may take to report its search engines, so that a node that hangs does not delay the views.
const FEATURES_TIMEOUT: Duration = Duration::from_secs(5);

/// The search engines of the cluster, requested once per read and only if some database has a search
/// index.
#[derive(Debug, Default)]
pub(super) struct Offers(OnceCell<Vec<BTreeSet<String>>>);

impl Offers {
    /// Whether every node that answered has an engine; `None` if no node answered.
    async fn of(&self, source: &HttpSource, snapshot: &Snapshot, engine: Engine) -> Option<bool> {
        let answers = self.0.get_or_init(|| source.features(snapshot)).await;
        let word = match engine {
            Engine::Nouveau => "nouveau",
            // Set if a clouseau node was connected (`dreyfus:available/0`).
            Engine::Clouseau => "search",
        };
        (!answers.is_empty()).then(|| answers.iter().all(|features| features.contains(word)))
    }
}

impl HttpSource {
    /// The response of each node at its own address, if that is known; otherwise the entry node's.
    async fn features(&self, snapshot: &Snapshot) -> Vec<BTreeSet<String>> {
        let nodes = snapshot.nodes().iter().skip(1);
        let nodes = nodes.filter(|node| node.is_member && node.answers());
        let asked = nodes.map(|node| self.client.own_welcome(&node.name));
        let asked = join_all(asked.map(|asked| time::timeout(FEATURES_TIMEOUT, asked)));
        let mut answers: Vec<_> =
            asked.await.into_iter().filter_map(|answer| answer.ok()?.ok()).collect();
        if answers.is_empty() {
            answers.extend(self.client.welcome().await);
        }
        answers
            .into_iter()
            .filter_map(|welcome| Some(welcome.features?.into_iter().collect()))
            .collect()
    }

    /// The search indexes of one database, with the result of reading each.
    ///
    /// An index in a language without a query server is skipped, as views are, because every build of it
    /// fails.
    pub(super) async fn searches(
        &self,
        snapshot: &Snapshot,
        db: &str,
        ranges: u32,
        docs: &[wire::DesignDoc],
        offers: &Offers,
    ) -> Vec<SearchAnswer> {
        let mut all = Vec::new();
        for doc in docs.iter().filter(|doc| served(doc.language(), &self.settings.languages)) {
            let Some(design) = &doc.id else { continue };
            for engine in Engine::ALL {
                for index in doc.searches(engine) {
                    let offered = offers.of(self, snapshot, engine).await;
                    let facts = if offered == Some(true) {
                        self.search(engine, db, ranges, design, index).await
                    } else {
                        Ok(None)
                    };
                    all.push(SearchAnswer {
                        engine,
                        design: design.clone(),
                        index: index.clone(),
                        language: doc.language().to_owned(),
                        autoupdate: match engine {
                            Engine::Nouveau => doc.autoupdate.nouveau,
                            Engine::Clouseau => doc.autoupdate.indexes,
                        },
                        offered,
                        unaddressable: is_unaddressable(&facts),
                        facts,
                    });
                }
            }
        }
        all
    }

    async fn search(
        &self,
        engine: Engine,
        db: &str,
        ranges: u32,
        design: &str,
        index: &str,
    ) -> Result<Option<Facts>, ReadError> {
        let info = self.client.search_info(engine, db, design, index).await?;
        let measured_at = Some(Measurement { at: self.clock.now(), source: FactSource::Http });
        let Some(info) = info else {
            let never = Facts { update_seq: OptionalU64::new(0), measured_at, ..Facts::default() };
            return Ok(Some(never));
        };
        let index = info.search_index;
        let per_file = |sum: Option<u64>| sum.map(|sum| sum / u64::from(ranges.max(1)));
        Ok(Some(Facts {
            file_bytes: per_file(index.disk_size).into(),
            docs: index.docs().into(),
            update_seq: index.built_to().into(),
            measured_at,
            flags: FactFlags { estimated: true, ..FactFlags::default() },
            ..Facts::default()
        }))
    }
}

fn is_unaddressable(facts: &Result<Option<Facts>, ReadError>) -> bool {
    facts.as_ref().is_err_and(|unread| unread.reason == Failed::Unaddressable.label())
}
