//! Which members there are: those of the settings, and those in Prometheus's `file_sd` files.
//!
//! A file that cannot be read keeps its last list, as in Prometheus.

use crate::{
    config_format::tree::{self, Node, Value},
    model::settings::fleet::FleetSettings,
    text::pattern::NamePatterns,
};
use couchdb_client::Address;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The maximum size of a file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The most members that are asked.
const MAX_MEMBERS: usize = 10_000;

/// Members with the name that a list gives each.
type Members = BTreeMap<Address, Option<String>>;

/// The members, and why a file could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) members: Members,
    pub(super) problems: Vec<String>,
}

/// The files as they were last read.
#[derive(Clone, Debug, Default)]
pub(super) struct Discovery {
    last: BTreeMap<PathBuf, Members>,
}

impl Discovery {
    /// Reads all files; waits for the disk.
    pub(super) fn read(&mut self, settings: &FleetSettings) -> Found {
        let mut found = Found::default();
        let mut lists = BTreeMap::new();
        for named in &settings.file_sd {
            let paths = matching(named).unwrap_or_else(|why| {
                found.problems.push(why);
                let parent = named.parent();
                self.last.keys().filter(|it| it.parent() == parent).cloned().collect()
            });
            for path in paths {
                let list = read_list(&path).unwrap_or_else(|why| {
                    found.problems.push(format!("{}: {why}", path.display()));
                    self.last.get(&path).cloned().unwrap_or_default()
                });
                lists.insert(path, list);
            }
        }
        self.last = lists;
        let listed = self.last.values().flatten().map(|(url, name)| (url.clone(), name.clone()));
        found.members = listed.collect();
        for url in &settings.urls {
            found.members.entry(url.clone()).or_default();
        }
        if let Some((first, _)) = found.members.iter().nth(MAX_MEMBERS) {
            let first = first.clone();
            let more = found.members.split_off(&first).len();
            found
                .problems
                .push(format!("{more} of the recliners are not asked: only {MAX_MEMBERS} are"));
        }
        found
    }
}

/// The files that a path with `*` in its last part names.
fn matching(path: &Path) -> Result<Vec<PathBuf>, String> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(dir) = path.parent().filter(|_| name.contains('*')) else {
        return Ok(vec![path.to_owned()]);
    };
    let unusable = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let pattern = NamePatterns::new(&[name]).map_err(|why| unusable(&why))?;
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let entries = fs::read_dir(dir).map_err(|why| unusable(&why))?;
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|why| unusable(&why))?;
        let is_listed = entry.file_name().to_str().is_some_and(|name| pattern.matches(name));
        paths.extend(is_listed.then(|| entry.path()));
    }
    paths.sort();
    Ok(paths)
}

fn read_list(path: &Path) -> Result<Members, String> {
    let bytes = named_file::read_at_most(path, MAX_FILE_BYTES).map_err(|why| why.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let tree = tree::read("it", &text).map_err(|why| why.to_string())?;
    members_of(&tree)
}

/// The members of a list of target groups, in YAML or JSON.
fn members_of(tree: &Node) -> Result<Members, String> {
    let groups = match &tree.value {
        Value::List(groups) => groups.as_slice(),
        Value::Nothing => &[],
        Value::Text(_) | Value::Map(_) => {
            return Err("it is not a list of target groups".to_owned());
        }
    };
    let mut members = Members::new();
    for group in groups {
        let label = |name: &str| {
            let value = group.child("labels").and_then(|labels| labels.child(name));
            value.and_then(Node::text).filter(|text| !text.is_empty())
        };
        let Some(Value::List(targets)) = group.child("targets").map(|it| &it.value) else {
            return Err("a target group has no list targets".to_owned());
        };
        let scheme = label("__scheme__").unwrap_or("http");
        let name = label("name").or_else(|| label("cluster"));
        for target in targets {
            let target = target.text().ok_or("a target is not a text")?;
            let url = if target.contains("://") {
                target.to_owned()
            } else {
                format!("{scheme}://{target}")
            };
            let url =
                url.parse::<Address>().map_err(|why| format!("a target is no address: {why}"))?;
            members.insert(url, name.map(str::to_owned));
        }
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_yaml_and_json_as_prometheus_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let yaml = "- targets: ['a:10984', b:10985]\n  labels: {cluster: east}\n- targets: [c:443]\n  labels: {__scheme__: https, name: c, cluster: x}\n";
        fs::write(path("one.yml"), yaml).unwrap();
        fs::write(path("two.json"), r#"[{"targets": ["http://d:1/below"], "labels": {}}]"#)
            .unwrap();
        fs::write(path("other.txt"), "no").unwrap();
        let settings = FleetSettings {
            urls: vec!["http://s:1".parse().unwrap(), "http://a:10984".parse().unwrap()],
            file_sd: vec![path("*.yml"), path("two.json")],
            ..FleetSettings::default()
        };
        let mut discovery = Discovery::default();
        let found = discovery.read(&settings);
        let members: Vec<(&str, Option<&str>)> =
            found.members.iter().map(|(url, name)| (url.as_str(), name.as_deref())).collect();
        let all = [
            ("http://a:10984", Some("east")),
            ("http://b:10985", Some("east")),
            ("http://d:1/below", None),
            ("http://s:1", None),
            ("https://c:443", Some("c")),
        ];
        assert_eq!(members, all);
        assert_eq!(found.problems, [""; 0]);
        // What cannot be read keeps its last list, and says why; what is gone is gone.
        for (broken, why) in [
            ("- targets: a\n", "has no list"),
            ("{}", "not a list"),
            ("- targets: ['http://u:p@a']\n", "no address"),
            ("[", "one.yml"),
        ] {
            fs::write(path("one.yml"), broken).unwrap();
            let again = discovery.read(&settings);
            assert_eq!(again.members, found.members, "{broken}");
            assert!(again.problems[0].contains(why), "{:?}", again.problems);
            assert!(!again.problems[0].contains("u:p"), "{:?}", again.problems);
        }
        fs::remove_file(path("one.yml")).unwrap();
        let less = discovery.read(&settings);
        assert_eq!((less.members.len(), less.problems.len()), (3, 0));
        fs::remove_file(path("two.json")).unwrap();
        let gone = discovery.read(&settings);
        assert_eq!((gone.members.len(), gone.problems.len()), (3, 1));
    }
}
