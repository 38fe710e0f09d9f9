//! Nodes that write to more shards than they may keep open.

use super::nodes::{DEFAULT_MAX_DBS_OPEN, configs, node, value};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording},
    model::rounding::to_bytes,
};

pub(crate) const RULE: Rule = Rule {
    code: "too_few_open_databases",
    finds: "Nodes that write to more shards in a few days than CouchDB keeps open at a time.",
    because: "CouchDB keeps at most `[couchdb] max_dbs_open` shards open, 500 by default. Above that, it closes a shard for each one that it opens: the one opened or written longest ago, however often it is read, unless `update_lru_on_read` is true; and each open costs an fsync (measured: a sweep over closed shards runs at half the speed); if all are in use, requests fail with `all_dbs_active`. The limit is divided among one server per CPU core (after 3.5.2, at most `max_couch_server_shards`, 16 by default), and a shard's name decides which server opens it. So one server can be full before the limit is reached; if that is likely, the severity is info. Shards without writes are not counted, and the rule is silent until writes were measured for `advice.min_watched`. Each open shard needs a file handle and some memory, so the open files limit of CouchDB's user must be higher.",
    severities: &[Severity::Info, Severity::Warning],
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for config in configs(situation) {
        let set = value(config, "couchdb", "max_dbs_open");
        let limit = set.map_or(Some(DEFAULT_MAX_DBS_OPEN), |text| text.trim().parse().ok());
        let Some((limit, (ix, _))) = limit.zip(node(situation, &config.node)) else { continue };
        let servers = value(config, "couchdb", "max_couch_server_shards");
        let servers = servers.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_SERVERS);
        let sums = situation.survey.node(ix);
        let enough = situation.settings().min_watched;
        let is_known = sums.growth.watched().is_some_and(|watched| watched >= enough);
        if !is_known || limit_with_room_for(sums.written_shards, servers) <= limit {
            continue;
        }
        let (severity, but) = if sums.written_shards > limit {
            (Severity::Warning, format!("but keeps at most {limit} open (max_dbs_open)"))
        } else {
            (
                Severity::Info,
                format!(
                    "and keeps at most {limit} open (max_dbs_open), divided by name among one server per CPU core: the fullest may have no room left"
                ),
            )
        };
        // Fifty percent more, so that the limit does not soon need another change.
        let written = sums.written_shards + sums.written_shards / 2;
        let better = limit_with_room_for(written, servers).div_ceil(100) * 100;
        findings.offer_as(severity, Gain::Unknown, || Wording {
            subject: Subject::Node(config.node.clone()),
            says: format!(
                "{} writes to {} of its {} shards {but}.",
                config.node, sums.written_shards, sums.shards
            ),
            evidence: vec![
                ("written_shards", sums.written_shards.into()),
                ("shards", sums.shards.into()),
                ("max_dbs_open", limit.into()),
            ],
            remedy: vec![
                Remedy::choice(format!(
                    "Make sure that CouchDB's user may open at least {} files on that node (ulimit -n, LimitNOFILE).",
                    4 * better
                )),
                Remedy::set_config(
                    "Then let it keep more shards open:",
                    &config.node,
                    ("couchdb", "max_dbs_open"),
                    &better.to_string(),
                ),
            ],
        });
    }
}

/// CouchDB's default of `max_couch_server_shards`.
const DEFAULT_SERVERS: u64 = 16;

/// The limit with which the fullest server has room for its part of the shards: of `n`
/// random parts, the largest exceeds the mean by about `√(2 ln n · mean)`.
fn limit_with_room_for(shards: u64, servers: u64) -> u64 {
    let spread = (2.0 * servers as f64 * (servers.max(1) as f64).ln() * shards as f64).sqrt();
    shards.saturating_add(to_bytes(spread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const MIB: u64 = 1 << 20;

    /// Three shards that grow and one that does not.
    fn found(limit: &str, watched: bool) -> Vec<Finding> {
        let shard = |range| Shard::new("orders", "a", range, 90 * MIB);
        let grown = |range| shard(range).grown_from(86_400, MIB, MIB);
        let idle = shard(3).grown_from(86_400, 90 * MIB, 90 * MIB);
        let shards = [grown(0), grown(1), grown(2), idle];
        let shards = shards.map(|it| if watched { it } else { Shard { before: None, ..it } });
        let mut cluster = TestCluster::with_shards(&shards);
        cluster.set("a", &[("couchdb", "max_dbs_open", limit)]);
        cluster.findings_of(&RULE)
    }

    #[test]
    fn warns_if_more_shards_are_written_than_may_be_open() {
        let found = found("2", true);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "a writes to 3 of its 4 shards but keeps at most 2 open (max_dbs_open)."
        );
        let command = only.remedy[1].text.as_deref().unwrap_or_default();
        assert!(command.ends_with("/couchdb/max_dbs_open -d '\"100\"'"), "{command}");
    }

    #[test]
    fn idle_shards_do_not_count() {
        assert_eq!(found("19", true), []);
    }

    #[test]
    fn limit_that_uneven_spread_may_exceed_has_severity_info() {
        let found = found("18", true);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.severity, Severity::Info);
        let limits = [(328, 16), (330, 16), (330, 4), (330, 1)];
        let limits = limits.map(|(shards, servers)| limit_with_room_for(shards, servers));
        assert_eq!(limits, [498, 501, 390, 330]);
    }

    #[test]
    fn is_silent_if_growth_is_unknown_or_the_limit_is_no_number() {
        assert_eq!(found("2", false), []);
        assert_eq!(found("many", true), []);
    }
}
