//! The ways to run recliner under `deploy/`, each held against whatever can judge it here:
//! recliner's own reading of flags and configuration, the rules themselves, `systemd-analyze`.
//! There is no Docker and no Kubernetes to run them on.

mod prometheus;

use crate::monitoring::tools::{self, SYSTEMD_ANALYZE};
use std::{fs, path::Path, process::Command};
use yaml_serde::{Deserializer, Value};

/// A configuration where none is shipped.
const ANY: &str =
    "couchdb: {urls: [http://couch-a:5984], username: admin, password_file: password}\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// The documents of a YAML file.
fn documents(path: &str) -> Vec<Value> {
    let text = read(path);
    let documents = Deserializer::from_str(&text).map(|document| {
        serde::Deserialize::deserialize(document).unwrap_or_else(|why| panic!("{path}: {why}"))
    });
    documents.collect()
}

/// The texts of a list, where it is one.
fn texts(list: &Value) -> Vec<String> {
    let list = list.as_sequence().unwrap_or_else(|| panic!("it is a list: {list:?}"));
    list.iter().map(|text| text.as_str().expect("it is a text").to_owned()).collect()
}

/// Holds arguments of `recliner serve`, and the configuration they name, against recliner
/// itself. What systemd or Kubernetes would put in for a variable is put in here.
fn serves(whose: &str, arguments: &[String], configuration: Option<&str>) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("recliner.yml");
    let configuration = configuration.unwrap_or(ANY);
    fs::write(&file, configuration).expect("it can be written to");
    fs::write(folder.path().join("password"), "secret").expect("it can be written to");
    let (serve, arguments) = arguments.split_first().expect("there are arguments");
    assert_eq!(serve, "serve", "{whose}");
    let mut names_file = false;
    let given = arguments.iter().filter_map(|argument| {
        // The place of its storage is not part of what is checked.
        if argument.starts_with("--storage.path=") {
            return None;
        }
        if argument.starts_with("--config.file=") {
            names_file = true;
            return Some(format!("--config.file={}", file.display()));
        }
        Some(argument.replace("$(POD)", "couchdb-0").replace("$(NAMESPACE)", "default"))
    });
    let given: Vec<String> = given.collect();
    assert!(names_file, "{whose} names a configuration");
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    let output = command.env_clear().arg("check-config").args(given).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{whose}: {said}");
}

#[test]
fn the_image_starts_recliner_as_it_wants_to_be_started() {
    let text = read("deploy/docker/Dockerfile");
    let list = text.lines().find_map(|line| line.strip_prefix("CMD ")).expect("it has a command");
    let arguments: Vec<String> = serde_json::from_str(list).unwrap();
    serves("the Dockerfile", &arguments, None);
    // What the build reads of the repository reaches it.
    let reached = read("deploy/docker/Dockerfile.dockerignore");
    let copied = text.lines().filter_map(|line| line.strip_prefix("COPY "));
    let members = ["crates", "src", "benches", "examples", "tests"];
    let all = |name: &&str| copied.clone().any(|line| line == format!("{name} {name}"));
    assert_eq!(members.iter().filter(|name| !all(name)).count(), 0, "cargo reads {members:?}");
    for from in copied.filter(|line| !line.starts_with("--from")) {
        let sources = from.split(' ').rev().skip(1);
        for source in sources {
            assert!(root().join(source).exists(), "{source} is there to be copied");
            assert!(reached.lines().any(|line| line == format!("!{source}")), "{source}");
        }
    }
}

#[test]
fn compose_starts_recliner_with_the_files_it_mounts() {
    let [compose] = &*documents("deploy/compose/compose.yaml") else { panic!("one document") };
    let recliner = &compose["services"]["recliner"];
    let configuration = read("deploy/compose/recliner.yml");
    serves("compose.yaml", &texts(&recliner["command"]), Some(&configuration));
    for (name, service) in compose["services"].as_mapping().unwrap() {
        let Some(mounts) = service.get("volumes") else { continue };
        for mount in texts(mounts) {
            let from = mount.split(':').next().unwrap_or_default();
            if from.starts_with('.') {
                let from = root().join("deploy/compose").join(from);
                assert!(from.exists(), "{name:?} mounts {}", from.display());
            } else {
                assert!(compose["volumes"].get(from).is_some(), "{name:?} mounts {from}");
            }
        }
    }
}

#[test]
fn kubernetes_starts_recliner_with_the_files_it_mounts() {
    let mut given = 0;
    for (manifest, config) in [
        ("deploy/kubernetes/recliner.yaml", "deploy/kubernetes/recliner.yaml"),
        ("deploy/kubernetes/sidecar.yaml", "deploy/kubernetes/sidecar-config.yaml"),
    ] {
        let map = documents(config).into_iter().find_map(|it| {
            let text = it.get("data")?.get("recliner.yml")?;
            text.as_str().map(str::to_owned)
        });
        for document in documents(manifest) {
            let pod = document.get("spec").and_then(|spec| spec.get("template"));
            let Some(pod) = pod else { continue };
            for container in pod["spec"]["containers"].as_sequence().unwrap() {
                serves(manifest, &texts(&container["args"]), map.as_deref());
                given += 1;
            }
        }
    }
    assert_eq!(given, 2);
}

#[tokio::test]
async fn systemd_reads_the_unit_and_finds_it_hardened() {
    let unit = read("deploy/systemd/recliner.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let arguments: Vec<String> = start.split(' ').skip(1).map(str::to_owned).collect();
    serves("recliner.service", &arguments, None);
    if !tools::installed(&[SYSTEMD_ANALYZE]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("recliner.service");
    let built = unit.replace("/usr/local/bin/recliner", env!("CARGO_BIN_EXE_recliner"));
    fs::write(&path, built).unwrap();
    let path = path.display().to_string();
    let ran = tools::run(SYSTEMD_ANALYZE, &["verify", "--man=no", &path], "").await;
    assert!(ran.success, "{}", ran.said);
    // Exposure in tenths: 1.2 as it stands, of 9.6 without a line of hardening.
    let judged = ["security", "--offline=true", "--threshold=15", &path];
    let ran = tools::run(SYSTEMD_ANALYZE, &judged, "").await;
    assert!(ran.success, "{}", ran.said);
}
