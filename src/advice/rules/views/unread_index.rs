//! Indexes that nobody reads, as the logs of all nodes show.

use super::designs::{DesignName, is_building};
use crate::{
    advice::{AskedIndex, Findings, Gain, Remedy, Rule, Situation, Wording, covered_days},
    model::reads::Reads,
    table::TargetRef,
    text::{counted, quote::shell_word, size::format_size_short},
};
use access_log::Day;
use couchdb_names::encode_part;

pub(crate) const RULE: Rule = Rule {
    code: "unread_index",
    finds: "View indexes that nobody has read for `advice.unread_after`, and those set aside a week ago.",
    because: "CouchDB updates every index of a database with each change, whether anybody reads it or not. The rule is silent unless the logs of all members, or of proxies that see every request (`reads.proxies_see_all`), have a request in every hour of that time. It ignores design documents that are younger or were written since. A call of a filter, update or show function counts as a read, and a `_find` as one of every Mango index of its database. The first step can be undone: CouchDB shares an index between equal definitions, so a copy under another name keeps its files from every cleanup. A week later recliner advises the second step, and says whether clients asked for the index.",
    ..Rule::info(check)
};

/// The prefix of the name under which a design document is set aside.
const KEPT: &str = "_design/recliner-kept-";

/// Days for which a design document remains set aside.
const KEPT_DAYS: u32 = 7;

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let (settings, reads, now) = (situation.settings(), &situation.inputs.reads, situation.now);
    let Some(covered) = covered_days(reads, situation.snapshot(), now) else { return };
    let days = u32::try_from(settings.unread_after.as_secs() / 86_400).unwrap_or(u32::MAX);
    for (ix, db) in situation.survey.dbs() {
        if db.views == 0 || db.view_file_bytes < settings.min_bytes {
            continue;
        }
        for index in situation.views_of(ix) {
            let bytes = index.file_bytes().filter(|bytes| *bytes >= settings.min_bytes);
            let Some((bytes, name)) = bytes.zip(DesignName::of(index)) else { continue };
            let asked = AskedIndex::of(index);
            let is_kept = asked.designs.iter().all(|design| design.starts_with(KEPT));
            let Some((since, unread)) = reads.unread(asked.whole(), Some(covered), now) else {
                continue;
            };
            if is_kept {
                if unread >= KEPT_DAYS {
                    let refused = refused(reads, &name, since);
                    findings.offer(Gain::Bytes(bytes), || kept(name, bytes, (unread, refused)));
                }
            } else if unread >= days && !is_building(situation, index) {
                findings.offer(Gain::Bytes(bytes), || {
                    unread_index(name, index, (bytes, unread, since))
                });
            }
        }
    }
}

/// Number of client requests, since then, for what was set aside.
fn refused(reads: &Reads, name: &DesignName, since: Day) -> u64 {
    let original = format!("_design/{}", name.design.strip_prefix(KEPT).unwrap_or_default());
    reads.refused(&name.db, &original, since)
}

fn unread_index(
    name: DesignName,
    index: TargetRef<'_>,
    (bytes, days, since): (u64, u32, Day),
) -> Wording {
    let view = index.view();
    let views = view.map_or(0, |view| view.functions.len()) as u64;
    let others = view.map_or(0, |view| view.designs.len()).saturating_sub(1) as u64;
    let since = crate::model::reads::date(since);
    let mut says = format!(
        "Nobody has read {name} for {}: {} in all files.",
        counted(days.into(), "day", "days"),
        format_size_short(bytes)
    );
    if others > 0 {
        says.push_str(&format!(
            " Its index is shared with {}, which nobody reads either.",
            counted(others, "other design document", "other design documents")
        ));
    }
    let mut remedy = vec![
        name.show("See what it is for:"),
        Remedy::choice(format!(
            "Ask its owner. Logs do not show a job that last ran before {since}, such as an annual one, nor clients that bypass the proxies whose logs are read."
        )),
    ];
    if others > 0 {
        remedy.push(
            "The index is deleted only when all of these documents are set aside; do the same with each."
                .into(),
        );
    }
    if views > 1 {
        remedy.push(
            "It is all or nothing: removing only some of its views rebuilds the index of the others; `recliner preflight` predicts the cost."
                .into(),
        );
    }
    match KeptName::of(&name) {
        Some(kept) => remedy.extend([kept.set_aside(), kept.put_back()]),
        None => remedy.push(
            "Its name has characters that an HTTP header cannot carry: copy the document to another `_design/` name by hand before you delete it."
                .into(),
        ),
    }
    remedy.push(
        "Watch for client errors for a week; recliner then advises how to delete the index.".into(),
    );
    Wording {
        says,
        evidence: vec![
            ("file_bytes", bytes.into()),
            ("unread_days", days.into()),
            ("unread_since", since.into()),
        ],
        remedy,
        subject: name.subject(),
    }
}

