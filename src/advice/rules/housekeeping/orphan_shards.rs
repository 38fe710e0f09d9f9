//! Shard files that no database owns.

use super::files::{ByDatabase, by_database, directories_of, nodes_of};
use crate::{
    advice::{
        Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording, grouped_by, total,
    },
    model::target::{TargetKind, TargetState},
    table::{DbIx, DbName, TargetRef},
    text::{counted, duration::format_rounded, quote::shell_word, size::format_size_short},
};
use couchdb_names::encode_part;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const RULE: Rule = Rule {
    code: "orphan_shards",
    finds: "Shard files on disk that the cluster's shard map does not place there.",
    because: "CouchDB leaves such files when a database is deleted, or a shard is moved, while a node is down or out of the cluster. Nothing opens them, no compaction and no cleanup ever removes them, and they are invisible in `_all_dbs`. They may be the last copy of a database that was deleted by mistake, so a person decides; it is a warning if a database of the same name is live, which may have been recreated without the documents in these files. Files count as `unknown`, without advice, if they belong to a stopped split, have an unusual name, or not every member's shard map and all of `_reshard/jobs` could be read.",
    severities: &[Severity::Info, Severity::Warning],
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let orphans = by_database(situation, &situation.survey.orphans);
    if orphans.is_empty() {
        return;
    }
    let live = live_instances(situation, &orphans);
    for (db, targets) in &orphans {
        let bytes = total(targets.iter().filter_map(|target| target.file_bytes()));
        let Some(first) = targets.first() else { continue };
        if bytes < situation.settings().min_bytes {
            continue;
        }
        let name = first.db_name();
        match live.get(name.db) {
            Some(other) => {
                let is_same = other == db;
                let severity = if is_same { Severity::Info } else { Severity::Warning };
                let gain = if is_same { Gain::Unknown } else { Gain::Risk(bytes) };
                findings.offer_as(severity, gain, || {
                    let remedy = compare(situation, targets, is_same);
                    let has_copies = is_same.then_some(true);
                    finding(name, targets, bytes, has_copies, remedy)
                });
            }
            None => findings.offer(Gain::Bytes(bytes), || {
                finding(name, targets, bytes, Some(false), set_aside(situation, targets, None))
            }),
        }
    }
}

/// The databases in the shard map that have the name of an orphan.
fn live_instances<'a>(
    situation: &Situation<'a>,
    orphans: &ByDatabase<'a>,
) -> BTreeMap<&'a str, DbIx> {
    let snapshot = situation.snapshot();
    let names: BTreeSet<&str> = orphans.keys().map(|db| situation.db_name(*db)).collect();
    let live = snapshot
        .databases()
        .filter(|(db, name)| names.contains(name.db) && snapshot.shard_map(*db).copies > 0);
    live.map(|(db, name)| (name.db, db)).collect()
}

/// `has_copies`: whether the shard map has copies of these ranges elsewhere; none if only another
/// database of the same name is live.
fn finding(
    name: DbName<'_>,
    targets: &[TargetRef<'_>],
    bytes: u64,
    has_copies: Option<bool>,
    remedy: Vec<Remedy>,
) -> Wording {
    let files = counted(targets.len() as u64, "shard file", "shard files");
    let (size, nodes) = (format_size_short(bytes), nodes_of(targets));
    let (belong, are) = if targets.len() == 1 { ("belongs", "is") } else { ("belong", "are") };
    let says = match has_copies {
        Some(false) => format!("{files} of {name} ({size}) on {nodes} {belong} to no database."),
        Some(true) => format!(
            "{files} of {name} ({size}) on {nodes} {are} not placed there by the shard map, which places the copies elsewhere."
        ),
        None => format!(
            "{files} of {name} ({size}) on {nodes} {are} from an earlier database of the same name: they may have documents that the live database lacks."
        ),
    };
    Wording {
        subject: Subject::Database(name.db.to_owned()),
        says,
        evidence: vec![
            ("files", (targets.len() as u64).into()),
            ("file_bytes", bytes.into()),
            ("nodes", nodes.into()),
        ],
        remedy,
    }
}

/// Remedies for files beside a live database of the same name.
fn compare(situation: &Situation<'_>, targets: &[TargetRef<'_>], is_same: bool) -> Vec<Remedy> {
    if is_same {
        let mut remedy =
            vec!["Leave the files where they are while copies are being moved.".into()];
        remedy.extend(set_aside(situation, targets, Some(&holders(situation, targets))));
        return remedy;
    }
    let Some(first) = targets.first() else { return Vec::new() };
    let shard = first.shard_name().unwrap_or_default();
    vec![
        Remedy::get("See how many documents such a file has:", &["_node", first.node(), &shard]),
        Remedy::get("Compare with the live database:", &[situation.db_name(first.db())]),
        "Do not delete these files. If they have documents that the live database lacks, as happens when a new node has recreated databases, restore them: copy each file as NAME.couch into `[couchdb] database_dir` of a separate CouchDB, and replicate from `/_node/_local/NAME` there."
            .into(),
    ]
}

