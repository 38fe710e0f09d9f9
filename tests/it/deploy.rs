//! The ways to run recliner under `deploy/`, checked by every judge available here: recliner's own
//! parsing of flags and configuration, rules in this file, `systemd-analyze`. There is no Docker
//! and no Kubernetes to run them on.

mod prometheus;
mod sidecars;

use crate::monitoring::tools::{self, SYSTEMD_ANALYZE};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use yaml_serde::{Deserializer, Value};

/// A configuration for deployments that ship none.
const ANY: &str =
    "couchdb: {urls: [http://couch-a:5984], username: admin, password_file: password}\n";

/// A users file as an operator would write it.
const WEB: &str = "basic_auth_users:
  prometheus: $2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG
";

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

/// The only document of a YAML file.
fn document(path: &str) -> Value {
    let [document] = <[Value; 1]>::try_from(documents(path)).expect("it is one document");
    document
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_sequence().unwrap_or_else(|| panic!("it is a list: {list:?}"));
    list.iter().map(|text| text.as_str().expect("it is a text").to_owned()).collect()
}

/// Checks arguments of `recliner serve`, and the configuration they name, with recliner itself.
/// Variables that systemd or Kubernetes would expand are expanded here.
fn check_serve_arguments(whose: &str, arguments: &[String], configuration: Option<&str>) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let put = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).expect("the file is writable");
        file.display().to_string()
    };
    let file = put("recliner.yml", configuration.unwrap_or(ANY));
    let web = put("web.yml", WEB);
    put("password", "secret");
    let (serve, arguments) = arguments.split_first().expect("there are arguments");
    assert_eq!(serve, "serve", "{whose}");
    let mut names_file = false;
    let given = arguments.iter().filter_map(|argument| match argument.split_once('=') {
        // The location of the storage is not checked, and neither are the operator's own flags.
        Some(("--storage.path", _)) => None,
        None if argument == "$RECLINER_FLAGS" => None,
        Some(("--config.file", _)) => {
            names_file = true;
            Some(format!("--config.file={file}"))
        }
        Some(("--web.config.file", _)) => Some(format!("--web.config.file={web}")),
        _ => Some(argument.replace("$(POD)", "couchdb-0").replace("$(NAMESPACE)", "default")),
    });
    let given: Vec<String> = given.collect();
    assert!(names_file, "{whose} names a configuration");
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    let output =
        command.env_clear().arg("check-config").args(given).output().expect("the program runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{whose}: {stderr}");
}

/// The JSON list of texts on the line that begins with this word.
fn json_list_after(text: &str, word: &str) -> Vec<String> {
    let list = text.lines().find_map(|line| line.trim_start().strip_prefix(word));
    let list = list.unwrap_or_else(|| panic!("a line begins with {word}"));
    serde_json::from_str(&list[list.find('[').expect("it is a list")..]).expect("it is a JSON list")
}

#[test]
fn images_start_recliner_and_probe_its_health() {
    let text = read("deploy/docker/Dockerfile");
    let arguments = json_list_after(&text, "CMD ");
    check_serve_arguments("the Dockerfile", &arguments, None);
    let health = json_list_after(&text, "HEALTHCHECK ");
    let (program, asks) = health.split_first().expect("it runs something");
    assert_eq!(json_list_after(&text, "ENTRYPOINT "), [program.as_str()]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    let output = command.env_clear().args(asks).arg("--help").output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // The image that is built offline has the same commands.
    let script = read("deploy/docker/image");
    for part in [&arguments.join(" "), &health.join(" "), &format!("[\"{program}\"]")] {
        assert!(script.contains(part.as_str()), "deploy/docker/image has {part}");
    }
}

/// The Rust files below a folder, except tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it is readable") {
        let path = entry.expect("it is readable").path();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The Dockerfile's build context has everything that cargo compiles and embeds, and no tests.
#[test]
fn image_build_context_has_all_sources() {
    let ignored = read("deploy/docker/Dockerfile.dockerignore");
    let kept: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert!(!kept.contains(&"tests"));
    let folder = tempfile::tempdir().expect("a temporary directory");
    for name in &kept {
        let (from, to) = (root().join(name), folder.path().join(name));
        assert!(from.exists(), "{name} is there to be copied");
        fs::create_dir_all(to.parent().expect("it has a folder"))
            .expect("the directory is created");
        std::os::unix::fs::symlink(from, to).expect("it can be linked");
    }
    let mut cargo = Command::new(env!("CARGO"));
    let metadata = ["metadata", "--offline", "--locked", "--no-deps", "--format-version=1"];
    let output = cargo.args(metadata).current_dir(folder.path()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    let packages = metadata["packages"].as_array().expect("it has packages");
    let targets = packages.iter().flat_map(|it| it["targets"].as_array().into_iter().flatten());
    let targets: Vec<&str> = targets.filter_map(|it| it["src_path"].as_str()).collect();
    assert!(targets.iter().any(|target| target.ends_with("/build/main.rs")), "{targets:?}");
    for target in targets {
        assert!(Path::new(target).exists(), "cargo reads {target}");
    }
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).expect("it is readable");
        for embedded in text.split("include_str!(\"").skip(1) {
            let path = embedded.split('"').next().unwrap_or_default();
            let path = file.parent().expect("it has a folder").join(path);
            let path =
                path.canonicalize().unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            let path = path.strip_prefix(root()).expect("it is of the repository");
            assert!(kept.iter().any(|kept| path.starts_with(kept)), "{}", path.display());
        }
    }
    // The build script lists the book's pages.
    assert!(kept.contains(&"docs/src"), "{kept:?}");
}