fn kept(name: DesignName, bytes: u64, (days, refused): (u32, u64)) -> Wording {
    let asked = match refused {
        0 => "and no client asked for it".to_owned(),
        count => {
            format!("and clients asked for it {}: put it back", counted(count, "time", "times"))
        }
    };
    let original = name.design.strip_prefix(KEPT).unwrap_or_default();
    let original = DesignName { db: name.db.clone(), design: format!("_design/{original}") };
    let mut remedy = Vec::new();
    if let Some(kept) = KeptName::of(&original) {
        remedy.push(kept.put_back());
        if refused == 0 {
            remedy.push(kept.delete());
            remedy.push(Remedy::view_cleanup("Then delete the files of its index:", &name.db));
        }
    }
    Wording {
        says: format!(
            "{original} has been set aside for {}, {asked}: its index has {} in all files.",
            counted(days.into(), "day", "days"),
            format_size_short(bytes)
        ),
        evidence: vec![
            ("file_bytes", bytes.into()),
            ("days", days.into()),
            ("refused_requests", refused.into()),
        ],
        remedy,
        subject: name.subject(),
    }
}

/// A design document and the name under which it is set aside.
struct KeptName {
    /// The path of the database, encoded.
    db: String,
    /// The name behind `_design/`, which needs no encoding.
    name: String,
}

