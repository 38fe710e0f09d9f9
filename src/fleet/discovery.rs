//! Finds the members: those in the settings, and those in lists for Prometheus's service discovery.
//!
//! A list that cannot be read keeps its last content, as in Prometheus. The login is not sent to a member that only a
//! list over http names, because an attacker on the network could have added it.

use crate::{
    config_format::tree::{self, Node, Value},
    model::settings::fleet::{FleetSettings, ListUrl},
    text::pattern::NamePatterns,
};
use couchdb_client::Address;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The maximum size of a list.
pub(super) const MAX_LIST_BYTES: u64 = 4 << 20;

/// Maximum number of members.
const MAX_MEMBERS: usize = 10_000;

/// A list's entry about a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: Option<String>,
    /// Whether the login may be sent to it.
    pub(super) has_login: bool,
}

type Members = BTreeMap<Address, Listed>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) members: Members,
    pub(super) problems: Vec<String>,
}

/// The lists that were fetched over HTTP, or why one was not.
pub(super) type Fetched = BTreeMap<ListUrl, Result<Vec<u8>, String>>;

/// The lists as they were last read.
#[derive(Clone, Debug, Default)]
pub(super) struct Discovery {
    files: BTreeMap<PathBuf, Members>,
    fetched: BTreeMap<ListUrl, Members>,
}

impl Discovery {
    /// Reads all files and evaluates the fetched lists; blocks on the disk.
    pub(super) fn read(&mut self, settings: &FleetSettings, fetched: &Fetched) -> Found {
        let mut found = Found::default();
        let mut files = BTreeMap::new();
        for named in &settings.file_sd {
            let paths = matching(named).unwrap_or_else(|why| {
                found.problems.push(why);
                let parent = named.parent();
                self.files.keys().filter(|it| it.parent() == parent).cloned().collect()
            });
            if paths.is_empty() {
                found.problems.push(format!("{}: no file matches", named.display()));
            }
            for path in paths {
                let list = read_list(&path).unwrap_or_else(|why| {
                    found.problems.push(format!("{}: {why}", path.display()));
                    self.files.get(&path).cloned().unwrap_or_default()
                });
                files.insert(path, list);
            }
        }
        self.files = files;
        self.fetched.retain(|url, _| settings.http_sd.contains(url));
        for (url, list) in fetched.iter().filter(|(url, _)| settings.http_sd.contains(url)) {
            let list = list.as_ref().map_err(Clone::clone);
            match list.and_then(|bytes| members_in(bytes.clone(), url.is_https())) {
                Ok(members) => drop(self.fetched.insert(url.clone(), members)),
                Err(why) => found.problems.push(format!("{url}: {why}")),
            }
        }
        let given = settings.urls.iter();
        let given = given.map(|url| (url.clone(), Listed { name: None, has_login: true }));
        let listed = self.fetched.values().chain(self.files.values()).flatten();
        for (url, listed) in listed.map(|(url, listed)| (url.clone(), listed.clone())).chain(given)
        {
            let member = found.members.entry(url).or_default();
            member.has_login |= listed.has_login;
            member.name = listed.name.or_else(|| member.name.take());
        }
        if let Some((first, _)) = found.members.iter().nth(MAX_MEMBERS) {
            let first = first.clone();
            let more = found.members.split_off(&first).len();
            found.problems.push(format!(
                "{more} of the recliners are not asked: the maximum is {MAX_MEMBERS}"
            ));
        }
        found
    }
}

/// The files that match a path with `*` in its last part.
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
    let bytes = named_file::read_at_most(path, MAX_LIST_BYTES).map_err(|why| why.to_string())?;
    members_in(bytes, true)
}

fn members_in(list: Vec<u8>, has_login: bool) -> Result<Members, String> {
    let text = String::from_utf8(list).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let tree = tree::read("it", &text).map_err(|why| why.to_string())?;
    members_of(&tree, has_login)
}

