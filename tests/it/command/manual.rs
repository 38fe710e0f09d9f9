//! The program's own documentation: version, completions, manual pages, and the next step.

use super::{PASSWORD, Site, recliner, world};
use crate::monitoring::tools::{self, Tool};
use std::{collections::BTreeSet, fs, process::Stdio};
use tokio::process::Command;

const BASH: Tool = Tool { program: "bash", package: "bash" };
const ZSH: Tool = Tool { program: "zsh", package: "zsh" };
const FISH: Tool = Tool { program: "fish", package: "fish" };
const GROFF: Tool = Tool { program: "groff", package: "groff-base" };
pub(super) const SCRIPT: Tool = Tool { program: "script", package: "bsdutils" };

#[tokio::test]
async fn version_shows_the_source_revision() {
    let ran = recliner(&["--version"], &[]).await;
    let start = concat!("recliner ", env!("CARGO_PKG_VERSION"), " (");
    let rest = ran.out.strip_prefix(start).unwrap_or_else(|| panic!("{ran:?}"));
    assert!(rest.starts_with("revision ") || rest == "development build)\n", "{ran:?}");
    assert!(rest.ends_with(")\n"), "{ran:?}");
    assert_eq!(recliner(&["-V"], &[]).await.out, ran.out);
}

#[tokio::test]
async fn missing_command_prints_the_first_steps() {
    let ran = recliner(&[], &[]).await;
    assert_eq!((ran.code, ran.out.as_str()), (64, ""), "a script that forgot its command fails");
    for step in [" demo\n", " scan --couchdb.url http", " serve --couchdb.url http", " --help\n"] {
        assert!(ran.err.contains(step), "{step}: {}", ran.err);
    }
    let lines = ran.err.lines();
    assert!(
        lines.clone().count() < 15
            && lines.clone().all(|line| line.len() <= 80 || line.starts_with("  ")),
        "{}",
        ran.err
    );
}

/// The completion script for a shell, which that shell accepts if it is installed.
async fn completions(tool: Tool, check: &[&str]) -> String {
    let ran = recliner(&["completions", tool.program], &[]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", tool.program);
    if tools::installed(&[tool]) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("completions");
        fs::write(&path, &ran.out).expect("it is writable");
        let path = path.display().to_string();
        let judged = tools::run(tool, &[check, &[&path]].concat(), "").await;
        assert!(judged.success && judged.said.is_empty(), "{}: {}", tool.program, judged.said);
    }
    ran.out
}

#[tokio::test]
async fn every_shell_completes_commands_flags_and_values() {
    for (tool, check) in [(BASH, "-n"), (ZSH, "-n"), (FISH, "--no-execute")] {
        let script = completions(tool, &[check]).await;
        for word in [
            "explain",
            "restore-smoosh",
            "couchdb.url",
            "admin-socket",
            "enforce",
            "logfmt",
            "trace",
            "nothing_freed",
            "quarantined",
            "compaction-daemon",
            "dashboards",
            "kubernetes",
        ] {
            assert!(script.contains(word), "{word} for {}", tool.program);
        }
    }
    let ran = recliner(&["completions", "tcsh"], &[]).await;
    assert_eq!(ran.code, 64, "{ran:?}");
    assert!(ran.err.contains("bash"), "{ran:?}");
}

/// The completions that bash offers for the last of these words.
async fn offered_by_bash(words: &[&str]) -> BTreeSet<String> {
    let script = recliner(&["completions", "bash"], &[]).await.out;
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let (line, last) = (quoted.join(" "), words.len() - 1);
    let tail = format!(
        "\nCOMP_WORDS=({line}); COMP_CWORD={last}\n\
         _recliner recliner '{}' '{}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words[last],
        words[last - 1]
    );
    let ran = tools::run(BASH, &["-s"], &(script + &tail)).await;
    assert!(ran.success, "{}", ran.said);
    ran.said.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn bash_completes_what_can_come_next() {
    if !tools::installed(&[BASH]) {
        return;
    }
    let all = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(
        offered_by_bash(&["recliner", "re"]).await,
        all(&["reads", "release", "report", "rescan", "restore-smoosh", "resume"])
    );
    assert_eq!(
        offered_by_bash(&["recliner", "serve", "--mode", ""]).await,
        all(&["advise", "enforce"])
    );
    assert_eq!(offered_by_bash(&["recliner", "scan", "--format", "j"]).await, all(&["json"]));
    assert_eq!(offered_by_bash(&["recliner", "mixin", "d"]).await, all(&["dashboards"]));
}

#[tokio::test]
async fn every_command_has_a_manual_page() {
    let command = recliner::cli::command_line();
    let wanted: BTreeSet<String> = command
        .get_subcommands()
        .map(|command| format!("recliner-{}.1", command.get_name()))
        .chain(["recliner.1".to_owned()])
        .collect();
    assert!(wanted.len() > 15, "{wanted:?}");

    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().join("man1");
    let ran = recliner(&["man", "--out", out.to_str().unwrap()], &[]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    let files = fs::read_dir(&out).expect("it is readable");
    let names = files.map(|file| file.expect("it is readable").file_name().into_string().unwrap());
    assert_eq!(names.collect::<BTreeSet<_>>(), wanted);
    let own = fs::read_to_string(out.join("recliner.1")).unwrap();
    assert_eq!(recliner(&["man"], &[]).await.out, own);
    for part in ["EXIT STATUS", "\n64\n", "COUCHDB_PASSWORD", "recliner\\-explain(1)"] {
        let fonts = own.replace("\\fB", "").replace("\\fR", "");
        assert!(fonts.contains(part), "{part} in {own}");
    }
    if !tools::installed(&[GROFF]) {
        return;
    }
    for name in wanted {
        let path = out.join(&name).display().to_string();
        let ran = tools::run(GROFF, &["-man", "-Tutf8", "-ww", "-z", &path], "").await;
        assert!(ran.success && ran.said.is_empty(), "{name}: {}", ran.said);
    }
}

/// The output on a terminal.
async fn on_a_terminal(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("{} {}", env!("CARGO_BIN_EXE_recliner"), quoted.join(" "));
    let mut command = Command::new(SCRIPT.program);
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.env("COUCHDB_USER", "adm").env("COUCHDB_PASSWORD", PASSWORD);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(super::PATIENCE, command.output()).await;
    let output = output.expect("it ends in time").expect("it runs");
    String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n")
}

#[tokio::test]
async fn next_step_is_shown_only_on_a_terminal() {
    if !tools::installed(&[SCRIPT]) {
        return;
    }
    let site = Site::open(world()).await;
    let url = ["--couchdb.url", &site.urls[0]];
    for (command, step) in [
        (&["scan"][..], "recliner plan"),
        (&["plan"], "recliner explain"),
        (&["explain", "torn"], "recliner serve"),
        (&["check-config"], "recliner serve"),
    ] {
        let words = [command, &url].concat();
        let seen = on_a_terminal(&words).await;
        let last = seen.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("Next: ") && last.contains(step), "{command:?}: {seen}");
        assert!(last.chars().count() <= 80, "it fits: {last}");
        let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];
        let piped = recliner(&words, &login).await;
        assert!(!piped.out.contains("Next:") && !piped.err.contains("Next:"), "{piped:?}");
        if command[0] != "check-config" {
            let seen = on_a_terminal(&[&words[..], &["--format", "json"]].concat()).await;
            assert!(!seen.contains("Next:"), "{command:?}: {seen}");
        }
    }
}