#[test]
fn compose_mounts_the_files_recliner_needs() {
    let compose = document("deploy/compose/compose.yaml");
    let services = compose["services"].as_mapping().expect("it has services");
    let configuration = read("deploy/compose/recliner.yml");
    check_serve_arguments(
        "compose.yaml",
        &texts(&services["recliner"]["command"]),
        Some(&configuration),
    );
    // Without users, recliner rejects requests for host names that it does not know.
    assert!(!configuration.contains("web.config.file"));
    let arguments = texts(&services["recliner"]["command"]);
    assert!(arguments.iter().any(|it| it == "--web.allowed-host=recliner"), "{arguments:?}");
    for (name, service) in services {
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
    // Ports are published only on this machine.
    let ports = services.values().filter_map(|service| service.get("ports")).flat_map(texts);
    for port in ports {
        assert!(port.starts_with("127.0.0.1:"), "{port}");
    }
    // The hosts in the configurations of Prometheus and Alertmanager are services of this file.
    let alertmanager = document("deploy/alertmanager/alertmanager.yml");
    let prometheus = document("deploy/prometheus/prometheus.yml");
    let mail = alertmanager["global"]["smtp_smarthost"].as_str().expect("a mail server");
    let notified = &prometheus["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"];
    let scraped = &prometheus["scrape_configs"][0]["static_configs"][0]["targets"];
    for address in texts(notified).into_iter().chain(texts(scraped)).chain([mail.to_owned()]) {
        let host = address.split(':').next().unwrap_or_default();
        assert!(services.contains_key(host), "{address} is not one of its services");
    }
}

/// The specification of the pods of a workload; that of a `CronJob` is one level deeper.
fn pods(manifest: &Value) -> Option<&Value> {
    let spec = manifest.get("spec")?;
    let spec = spec.get("jobTemplate").map_or(spec, |job| &job["spec"]);
    Some(&spec.get("template")?["spec"])
}

/// The arguments of the container `recliner` in a manifest or patch.
fn container(path: &str) -> Vec<String> {
    let found = documents(path).into_iter().find_map(|it| {
        let containers = pods(&it)?["containers"].clone();
        let named = |it: &&Value| it["name"].as_str() == Some("recliner");
        let args = containers.as_sequence()?.iter().find(named)?["args"].clone();
        (!args.is_null()).then(|| texts(&args))
    });
    found.unwrap_or_else(|| panic!("{path} has a container with arguments"))
}

#[test]
fn kubernetes_mounts_users_and_configuration() {
    let base = container("deploy/kubernetes/base/statefulset.yaml");
    let sidecar = container("deploy/kubernetes/components/sidecar/sidecar.yaml");
    for (whose, arguments) in [
        ("base", &base),
        ("overlays/sidecars", &base),
        ("components/sidecar", &sidecar),
        ("components/access-log", &sidecar),
    ] {
        let folder = format!("deploy/kubernetes/{whose}");
        let configuration = read(&format!("{folder}/recliner.yml"));
        check_serve_arguments(whose, arguments, Some(&configuration));
        // If it listens beyond its own pod, it requires users.
        let has = |flag: &str| arguments.iter().any(|it| it.starts_with(flag));
        assert!(has("--web.listen-address=[::]:") && has("--web.config.file="), "{arguments:?}");
        // A changed file gets another name, which restarts the pods.
        let kustomization = document(&format!("{folder}/kustomization.yaml"));
        let generator = &kustomization["configMapGenerator"][0];
        assert_eq!(texts(&generator["files"]), ["recliner.yml"], "{whose}");
    }
}

/// CouchDB writes its log where the sidecar follows it, and the sidecar cannot change it. Otherwise the sidecar equals
/// the one without the log.
#[test]
fn kubernetes_mounts_the_log_that_the_sidecar_follows() {
    let folder = "deploy/kubernetes/components";
    let mut with_log = document(&format!("{folder}/access-log/recliner.yml"));
    let log = texts(&with_log["reads"]["logs"]).remove(0);
    let (directory, _) = log.rsplit_once('/').expect("a path");
    let comment = read(&format!("{folder}/access-log/kustomization.yaml"));
    assert!(comment.contains(&format!("{{log: {{writer: file, file: {log}}}}}")), "{log}");
    with_log.as_mapping_mut().expect("it has keys").remove("reads");
    assert_eq!(with_log, document(&format!("{folder}/sidecar/recliner.yml")));
    let patch = document(&format!("{folder}/access-log/access-log.yaml"));
    let pod = pods(&patch).expect("it has pods");
    for container in pod["containers"].as_sequence().expect("it is a list") {
        let mount = &container["volumeMounts"][0];
        assert_eq!(mount["mountPath"].as_str(), Some(directory), "{container:?}");
        assert_eq!(mount["name"], pod["volumes"][0]["name"], "{container:?}");
        let is_sidecar = container["name"].as_str() == Some("recliner");
        assert_eq!(mount["readOnly"].as_bool().unwrap_or_default(), is_sidecar, "{container:?}");
    }
}

/// The files of `deploy/kubernetes`.
fn manifests(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("it is readable") {
        let path = entry.expect("it is readable").path();
        if path.is_dir() {
            manifests(&path, found);
        } else {
            let path = path.strip_prefix(root()).expect("it is of the repository");
            found.push(path.to_str().expect("a plain path").to_owned());
        }
    }
}

#[test]
fn kubernetes_manifests_have_no_rights_and_no_passwords() {
    let mut found = Vec::new();
    manifests(&root().join("deploy/kubernetes"), &mut found);
    let mut checked = 0;
    for path in found.iter().filter(|path| path.ends_with(".yaml")) {
        for it in documents(path) {
            assert_ne!(it["kind"].as_str(), Some("Secret"), "{path}: operators make the secrets");
            assert!(it.get("secretGenerator").is_none(), "{path}: operators make the secrets");
            let pod = pods(&it);
            let Some(containers) = pod.and_then(|pod| pod["containers"].as_sequence()) else {
                continue;
            };
            for container in containers.iter().filter(|it| it.get("image").is_some()) {
                let context = &container["securityContext"];
                assert_eq!(context["readOnlyRootFilesystem"].as_bool(), Some(true), "{path}");
                assert_eq!(context["allowPrivilegeEscalation"].as_bool(), Some(false), "{path}");
                assert_eq!(texts(&context["capabilities"]["drop"]), ["ALL"], "{path}");
                let pod = pod.and_then(|pod| pod.get("securityContext"));
                let non_root = [Some(context), pod].into_iter().flatten();
                let mut non_root = non_root.filter_map(|it| it.get("runAsNonRoot")?.as_bool());
                assert_eq!(non_root.next(), Some(true), "{path}");
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 5);
}

/// The job's flags are understood: without a server at the address, it only fails to connect. Its directory is the
/// mount point of CouchDB's volume.
#[test]
fn kubernetes_tidy_job_uses_only_known_flags() {
    let manifest = "deploy/kubernetes/overlays/tidy/cronjob.yaml";
    let arguments = container(manifest);
    assert_eq!(arguments.first().map(String::as_str), Some("tidy"));
    assert!(arguments.iter().any(|it| it == "--yes"), "{arguments:?}");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let password = folder.path().join("password");
    fs::write(&password, "secret").expect("the file is writable");
    let mounts =
        pods(&document(manifest)).expect("it has pods")["containers"][0]["volumeMounts"].clone();
    let mounts = mounts.as_sequence().expect("it is a list").iter();
    let mounts: Vec<&str> = mounts.filter_map(|it| it["mountPath"].as_str()).collect();
    let given = arguments.iter().map(|argument| match argument.split_once('=') {
        Some((flag @ "--couchdb.url", _)) => format!("{flag}=http://127.0.0.1:1"),
        Some((flag @ "--couchdb.password-file", path)) => {
            assert!(mounts.iter().any(|mount| path.starts_with(mount)), "{path}");
            format!("{flag}={}", password.display())
        }
        Some((flag @ "--data-dir", path)) => {
            assert!(mounts.contains(&path), "{path}");
            format!("{flag}={}", folder.path().display())
        }
        _ => argument.clone(),
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    let output = command.env_clear().args(given).output().expect("the program runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("127.0.0.1:1"), "{stderr}");
}

/// The flags of the job and of the timer's unit are understood: without a server at the address, the command only fails
/// to connect.
#[test]
fn report_jobs_use_only_known_flags() {
    let of_job = container("deploy/kubernetes/components/report/cronjob.yaml");
    let unit = read("deploy/systemd/recliner-report.service");
    let line = unit.lines().find_map(|line| line.split_once("exec /usr/bin/recliner "));
    let of_unit = line.and_then(|(_, arguments)| arguments.split_once(" > "));
    let of_unit = of_unit.expect("it runs recliner").0.split(' ').map(ToOwned::to_owned).collect();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let password = folder.path().join("password");
    fs::write(&password, "secret").expect("the file is writable");
    for arguments in [of_job, of_unit] {
        assert_eq!(arguments.first().map(String::as_str), Some("report"));
        let given = arguments.iter().filter(|it| !it.starts_with("--recliner.url="));
        let given = given.map(|argument| match argument.split_once('=') {
            Some((flag @ "--recliner.password-file", _)) => {
                format!("{flag}={}", password.display())
            }
            _ => argument.clone(),
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
        let command = command.env_clear().args(given).arg("--recliner.url=http://127.0.0.1:1");
        let output = command.output().expect("the program runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("127.0.0.1:1"), "{stderr}");
    }
}

#[test]
fn central_process_is_configured_with_all_nodes_and_sidecars() {
    let central = document("deploy/kubernetes/overlays/sidecars/recliner.yml");
    let sidecar = document("deploy/kubernetes/components/sidecar/recliner.yml");
    assert!(central.get("nodes").is_none(), "it serves every node");
    assert_eq!(central["cluster_targets"].as_bool(), Some(true));
    assert_eq!(sidecar["cluster_targets"].as_bool(), Some(false));
    assert!(sidecar.get("couchdb").is_none(), "a sidecar has no login");
    let hosts = |urls: &Value, port: &str| -> BTreeSet<String> {
        let host = |url: String| url.strip_suffix(port).map(str::to_owned);
        texts(urls).into_iter().map(|url| host(url).expect("the URL has this port")).collect()
    };
    let peers = hosts(&central["peers"], ":10984");
    assert_eq!(peers, hosts(&central["couchdb"]["urls"], ":5984"));
    assert!(peers.len() > 1);
    let arguments = container("deploy/kubernetes/components/sidecar/sidecar.yaml");
    assert!(arguments.iter().any(|it| it.starts_with("--node=couchdb@$(POD).")), "{arguments:?}");
}

/// Tests the configuration as the package installs it, and with the settings that its comments
/// offer.
#[test]
fn packaged_configuration_is_valid_with_its_commented_settings() {
    let unit = read("deploy/systemd/recliner.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let arguments: Vec<String> = start.split(' ').skip(1).map(str::to_owned).collect();
    let shipped = read("deploy/debian/recliner.yml");
    let login = "couchdb:\n  username: admin\n  password_file: password\n";
    let login = |text: &str| text.replace("couchdb:\n", login);
    check_serve_arguments("the package", &arguments, Some(&login(&shipped)));
    let offered = |line: &&str| {
        let word = line.strip_prefix("# ").and_then(|line| line.split_once(": "));
        word.is_some_and(|(word, _)| word.chars().all(|it| it.is_ascii_lowercase() || it == '_'))
            && line.ends_with(['}', ']', '%'])
    };
    let all: Vec<&str> = shipped.lines().filter(offered).collect();
    assert!(all.len() > 2, "settings are offered: {all:?}");
    let taken = shipped.lines().map(|line| {
        let taken = if offered(&line) { line.trim_start_matches("# ") } else { line };
        format!("{taken}\n")
    });
    check_serve_arguments(
        "the package's comments",
        &arguments,
        Some(&login(&taken.collect::<String>())),
    );
    let flags = read("deploy/debian/default");
    let flags = flags.lines().find(|line| line.contains("--")).expect("flags are offered");
    let flags =
        flags.split(' ').filter(|word| word.starts_with("--")).map(|it| it.trim_matches(','));
    let arguments: Vec<String> = arguments.into_iter().chain(flags.map(str::to_owned)).collect();
    check_serve_arguments("the package's flags", &arguments, Some(&login(&shipped)));
    // The files that the package takes from the repository exist.
    let manifest = read("Cargo.toml");
    let assets = manifest.lines().filter_map(|line| line.trim().strip_prefix("[\""));
    let assets = assets.filter_map(|line| line.split('"').next());
    let own: Vec<&str> = assets.filter(|path| path.starts_with("deploy/")).collect();
    assert!(own.len() > 2 && own.iter().all(|path| root().join(path).exists()), "{own:?}");
}

#[tokio::test]
async fn systemd_accepts_the_hardened_unit() {
    let unit = read("deploy/systemd/recliner.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let arguments: Vec<String> = start.split(' ').skip(1).map(str::to_owned).collect();
    check_serve_arguments("recliner.service", &arguments, None);
    if !tools::installed(&[SYSTEMD_ANALYZE]) {
        return;
    }
    let built = unit.replace("/usr/bin/recliner", env!("CARGO_BIN_EXE_recliner"));
    for drop_in in [None, Some("deploy/systemd/sidecar.conf")] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("recliner.service");
        fs::write(&path, &built).unwrap();
        if let Some(drop_in) = drop_in {
            let folder = folder.path().join("recliner.service.d");
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("sidecar.conf"), read(drop_in)).unwrap();
        }
        let path = path.display().to_string();
        let ran = tools::run(SYSTEMD_ANALYZE, &["verify", "--man=no", &path], "").await;
        assert!(ran.success && ran.said.is_empty(), "{}", ran.said);
        // Exposure in tenths: 1.2 as shipped, 1.3 with one more group, 9.6 without hardening.
        let judged = ["security", "--offline=true", "--threshold=13", &path];
        let ran = tools::run(SYSTEMD_ANALYZE, &judged, "").await;
        assert!(ran.success, "{}", ran.said);
    }
}

/// The configuration in the drop-in's comment is a sidecar's.
#[test]
fn sidecar_unit_has_its_node_and_directory() {
    let text = read("deploy/systemd/sidecar.conf");
    let comment = |line: &str| line.strip_prefix("#     ").map(str::to_owned);
    let lines: Vec<String> = text.lines().filter_map(comment).collect();
    let (flags, rest): (Vec<&str>, Vec<&str>) =
        lines.iter().map(String::as_str).partition(|line| line.starts_with("RECLINER_FLAGS="));
    let keys =
        |line: &&str| line.starts_with(|c: char| c.is_ascii_lowercase()) && line.contains(": ");
    let configuration: String =
        rest.into_iter().filter(keys).map(|line| format!("{line}\n")).collect();
    let flags = flags[0].trim_start_matches("RECLINER_FLAGS=").split(' ').map(str::to_owned);
    let arguments: Vec<String> =
        ["serve", "--config.file=x"].map(str::to_owned).into_iter().chain(flags).collect();
    check_serve_arguments("sidecar.conf", &arguments, Some(&configuration));
    let sidecar: Value = yaml_serde::from_str(&configuration).expect("valid YAML");
    assert_eq!(sidecar["cluster_targets"].as_bool(), Some(false));
    let (nodes, directory) = (texts(&sidecar["nodes"]), sidecar["files"]["data_dir"].as_str());
    assert_eq!(nodes.len(), 1);
    let paths = text.lines().find_map(|line| line.strip_prefix("ReadOnlyPaths=")).unwrap();
    let names = |wanted| paths.split(' ').any(|path| path.strip_prefix('-') == wanted);
    assert!(names(directory), "{paths}");
    let logs = texts(&sidecar["reads"]["logs"]);
    assert!(logs.len() == 1 && names(logs[0].rsplit_once('/').map(|it| it.0)), "{paths}: {logs:?}");
}