/// The members of a list of target groups, in YAML or JSON.
fn members_of(tree: &Node, has_login: bool) -> Result<Members, String> {
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
        for (at, target) in targets.iter().enumerate() {
            let target = target.text().ok_or("a target is not a string")?;
            let url = if target.contains("://") {
                target.to_owned()
            } else {
                format!("{scheme}://{target}")
            };
            // The target is not shown, as it may hold a password.
            let url = url.parse::<Address>().map_err(|_| {
                format!(
                    "target {} of a group is not HOST:PORT or a URL without user and password",
                    at + 1
                )
            })?;
            members.insert(url, Listed { name: name.map(str::to_owned), has_login });
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
        let found = discovery.read(&settings, &Fetched::new());
        let members: Vec<(&str, Option<&str>)> =
            found.members.iter().map(|(url, it)| (url.as_str(), it.name.as_deref())).collect();
        let all = [
            ("http://a:10984", Some("east")),
            ("http://b:10985", Some("east")),
            ("http://d:1/below", None),
            ("http://s:1", None),
            ("https://c:443", Some("c")),
        ];
        assert_eq!(members, all);
        assert_eq!(found.problems, [""; 0]);
        // A list that cannot be read keeps its last content, with the reason; a deleted list is gone.
        for (broken, why) in [
            ("- targets: a\n", "has no list"),
            ("{}", "not a list"),
            ("- targets: ['http://u:p@a']\n", "not HOST:PORT"),
            ("[", "one.yml"),
        ] {
            fs::write(path("one.yml"), broken).unwrap();
            let again = discovery.read(&settings, &Fetched::new());
            assert_eq!(again.members, found.members, "{broken}");
            assert!(again.problems[0].contains(why), "{:?}", again.problems);
            assert!(!again.problems[0].contains("u:p"), "{:?}", again.problems);
        }
        fs::remove_file(path("one.yml")).unwrap();
        let less = discovery.read(&settings, &Fetched::new());
        assert_eq!((less.members.len(), less.problems.len()), (3, 1), "no file matches");
        fs::remove_file(path("two.json")).unwrap();
        let gone = discovery.read(&settings, &Fetched::new());
        assert_eq!((gone.members.len(), gone.problems.len()), (3, 2));
    }

    #[test]
    fn login_is_sent_only_to_members_from_settings_or_https_lists() {
        let url = |text: &str| -> Address { text.parse().unwrap() };
        let list_url = |text: &str| ListUrl::read(text).unwrap();
        let [http, https] = ["http://sd/list", "https://sd/list?token=q9zsecret"].map(list_url);
        let settings = FleetSettings {
            urls: vec![url("http://given:1")],
            http_sd: vec![http.clone(), https.clone()],
            ..FleetSettings::default()
        };
        let list = |hosts: &str| Ok(format!(r#"[{{"targets": [{hosts}]}}]"#).into_bytes());
        let mut fetched = Fetched::from([
            (http.clone(), list(r#""evil:1", "both:1", "given:1""#)),
            (https.clone(), list(r#""both:1", "safe:1""#)),
            (list_url("https://removed"), list(r#""removed:1""#)),
        ]);
        let mut discovery = Discovery::default();
        let found = discovery.read(&settings, &fetched);
        let logins = found.members.iter().map(|(url, it)| (url.as_str(), it.has_login));
        let expected = [("both", true), ("evil", false), ("given", true), ("safe", true)];
        let expected = expected.map(|(host, login)| (format!("http://{host}:1"), login));
        assert!(logins.eq(expected.iter().map(|(url, login)| (url.as_str(), *login))));
        fetched.insert(https, Err("it answered 500".to_owned()));
        fetched.insert(http, Ok(b"<html>".to_vec()));
        let again = discovery.read(&settings, &fetched);
        assert_eq!((again.members, again.problems.len()), (found.members, 2));
        assert!(!again.problems.join(" ").contains("q9zsecret"), "{:?}", again.problems);
    }
}
