//! Tests of flags that override files, of logins, and of settings that only flags change.

use super::*;
use crate::{
    log::{LogFormat, LogLevel},
    model::{
        channel::Mode,
        settings::{
            ServedNodes,
            service::{LogSettings, WebSettings},
        },
    },
};
use couchdb_client::Login;

fn messages(flags: &Flags, text: &str) -> Vec<String> {
    match load_text(flags, text) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.all().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn mode_flag_overrides_mode_in_file() {
    for (flag, file, mode) in [
        (None, "", Mode::Advise),
        (None, "mode: enforce", Mode::Enforce),
        (Some("advise"), "mode: enforce", Mode::Advise),
        (Some("enforce"), "mode: advise", Mode::Enforce),
        (Some("enforce"), "", Mode::Enforce),
    ] {
        let flags = Flags { mode: flag.map(str::to_owned), ..flags() };
        assert_eq!(load_text(&flags, file).unwrap().settings.mode, mode, "{flag:?} {file:?}");
    }
}

#[test]
fn explicit_flags_override_the_file() {
    let text = "couchdb: {urls: [http://file:5984]}\nnodes: [couchdb@file]\n\
                files: {data_dir: /file, view_index_dir: /file/views}\n";
    let flags = Flags {
        couchdb_urls: vec!["http://a:5984".to_owned(), "https://b".to_owned()],
        data_dir: Some(PathBuf::from("flag")),
        nodes: vec!["couchdb@flag".to_owned()],
        storage_path: Some(PathBuf::from("state")),
        web_listen_address: Some(":9999".to_owned()),
        web_config_file: Some(PathBuf::from("web.yml")),
        web_enable_lifecycle: true,
        web_enable_admin_api: true,
        web_enable_mcp: true,
        web_allowed_hosts: vec!["recliner.example.com".to_owned()],
        log_level: Some("debug".to_owned()),
        log_format: Some("json".to_owned()),
        ..Flags::default()
    };
    let found = load_text(&flags, text).unwrap().settings;
    let urls: Vec<String> = found.couchdb.urls.iter().map(ToString::to_string).collect();
    assert_eq!(urls, ["http://a:5984", "https://b:443"]);
    assert_eq!(found.files.data_dir, Some(PathBuf::from("flag")));
    assert_eq!(found.files.view_index_dir, Some(PathBuf::from("/file/views")));
    assert_eq!(found.nodes, ServedNodes::Named(["couchdb@flag".to_owned()].into()));
    assert_eq!(found.storage_path, PathBuf::from("state"));
    assert_eq!(
        found.web,
        WebSettings {
            listen_address: "[::]:9999".parse().unwrap(),
            config_file: Some(PathBuf::from("web.yml")),
            enable_lifecycle: true,
            enable_admin_api: true,
            enable_mcp: true,
            allowed_hosts: vec!["recliner.example.com".to_owned()],
            admin_socket: Some(PathBuf::from("state/admin.sock")),
        }
    );
    assert_eq!(found.log, LogSettings { level: LogLevel::Debug, format: LogFormat::Json });
}

#[test]
fn reports_invalid_flags_together_with_problems_in_file() {
    let flags = Flags {
        couchdb_urls: vec!["http://adm:hunter2@a:5984".to_owned()],
        mode: Some("enforced".to_owned()),
        view_index_dir: Some(PathBuf::from("views")),
        nodes: vec!["b".to_owned()],
        web_listen_address: Some("here".to_owned()),
        log_level: Some("loud".to_owned()),
        log_format: Some("xml".to_owned()),
        ..Flags::default()
    };
    assert_eq!(
        messages(&flags, "poll: soon"),
        [
            "--couchdb.url: found a URL with a user or a password in it; write it without them, such as http://couch-a:5984, and set COUCHDB_USER and COUCHDB_PASSWORD",
            "--log.format: found \"xml\", expected logfmt or json",
            "--log.level: found \"loud\", expected error, warn, info, debug or trace",
            "--mode: found \"enforced\", expected advise or enforce; did you mean enforce?",
            "--node: found \"b\", expected the name of a node as CouchDB writes it, such as couchdb@couch-a",
            "--view-index-dir: the view directory is given without the database directory; also give --data-dir or files.data_dir",
            "--web.listen-address: found \"here\", expected an address and a port, such as 127.0.0.1:10984 or :10984",
            "x.yml:1:7: poll: found \"soon\", expected a duration, such as 500ms, 30s, 5m or 1h 30m",
        ]
    );
}

#[test]
fn refuses_to_start_without_couchdb() {
    assert_eq!(
        load(&Flags::default(), None).unwrap_err().to_string(),
        "--couchdb.url: no CouchDB is named; give this flag, or couchdb.urls in the configuration file, such as http://127.0.0.1:5984"
    );
    let files = Flags { data_dir: Some(PathBuf::from("/data")), ..Flags::default() };
    assert_eq!(load(&files, None).unwrap().settings.couchdb.urls, []);
}

#[test]
fn login_comes_from_flags_then_environment_then_file() {
    let file = "couchdb: {username: file, password_file: secret}\n";
    let in_env = |user: Option<&str>, password: Option<&str>| Flags {
        env_user: user.map(str::to_owned),
        env_password: password.map(Into::into),
        ..flags()
    };
    let by_flag = Flags {
        couchdb_username: Some("flag".to_owned()),
        couchdb_password_file: Some(PathBuf::from("flagged")),
        ..in_env(Some("env"), Some("hunter2"))
    };
    for (flags, text, login) in [
        (in_env(None, None), "", Login::None),
        (in_env(Some(""), Some("")), "", Login::None),
        (in_env(None, None), file, Login::file("file", "secret").unwrap()),
        (in_env(Some("env"), Some("hunter2")), file, Login::password("env", "hunter2").unwrap()),
        (in_env(None, Some("hunter2")), file, Login::password("file", "hunter2").unwrap()),
        (by_flag, file, Login::file("flag", "flagged").unwrap()),
    ] {
        let found = load_text(&flags, text).unwrap().settings.couchdb.login;
        assert!(found == login, "{found:?} is not {login:?}");
    }
    assert_eq!(
        messages(&in_env(Some("env"), None), ""),
        [
            "COUCHDB_USER: a user is given without a password; give --couchdb.password-file, couchdb.password_file or COUCHDB_PASSWORD"
        ]
    );
    assert_eq!(
        messages(&in_env(None, Some("hunter2")), ""),
        [
            "COUCHDB_PASSWORD: a password is given without a user; give --couchdb.username, couchdb.username or COUCHDB_USER"
        ]
    );
    assert_eq!(
        messages(&in_env(Some("a:b"), Some("hunter2")), ""),
        [
            "COUCHDB_USER: found \"a:b\", but a user name must not contain a colon or a control character, because HTTP logins cannot carry them"
        ]
    );
}

#[test]
fn refuses_admin_api_on_public_address_without_users() {
    let flags = |mode: &str, address: &str| Flags {
        mode: Some(mode.to_owned()),
        web_listen_address: Some(address.to_owned()),
        web_enable_admin_api: true,
        ..flags()
    };
    assert_eq!(messages(&flags("enforce", "localhost:10984"), ""), [""; 0]);
    assert_eq!(messages(&flags("advise", ":10984"), ""), [""; 0]);
    let users = Flags { web_config_file: Some(PathBuf::from("web.yml")), ..flags("enforce", ":1") };
    assert_eq!(messages(&users, ""), [""; 0]);
    assert_eq!(
        messages(&flags("enforce", ":10984"), ""),
        [
            "--web.enable-admin-api: anyone who can reach [::]:10984 could start compactions; listen on 127.0.0.1, define users in --web.config.file, or omit this flag or --mode=enforce"
        ]
    );
}

#[test]
fn admin_socket_defaults_to_the_storage_path() {
    for (given, storage, expected) in [
        (None, None, Some("data/admin.sock")),
        (None, Some("/var/lib/recliner"), Some("/var/lib/recliner/admin.sock")),
        (Some("/run/recliner/admin.sock"), None, Some("/run/recliner/admin.sock")),
        (Some("none"), None, None),
        (Some(""), None, None),
    ] {
        let flags = Flags {
            web_admin_socket: given.map(PathBuf::from),
            storage_path: storage.map(PathBuf::from),
            ..flags()
        };
        let found = load_text(&flags, "").unwrap().settings.web.admin_socket;
        assert_eq!(found, expected.map(PathBuf::from), "{given:?} {storage:?}");
    }
    let long = Flags { storage_path: Some(PathBuf::from("x/".repeat(60))), ..flags() };
    let problems = messages(&long, "");
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.starts_with("--web.admin-socket: x/x/"), "{problem}");
    assert!(problem.contains("130 bytes long"), "{problem}");
    let none = Flags { web_admin_socket: Some(PathBuf::from("none")), ..long };
    assert_eq!(messages(&none, ""), [""; 0]);
}