impl KeptName {
    /// `None` if the name cannot be in a header, where CouchDB does not decode it.
    fn of(design: &DesignName) -> Option<Self> {
        let name = design.design.strip_prefix("_design/")?;
        let is_plain =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte));
        let db = encode_part(&design.db).to_string();
        is_plain.then(|| Self { db, name: name.to_owned() })
    }

    /// Lines that define `ask`, the URLs of the document and of its copy, and a function that returns a revision.
    fn lines(&self) -> String {
        let (ask, db, name) = (Remedy::ASK, shell_word(&self.db), &self.name);
        format!(
            r#"{ask}
base="$COUCHDB_URL"/{db}
from=_design/{name} kept={KEPT}{name}
rev() {{ ask -f -I "$base/$1" | tr -d '\r"' | sed -n 's/^[Ee][Tt][Aa][Gg]: //p'; }}"#
        )
    }

    /// The first step.
    fn set_aside(&self) -> Remedy {
        let lines = self.lines();
        Remedy::command(
            "Set it aside under another name; the script deletes the document only if its copy shares the index:",
            format!(
                r#"{lines}
sig() {{ ask -f "$base/$1/_info" | sed -n 's/.*"signature":"\([0-9a-f]*\)".*/\1/p'; }}
old=$(rev "$from") && [ -n "$old" ] &&
ask -f -X COPY -H "Destination: $kept" "$base/$from" &&
[ -n "$(sig "$from")" ] && [ "$(sig "$from")" = "$(sig "$kept")" ] &&
ask -f -X DELETE "$base/$from?rev=$old""#
            ),
        )
    }

    /// Undoes the first step.
    fn put_back(&self) -> Remedy {
        let lines = self.lines();
        Remedy::command(
            "To restore it with its index:",
            format!(
                r#"{lines}
ask -f -X COPY -H "Destination: $from" "$base/$kept" && ask -f -X DELETE "$base/$kept?rev=$(rev "$kept")""#
            ),
        )
    }

    /// The second step.
    fn delete(&self) -> Remedy {
        let lines = self.lines();
        let name = &self.name;
        Remedy::command(
            "Or keep only its definition, from which the index can be rebuilt. It becomes an ordinary document, which the database's other views also see:",
            format!(
                r#"{lines}
ask -f -X COPY -H "Destination: recliner-kept-{name}" "$base/$kept" &&
ask -f -X DELETE "$base/$kept?rev=$(rev "$kept")""#
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{
        Finding,
        test_cluster::{Index, NOW, Shard, TestCluster},
    };
    use access_log::{Class, How, LogReads, Request, Used};

    const MIB: u64 = 1 << 20;

    /// A cluster of two nodes whose logs have a line in every hour of some days before today.
    struct Logs(LogReads);

    impl Logs {
        fn of_days(days: u64) -> Self {
            let mut logs = LogReads::default();
            for ago in 1..=days {
                for node in ["a", "b"] {
                    (0..24).for_each(|hour| logs.add(request(ago, hour, node, None), ""));
                }
            }
            Self(logs)
        }

        fn and(mut self, ago: u64, design: &'static str, how: How) -> Self {
            let used = Used {
                db: "orders".into(),
                design: design.into(),
                view: "v".into(),
                how,
                class: Class::Unknown,
            };
            self.0.add(request(ago, 5, "a", Some(used)), "");
            self
        }

        fn findings(&self, designs: &[&'static str]) -> Vec<Finding> {
            self.findings_of(designs, Some(500))
        }

        fn findings_of(&self, designs: &[&'static str], mib: Option<u64>) -> Vec<Finding> {
            let shards = ["a", "b"].map(|node| Shard::new("orders", node, 0, 500 * MIB));
            let mut cluster = TestCluster::with_shards(&shards);
            for (signature, design) in (1..).zip(designs) {
                let bytes = mib.map(|mib| mib * MIB);
                let functions = vec![u64::from(signature)];
                let index = Index::new("orders", design, signature);
                cluster.add_index(&Index { bytes, functions, ..index });
            }
            cluster.reads = Reads::of_logs(&self.0);
            cluster.findings_of(&RULE)
        }
    }

    fn request(
        ago: u64,
        hour: u64,
        node: &'static str,
        used: Option<Used<'static>>,
    ) -> Request<'static> {
        let at = (NOW.unix() / 86_400 - ago) * 86_400 + hour * 3_600;
        Request { at, node: Some(node.into()), used }
    }

    #[test]
    fn finds_an_index_that_nobody_reads() {
        let logs =
            Logs::of_days(61).and(61, "_design/old", How::Seen).and(9, "_design/new", How::Read);
        let found = logs.findings(&["_design/old", "_design/new"]);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "Nobody has read orders/_design/old for 61 days: 1000 MiB in all files."
        );
        assert_eq!(only.gain, Gain::Bytes(1000 * MIB));
        let step = only.remedy.iter().find(|it| it.says.starts_with("Set it aside")).unwrap();
        let text = step.text.as_deref().unwrap();
        assert!(text.contains("kept=_design/recliner-kept-old"), "{text}");
        assert!(!text.contains("_view_cleanup"), "deletion is not the first step");
    }

    #[test]
    fn is_silent_unless_logs_prove_that_nobody_reads_the_index() {
        let seen = |days: u64| Logs::of_days(days).and(days, "_design/old", How::Seen);
        let found = |logs: Logs| logs.findings(&["_design/old"]).len();
        assert_eq!(found(seen(60)), 1);
        assert_eq!(found(seen(59)), 0, "the logs are too short");
        assert_eq!(found(Logs::of_days(61)), 0, "it may be new");
        assert_eq!(found(seen(61).and(3, "_design/old", How::Written)), 0, "it is new");
        assert_eq!(found(seen(61).and(50, "_design/old", How::Read)), 0);
        assert_eq!(found(seen(61).and(50, "_design/old", How::Function)), 0, "its filter is used");
        assert_eq!(seen(61).findings_of(&["_design/old"], None), [], "its size is unknown");
        assert_eq!(seen(61).findings_of(&["_design/old"], Some(31)), [], "it is small");
        let mut gap = seen(61);
        for ((_, day), reads) in &mut gap.0.days {
            if u64::from(day.0) == NOW.unix() / 86_400 - 30 {
                reads.hours &= !(1 << 13);
            }
        }
        assert_eq!(found(gap), 0, "an hour is missing");
        let mut one = seen(61);
        one.0.days.retain(|(source, _), _| *source != access_log::Source::Node("b".to_owned()));
        assert_eq!(found(one), 0, "clients may ask the other node");
        assert_eq!(found(Logs(LogReads::default())), 0);
    }

    #[test]
    fn advises_deleting_a_design_document_set_aside_for_a_week() {
        let kept = "_design/recliner-kept-old";
        let since = |ago: u64| Logs::of_days(61).and(ago, kept, How::Seen);
        assert_eq!(since(6).findings(&[kept]), []);
        let found = since(7).findings(&[kept]);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "orders/_design/old has been set aside for 7 days, and no client asked for it: its index has 1000 MiB in all files."
        );
        assert!(only.remedy.iter().any(|it| it.says.contains("delete the files")));
        let found = since(7).and(2, "_design/old", How::Refused).findings(&[kept]);
        assert!(found[0].says.contains("clients asked for it 1 time: put it back"), "{found:?}");
        assert!(!found[0].remedy.iter().any(|it| it.says.contains("delete the files")));
    }
}
