//! Tests of the files under `tests/data/config`, whose last lines list the expected messages.

use super::*;
use proptest::prelude::*;

/// The messages that the comments at the end of a file expect.
fn expected(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("# says: ")).collect()
}

pub(super) fn files(folder: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(data().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(OsStr::new("yml")))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn invalid_files_report_all_problems_with_place() {
    let mut wrong = Vec::new();
    for (name, text) in files("bad") {
        let file = File { name: Path::new(&name), bytes: text.as_bytes() };
        let messages: Vec<String> = match load(&flags(), Some(file)) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.all().iter().map(ToString::to_string).collect(),
        };
        assert!(
            !messages.iter().any(|message| message.contains("hunter2")),
            "{name} shows a secret"
        );
        if messages.is_empty() || messages != expected(&text) {
            wrong.push(format!("{name}\n{}", messages.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn valid_files_report_their_findings() {
    let mut wrong = Vec::new();
    for (name, text) in files("noted") {
        let file = File { name: Path::new(&name), bytes: text.as_bytes() };
        let messages: Vec<String> = match load(&flags(), Some(file)) {
            Ok(loaded) => loaded.findings.iter().map(ToString::to_string).collect(),
            Err(problems) => vec![problems.to_string()],
        };
        if messages != expected(&text) {
            wrong.push(format!("{name}\n{}", messages.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn mutilated_examples_cause_no_panic() {
    let full = fs::read_to_string(data().join("full.yml")).unwrap();
    for end in (0..full.len()).step_by(7) {
        let cut = full.get(..end).unwrap();
        if let Err(problems) = load_text(&Flags::default(), cut) {
            assert!(!problems.to_string().is_empty());
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let file = File { name: Path::new("x.yml"), bytes: &bytes };
        let loaded = load(&flags(), Some(file));
        prop_assert!(loaded.is_ok() || !loaded.unwrap_err().all().is_empty());
    }

    #[test]
    fn yaml_like_text_causes_no_panic(
        text in "([-?:,\\[\\]{}#&*!|>'\"%@` \n\ta-z0-9~.]|- |: |\n  |<<|&a |\\*a )*",
    ) {
        let loaded = load_text(&flags(), &text);
        prop_assert!(loaded.is_ok() || !loaded.unwrap_err().all().is_empty());
    }

    #[test]
    fn arbitrary_values_cause_no_panic(
        key in prop::sample::select(vec![
            "poll", "nodes", "peers", "mode", "channels", "ignore", "couchdb", "scan",
            "headroom", "pressure", "journal", "warmer",
        ]),
        value in "[ -~]{0,40}",
    ) {
        let loaded = load_text(&flags(), &format!("{key}: {value}\n"));
        prop_assert!(loaded.is_ok() || !loaded.unwrap_err().all().is_empty());
    }
}
