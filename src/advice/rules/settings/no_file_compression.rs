//! Nodes that write their files uncompressed.

use super::nodes::{MAX_COMMANDS, node, nodes_in_words, nodes_with};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording, total},
    text::size::format_size_short,
};

pub(crate) const RULE: Rule = Rule {
    code: "no_file_compression",
    finds: "Nodes on which CouchDB writes documents and indexes without compression.",
    because: "With `[couchdb] file_compression = none` CouchDB writes every block of a database and index uncompressed; its default is snappy, which costs little time. Existing blocks stay uncompressed until their file is compacted. How much smaller files become depends on the documents, so no gain is given. Attachments are compressed by type, regardless of this setting.",
    ..Rule::info(check)
};

pub(super) const KEY: (&str, &str) = ("couchdb", "file_compression");

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let Some((nodes, bytes)) = uncompressed(situation) else { return };
    findings.offer(Gain::Unknown, || Wording {
        subject: Subject::Setting("[couchdb] file_compression".to_owned()),
        says: format!(
            "{} without compression (file_compression is none), with {} of databases.",
            match &nodes[..] {
                [one] => format!("{one} writes its files"),
                many => format!("{} write their files", nodes_in_words(many)),
            },
            format_size_short(bytes)
        ),
        evidence: vec![
            ("nodes", nodes_in_words(&nodes).into()),
            ("database_file_bytes", bytes.into()),
        ],
        remedy: remedy(&nodes),
    });
}

/// The nodes without compression and the bytes of their files, if they justify advice.
pub(super) fn uncompressed(situation: &Situation<'_>) -> Option<(Vec<String>, u64)> {
    let nodes = nodes_with(situation, KEY, "none");
    let known = nodes.iter().filter_map(|name| Some(node(situation, name)?.0));
    let bytes = total(known.map(|ix| situation.survey.node(ix).file_bytes));
    (!nodes.is_empty() && bytes >= situation.settings().min_bytes).then_some((nodes, bytes))
}

fn remedy(nodes: &[String]) -> Vec<Remedy> {
    let compress = |node: &String| {
        let says = "Compress what is written or compacted from now on:";
        Remedy::set_config(says, node, KEY, "snappy")
    };
    let mut remedy: Vec<Remedy> = nodes.iter().take(MAX_COMMANDS).map(compress).collect();
    remedy.push("Compact one shard first and compare its size before and after with `recliner history`, then decide about the rest.".into());
    remedy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const GIB: u64 = 1 << 30;

    fn found(method: Option<&str>, bytes: u64) -> Vec<Finding> {
        let mut cluster = TestCluster::with_shards(&[Shard::new("orders", "a", 0, bytes)]);
        let method = method.map(|method| (KEY.0, KEY.1, method));
        cluster.set("a", method.as_slice());
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_nodes_without_compression() {
        let found = found(Some("none"), 5 * GIB);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "a writes its files without compression (file_compression is none), with 5 GiB of databases."
        );
    }

    #[test]
    fn is_silent_if_nodes_compress_or_hold_little_data() {
        assert_eq!(found(Some("deflate_6"), 5 * GIB), []);
        assert_eq!(found(Some("none"), 1 << 20), []);
    }

    #[test]
    fn unset_compression_counts_as_the_default() {
        assert_eq!(found(None, 5 * GIB), []);
    }

    #[test]
    fn is_silent_if_settings_or_sizes_are_unknown() {
        let shard = Shard::new("orders", "a", 0, 5 * GIB);
        let without_settings = TestCluster::with_shards(std::slice::from_ref(&shard));
        assert_eq!(without_settings.findings_of(&RULE), []);
        let unmeasured = Shard { file_bytes: None, active_bytes: None, ..shard };
        let mut cluster = TestCluster::with_shards(&[unmeasured]);
        cluster.set("a", &[(KEY.0, KEY.1, "none")]);
        assert_eq!(cluster.findings_of(&RULE), []);
    }
}