/// The nodes on which the shard map places the same range of the same database, by shard.
type Holders<'a> = BTreeMap<String, BTreeSet<&'a str>>;

fn holders<'a>(situation: &Situation<'a>, orphans: &[TargetRef<'a>]) -> Holders<'a> {
    let ranges: BTreeSet<_> = orphans.iter().map(|it| (it.db(), it.range())).collect();
    let copies = situation.snapshot().targets().filter(|it| {
        it.kind() == TargetKind::Db
            && it.state() == TargetState::Ok
            && ranges.contains(&(it.db(), it.range()))
    });
    let mut holders = Holders::new();
    for copy in copies {
        holders.entry(copy.shard_name().unwrap_or_default()).or_default().insert(copy.node());
    }
    holders
}

/// Remedies for files of a database that no shard map has, or whose ranges the `holders` have.
fn set_aside(
    situation: &Situation<'_>,
    targets: &[TargetRef<'_>],
    holders: Option<&Holders<'_>>,
) -> Vec<Remedy> {
    let explain = |first: &TargetRef<'_>| {
        let says = "See what is known about the files:";
        Remedy::recliner(says, &["explain", &first.id().to_string()])
    };
    let mut remedy: Vec<Remedy> = targets.first().map(explain).into_iter().collect();
    let (since, age) = (situation.inputs.status.members_since, situation.settings().orphan_age);
    let span = format_rounded(age);
    if since.is_none_or(|since| since.age(situation.now) < age) {
        remedy.push(Remedy::choice(format!(
            "Keep the files: recliner has not yet seen the cluster's members unchanged for {span}, and a node that joined or left may have the database in its shard map or hold its only other copy.",
        )));
        return remedy;
    }
    let is_held = |target: &TargetRef<'_>| {
        holders.is_none_or(|held| target.shard_name().is_some_and(|it| held.contains_key(&it)))
    };
    if !targets.iter().all(is_held) {
        remedy.push(
            "Keep the files: the shard map has no copy of the same ranges to compare them with."
                .into(),
        );
        return remedy;
    }
    let (when, ground) = match holders {
        None => {
            ("If nobody needs the data", "no split and no member's shard map has the database, and")
        }
        Some(_) => (
            "When no copy is being moved",
            "no split has the database, no member's shard map places the files there, every copy elsewhere has as many documents, and",
        ),
    };
    for (node, of_node) in grouped_by(targets.iter().map(|target| (target.node(), *target))) {
        remedy.push(Remedy::command(
            format!(
                "{when}: on {node}, set the files aside. The script stops unless the members are the same, {ground} nothing was written for {span}:"
            ),
            set_aside_script(situation, &of_node, holders),
        ));
    }
    remedy.push(
        "Keep the files that end in .set-aside for at least 30 days, and until a backup has them. To undo this, rename them back. Only after that time delete them, which frees the space."
            .into(),
    );
    remedy
}