#[test]
fn refuses_files_that_are_not_utf8_text() {
    let load = |bytes: &[u8]| {
        load(&flags(), Some(File { name: Path::new("x.yml"), bytes }))
            .map_err(|why| why.to_string())
    };
    assert_eq!(
        load(b"poll: 5s\nmode: \xff\n").unwrap_err(),
        "x.yml: not UTF-8 text: line 2 has an invalid byte; save the file as UTF-8"
    );
    assert_eq!(
        load(&vec![b'#'; MAX_FILE + 1]).unwrap_err(),
        "x.yml: longer than 1 MiB, the maximum for a configuration"
    );
    assert!(load(&vec![b'#'; MAX_FILE]).is_ok());
    assert_eq!(load("\u{feff}poll: 9s".as_bytes()).unwrap().settings.poll.as_secs(), 9);
    let message = read_file(&data().join("nowhere.yml"), "--config.file").unwrap_err().to_string();
    assert!(message.contains("cannot read the configuration named by "), "{message}");
}

#[test]
fn relative_paths_start_at_directory_of_file() {
    let text = b"couchdb: {tls: {ca_file: ca.pem}, username: a, password_file: /etc/p}\n";
    let file = File { name: Path::new("/etc/recliner/recliner.yml"), bytes: text };
    let found = load(&flags(), Some(file)).unwrap().settings.couchdb;
    assert_eq!(found.tls.ca_file, Some(PathBuf::from("/etc/recliner/ca.pem")));
    assert!(found.login == Login::file("a", "/etc/p").unwrap());
}