/// Shell lines that verify that nothing needs a node's files, and then rename the files so that
/// CouchDB does not open them.
fn set_aside_script(
    situation: &Situation<'_>,
    files: &[TargetRef<'_>],
    holders: Option<&Holders<'_>>,
) -> String {
    let snapshot = situation.snapshot();
    let members: BTreeSet<&str> = snapshot.members().map(|(_, node)| &*node.name).collect();
    let quoted: Vec<String> = members.iter().map(|name| format!("\"{name}\"")).collect();
    let word = |part: &str| shell_word(&encode_part(part).to_string()).into_owned();
    let paths: Vec<String> = members.iter().map(|name| word(name)).collect();
    let first = files.first();
    let db = first.map(|file| file.db_name().db).unwrap_or_default();
    let directories = first.and_then(|file| snapshot.node(file.node_ix())).map(directories_of);
    let data = match directories.as_deref() {
        Some([only]) => shell_word(only).into_owned(),
        _ => "\"$COUCHDB_DATA\"".to_owned(),
    };
    let minutes = situation.settings().orphan_age.as_secs() / 60;
    let names = files.iter().filter_map(|file| file.shard_name());
    let names: Vec<String> =
        names.map(|name| shell_word(&format!("{name}.couch")).into_owned()).collect();
    let database = word(db);
    let mut lines = vec![
        "stop() { echo \"stopped, nothing was set aside: $1\" >&2; exit 1; }".to_owned(),
        format!("cd {data}"),
        format!("members={}", shell_word(&quoted.join(","))),
        "now=$(ask -f \"$COUCHDB_URL\"/_membership)".to_owned(),
        "case $now in *\"all_nodes\\\":[$members]\"*\"cluster_nodes\\\":[$members]\"*) ;; *) stop 'the members changed' ;; esac".to_owned(),
        "jobs=$(ask -f \"$COUCHDB_URL\"/_reshard/jobs)".to_owned(),
        format!("case $jobs in *{}*) stop 'a split has it' ;; *'\"jobs\":'*) ;; *) stop 'the splits are unknown' ;; esac", shell_word(&format!("/{db}."))),
        format!("for node in {}; do", paths.join(" ")),
        "  ask -f -o /dev/null \"$COUCHDB_URL/_node/$node/_dbs\"".to_owned(),
    ];
    match holders {
        None => lines.extend([
            format!("  code=$(ask -o /dev/null -w '%{{http_code}}' \"$COUCHDB_URL/_node/$node/_dbs/\"{database})"),
            "  [ \"$code\" = 404 ] || stop \"the shard map of $node may have it ($code)\"".to_owned(),
            "done".to_owned(),
        ]),
        Some(holders) => lines.extend(placed_elsewhere(files, holders, &database)),
    }
    lines.extend([
        format!("for file in {}; do", names.join(" ")),
        "  [ -f \"$file\" ] || stop \"$file is not there\"".to_owned(),
        format!(
            "  [ -z \"$(find \"$file\" -mmin -{minutes})\" ] || stop \"$file was written since\""
        ),
        "done".to_owned(),
        format!("for file in {}; do mv -n \"$file\" \"$file.set-aside\"; done", names.join(" ")),
    ]);
    Remedy::script_text(&lines)
}

/// The rest of a loop over the members' shard maps, which must not place files on their node,
/// followed by a comparison with each copy elsewhere.
fn placed_elsewhere(
    files: &[TargetRef<'_>],
    holders: &Holders<'_>,
    database: &str,
) -> impl Iterator<Item = String> {
    let node = files.first().map(|file| file.node()).unwrap_or_default();
    let of_node =
        shell_word(&format!("s/.*\"by_node\":{{[^}}]*\"{node}\":\\[\\([^]]*\\)\\].*/\\1/p"))
            .into_owned();
    let ranges = files.iter().filter_map(|file| file.range()).map(|range| format!("*{range}*"));
    let ranges: Vec<String> = ranges.collect();
    let maps = [
        format!("  map=$(ask -f \"$COUCHDB_URL/_node/$node/_dbs/\"{database})"),
        "  case $map in *'\"by_node\":{'*) ;; *) stop \"the shard map of $node is unknown\" ;; esac".to_owned(),
        format!("  case $(printf '%s' \"$map\" | sed -n {of_node}) in {}) stop \"the shard map of $node places it here\" ;; esac", ranges.join("|")),
        "done".to_owned(),
        "docs() { ask -f \"$COUCHDB_URL/_node/$1/$2\" | sed -n 's/.*\"doc_count\":\\([0-9]*\\),\"doc_del_count\":\\([0-9]*\\).*/\\1 \\2/p'; }".to_owned(),
        "compare() { here=$(docs \"$1\" \"$3\"); there=$(docs \"$2\" \"$3\"); [ -n \"$here\" ] && [ -n \"$there\" ] && [ \"${there% *}\" -ge \"${here% *}\" ] && [ \"${there#* }\" -ge \"${here#* }\" ] || stop \"the copy of $3 on $2 has fewer documents (${there:-unknown}) than this one (${here:-unknown})\"; }".to_owned(),
    ];
    let word = |part: &str| shell_word(&encode_part(part).to_string()).into_owned();
    let mut compared = Vec::new();
    for shard in files.iter().filter_map(|file| file.shard_name()) {
        for other in holders.get(&shard).into_iter().flatten() {
            compared.push(format!("compare {} {} {}", word(node), word(other), word(&shard)));
        }
    }
    maps.into_iter().chain(compared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{NOW, Shard, TestCluster};
    use wall_clock::Moment;

    const MIB: u64 = 1 << 20;

    fn found(shards: &[Shard]) -> Vec<Finding> {
        TestCluster::with_shards(shards).findings_of(&RULE)
    }

    fn commands(finding: &Finding) -> Vec<&str> {
        finding.remedy.iter().filter_map(|remedy| remedy.text.as_deref()).collect()
    }

    #[test]
    fn orphans_of_one_database_are_one_finding() {
        let orphan = |node, range, mib| Shard::new("old", node, range, mib * MIB).orphan();
        let shards = [orphan("a", 0, 40), orphan("b", 1, 30), Shard::new("new", "a", 0, 900 * MIB)];
        let found = found(&shards);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.gain, Gain::Bytes(70 * MIB));
        assert_eq!(only.says, "2 shard files of old.1 (70 MiB) on a and b belong to no database.");
    }

    #[test]
    fn advises_setting_files_aside_after_a_week_of_same_members() {
        let shards = [Shard::new("old", "a", 0, 90 * MIB).orphan(), Shard::new("new", "b", 0, MIB)];
        for (days, moves) in [(None, false), (Some(6), false), (Some(8), true)] {
            let mut cluster = TestCluster::with_shards(&shards);
            cluster.status.members_since =
                days.map(|days: u64| Moment::from_unix(NOW.unix() - days * 86_400));
            let found = cluster.findings_of(&RULE);
            let text = commands(&found[0]).join("\n");
            assert_eq!(text.contains(".set-aside\""), moves, "{days:?}");
            assert_eq!(text.contains("-mmin -10080)"), moves, "{text}");
            assert!(!text.contains("rm "), "{text}");
        }
    }

    #[test]
    fn deletes_nothing_beside_a_live_database_of_the_same_name() {
        let live = Shard::new("old", "a", 0, MIB);
        let mut cluster = TestCluster::with_shards(std::slice::from_ref(&live));
        cluster.status.members_since = Some(Moment::from_unix(1));
        cluster.add_shard_of(&Shard::new("old", "b", 0, 90 * MIB).orphan(), ".2");
        let found = cluster.findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!((only.severity, only.gain), (Severity::Warning, Gain::Risk(90 * MIB)));
        assert!(only.says.contains("an earlier database of the same name"), "{}", only.says);
        assert!(commands(only).iter().all(|it| it.starts_with("curl -u \"$COUCHDB_USER\" \"")));
    }

    /// A curl that answers from the environment.
    const CURL: &str = r#"curl() {
  cat >/dev/null
  for url; do :; done
  case $url in
    */_membership) printf '%s' "$MEMBERS" ;;
    */_reshard/jobs) printf '%s' "$JOBS" ;;
    */_dbs/old) printf '%s' "$MAP" ;;
    */_node/a/shards%2F*) printf '%s' "$THERE" ;;
    */_node/b/shards%2F*) printf '%s' "$HERE" ;;
  esac
}
"#;

    const FILE: &str = "shards/00000000-1ffffffe/old.1.couch";

    /// Runs a script over a directory with a shard file that is `days` old. Returns whether it was set aside,
    /// and what the script printed.
    fn set_aside_by(shell: &str, script: &str, env: &[(&str, &str)], days: u64) -> (bool, String) {
        let data = tempfile::tempdir().unwrap();
        let file = data.path().join(FILE);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let created = std::fs::File::create(&file).unwrap();
        let now = created.metadata().unwrap().modified().unwrap();
        created.set_modified(now - std::time::Duration::from_secs(days * 86_400)).unwrap();
        let login =
            [("COUCHDB_URL", "http://couch"), ("COUCHDB_USER", "me"), ("COUCHDB_PASSWORD", "p")];
        let mut command = std::process::Command::new(shell);
        command.args(["-c", &[CURL, script].concat()]).env("COUCHDB_DATA", data.path());
        let ran = command.envs(login).envs(env.iter().copied()).output().unwrap();
        let is_aside = data.path().join(format!("{FILE}.set-aside")).exists();
        assert_eq!((is_aside, file.exists()), (ran.status.success(), !is_aside), "{ran:?}");
        (is_aside, String::from_utf8(ran.stderr).unwrap())
    }

    /// The script that sets a file on b aside, which has a copy on a if `is_same`.
    fn script(is_same: bool) -> String {
        let live = if is_same { "old" } else { "new" };
        let shards = [Shard::new(live, "a", 0, MIB), Shard::new("old", "b", 0, 90 * MIB).orphan()];
        let mut cluster = TestCluster::with_shards(&shards);
        cluster.status.members_since = Some(Moment::from_unix(1));
        let found = cluster.findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.says.contains("places the copies elsewhere"), is_same, "{}", only.says);
        let scripts = commands(only).into_iter().filter(|text| text.contains("set -eu"));
        scripts.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn script_sets_a_copy_aside_only_if_every_check_passes() {
        let script = script(true);
        let holds = [
            ("MEMBERS", r#"{"all_nodes":["a","b"],"cluster_nodes":["a","b"]}"#),
            ("JOBS", r#"{"max_jobs":48,"jobs":[]}"#),
            ("MAP", r#"{"_id":"old","by_node":{"a":["00000000-1ffffffe"]}}"#),
            ("THERE", r#"{"doc_count":10,"doc_del_count":3}"#),
            ("HERE", r#"{"doc_count":10,"doc_del_count":3}"#),
        ];
        let fewer = "the copy of shards/00000000-1ffffffe/old.1 on a has fewer documents";
        let fewer = fewer.replace('/', "%2F");
        for (days, changed, says) in [
            (8, ("", ""), ""),
            (6, ("", ""), "old.1.couch was written since"),
            (
                8,
                ("MEMBERS", r#"{"all_nodes":["a"],"cluster_nodes":["a","b"]}"#),
                "the members changed",
            ),
            (8, ("MEMBERS", ""), "the members changed"),
            (8, ("JOBS", r#"{"jobs":[{"source":"shards/0-1/old.1"}]}"#), "a split has it"),
            (8, ("JOBS", r#"{"error":"unauthorized"}"#), "the splits are unknown"),
            (
                8,
                ("MAP", r#"{"by_node":{"a":["00000000-1ffffffe"],"b":["00000000-1ffffffe"]}}"#),
                "the shard map of a places it here",
            ),
            (
                8,
                ("MAP", r#"{"by_node":{"a":["00000000-1ffffffe"],"b":["20000000-3ffffffd"]}}"#),
                "",
            ),
            (8, ("MAP", r#"{"error":"not_found"}"#), "the shard map of a is unknown"),
            (8, ("THERE", r#"{"doc_count":9,"doc_del_count":3}"#), &fewer),
            (8, ("THERE", r#"{"doc_count":10,"doc_del_count":2}"#), &fewer),
            (8, ("THERE", ""), &fewer),
            (8, ("HERE", ""), &fewer),
        ] {
            let env: Vec<_> =
                holds.into_iter().chain([changed]).filter(|it| !it.0.is_empty()).collect();
            for shell in ["bash", "dash"] {
                let (is_aside, said) = set_aside_by(shell, &script, &env, days);
                assert_eq!(is_aside, says.is_empty(), "{shell} {changed:?}: {said}");
                assert!(said.contains(says), "{shell} {changed:?}: {said}");
            }
        }
    }

    #[test]
    fn script_sets_a_file_aside_only_if_the_shard_map_lacks_it() {
        let script = script(false);
        let holds = [
            ("MEMBERS", r#"{"all_nodes":["a","b"],"cluster_nodes":["a","b"]}"#),
            ("JOBS", r#"{"max_jobs":48,"jobs":[]}"#),
        ];
        for (code, is_absent) in [("404", true), ("200", false), ("401", false), ("000", false)] {
            let env = [&holds[..], &[("MAP", code)]].concat();
            let (is_aside, said) = set_aside_by("dash", &script, &env, 8);
            assert_eq!(is_aside, is_absent, "{code}: {said}");
            assert_eq!(said.contains("may have it"), !is_absent, "{code}: {said}");
        }
    }

    #[test]
    fn ignores_few_or_unknown_bytes() {
        let orphan = Shard::new("old", "a", 0, 63 * MIB).orphan();
        assert_eq!(found(std::slice::from_ref(&orphan)), []);
        assert_eq!(found(&[Shard { file_bytes: None, ..orphan.clone() }]), []);
        let unknown = TargetState::Unknown;
        assert_eq!(found(&[Shard { file_bytes: Some(90 * MIB), state: unknown, ..orphan }]), []);
    }
}
