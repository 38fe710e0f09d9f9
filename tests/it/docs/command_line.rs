//! Commands and flags: the book's tables, and every command line in the book.

use super::{
    BOOK, README,
    generated::{codes, hold, sentence, table},
    recliner, section, text,
};
use clap::{Arg, ArgAction, Command};
use std::collections::{BTreeMap, BTreeSet};

/// The commands that can be run, each as its words: `mixin rules` is one, `mixin` alone is not.
fn commands() -> Vec<(String, Command)> {
    let mut found = Vec::new();
    let mut open: Vec<(String, Command)> = vec![(String::new(), recliner::cli::command_line())];
    while let Some((words, command)) = open.pop() {
        let mut below: Vec<_> = command
            .get_subcommands()
            .filter(|below| below.get_name() != "help" && !below.is_hide_set())
            .map(|below| (format!("{words} {}", below.get_name()).trim().to_owned(), below.clone()))
            .collect();
        if below.is_empty() {
            found.push((words, command));
        }
        below.reverse();
        open.append(&mut below);
    }
    found
}

/// A flag's row in the table.
#[derive(Clone, PartialEq, Eq)]
struct FlagRow {
    flag: String,
    default: String,
    environment: String,
    meaning: String,
}

impl FlagRow {
    fn of(arg: &Arg) -> Option<Self> {
        let long = arg.get_long()?;
        let mut flag = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
        let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let value = arg.get_value_names().and_then(|names| names.first()).filter(|_| takes_value);
        let value = value.map(|value| format!(" {value}")).unwrap_or_default();
        flag.push_str(&format!("`--{long}{value}`"));
        let help = arg.get_long_help().or_else(|| arg.get_help()).expect("a flag has a help text");
        let (meaning, mut default, mut environment) = notes(&help.to_string());
        if let Some(value) = arg.get_default_values().first().filter(|_| takes_value) {
            default = value.to_string_lossy().into_owned();
        }
        if let Some(variable) = arg.get_env() {
            environment = variable.to_string_lossy().into_owned();
        }
        let mut meaning = sentence(&meaning);
        let words: Vec<String> = arg
            .get_possible_values()
            .iter()
            .filter(|value| takes_value && !value.is_hide_set())
            .map(|value| value.get_name().to_owned())
            .collect();
        if words.iter().any(|word| !meaning.to_lowercase().contains(word)) {
            meaning.push_str(&format!(" One of {}.", codes(words)));
        }
        let environment = if environment.is_empty() { environment } else { codes([environment]) };
        Some(Self { flag, default, environment, meaning })
    }
}

/// A help text without its notes in brackets, and the default and the environment variable from
/// these notes.
fn notes(help: &str) -> (String, String, String) {
    let (mut rest, mut default, mut environment) = (help.to_owned(), String::new(), String::new());
    while let Some((before, note)) = rest.trim_end().strip_suffix(']').and_then(|text| {
        text.rsplit_once('[').map(|(before, note)| (before.trim_end().to_owned(), note.to_owned()))
    }) {
        if let Some(value) = note.strip_prefix("default: ") {
            default = value.to_owned();
        } else if let Some((when, value)) =
            note.strip_prefix("default, ").and_then(|note| note.split_once(": "))
        {
            default = format!("{value}, {when}");
        } else if let Some(variable) = note.strip_prefix("or env: ") {
            environment = variable.to_owned();
        } else {
            break;
        }
        rest = before;
    }
    (rest, default, environment)
}

/// Each flag with the commands that have it with the same meaning.
fn flags() -> Vec<(Vec<String>, Vec<FlagRow>)> {
    let mut rows: Vec<(FlagRow, Vec<String>)> = Vec::new();
    for (words, command) in commands() {
        for row in command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(FlagRow::of)
        {
            match rows.iter_mut().find(|(known, _)| *known == row) {
                Some((_, commands)) => commands.push(words.clone()),
                None => rows.push((row, vec![words.clone()])),
            }
        }
    }
    let mut groups: Vec<(Vec<String>, Vec<FlagRow>)> = Vec::new();
    for (row, commands) in rows {
        match groups.iter_mut().find(|(known, _)| *known == commands) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((commands, vec![row])),
        }
    }
    groups
}

fn table_of_commands() -> String {
    let rows = commands().into_iter().map(|(words, command)| {
        let arguments = command.get_positionals().map(|arg| {
            let name = arg.get_value_names().and_then(|names| names.first());
            let name =
                name.map_or_else(|| arg.get_id().as_str(), |name| name.as_str()).to_uppercase();
            let more =
                if arg.get_num_args().is_some_and(|it| it.max_values() > 1) { "…" } else { "" };
            if arg.is_required_set() {
                format!(" {name}{more}")
            } else {
                format!(" [{name}{more}]")
            }
        });
        let line = format!("`recliner {words}{}`", arguments.collect::<String>());
        let about = command.get_long_about().or_else(|| command.get_about());
        [line, sentence(&about.map(ToString::to_string).unwrap_or_default())]
    });
    table(["command", "does"], rows)
}

fn tables_of_flags() -> String {
    let groups = flags().into_iter().map(|(commands, rows)| {
        let rows = rows.into_iter().map(|FlagRow { flag, default, environment, mut meaning }| {
            if !default.is_empty() {
                meaning.push_str(&format!(" Default: {default}."));
            }
            if !environment.is_empty() {
                meaning.push_str(&format!(" Or the environment variable {environment}."));
            }
            [flag, meaning]
        });
        format!("### {}\n\n{}\n", codes(commands), table(["flag", "meaning"], rows))
    });
    groups.collect()
}

#[test]
fn book_tables_list_all_commands_and_flags() {
    let tables = [("commands", table_of_commands()), ("flags", tables_of_flags())];
    hold("commands.md", &tables);
}

/// The flags in a help text, except `--help`.
fn flags_of(help: &str) -> BTreeSet<String> {
    help.lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'))
        .filter_map(|line| line.split([' ', ',']).find(|word| word.starts_with("--")))
        .filter(|flag| *flag != "--help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn book_lists_exactly_the_flags_of_help_texts() {
    let mut from_help: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (words, _) in commands() {
        let line: Vec<&str> = words.split(' ').chain(["--help"]).collect();
        from_help.insert(words.clone(), flags_of(&text(&recliner(&line).stdout)));
    }
    assert!(from_help.len() > 5, "there are commands: {from_help:?}");

    let mut in_book: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut of = BTreeSet::new();
    for line in section("Flags").lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            of = super::code(heading);
            for command in &of {
                in_book.entry(command.clone()).or_default();
            }
        }
        let flag = line.strip_prefix("| ").and_then(|row| row.split(" | ").next());
        let flag = flag.and_then(|cell| cell.split([' ', '`']).find(|word| word.starts_with("--")));
        for command in of.iter().filter(|_| flag.is_some_and(|flag| flag.len() > 2)) {
            in_book.entry(command.clone()).or_default().extend(flag.map(str::to_owned));
        }
    }
    from_help.retain(|_, flags| !flags.is_empty());
    for (command, flags) in &from_help {
        assert_eq!(in_book.get(command), Some(flags), "the flags of {command}");
    }
    assert_eq!(in_book.len(), from_help.len(), "commands with flags");
}

/// The problem of a line that runs recliner; `None` if it is correct or runs another program.
pub(crate) fn wrong_with(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "recliner" || word.ends_with("/recliner"));
    let at = at.or_else(|| {
        let at = words.iter().position(|word| *word == "--")?;
        words[..at].starts_with(&["cargo", "run"]).then_some(at)
    })?;
    let starts = ["sudo", "cargo", "run", "-u", "time"];
    if words[..at].iter().any(|word| !starts.contains(word) && !word.contains('=')) {
        return None;
    }
    let ends = ["|", ">", ">>", "2>", "&&", "&", ";", "#", "\\"];
    let mut command = recliner::cli::command_line();
    let mut is_command = true;
    for word in words[at + 1..].iter().take_while(|word| !ends.contains(word)) {
        if is_command && let Some(below) = command.find_subcommand(word).cloned() {
            command = below;
            continue;
        }
        if is_command && command.has_subcommands() && !word.starts_with('-') {
            if *word == "help" {
                return None;
            }
            return Some(format!("recliner has no command {word}: {line}"));
        }
        is_command = false;
        let Some(flag) = word.strip_prefix("--") else { continue };
        let flag = flag.split('=').next().unwrap_or_default();
        let is_known = ["help", "version"].contains(&flag)
            || command.get_arguments().any(|arg| arg.get_long() == Some(flag));
        if !is_known {
            return Some(format!("{} has no --{flag}: {line}", command.get_name()));
        }
    }
    None
}

/// The lines that a reader types, from a text's code blocks; continued lines are joined.
fn code_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let blocks = text.split("\n```").skip(1).step_by(2);
    for (language, block) in blocks.filter_map(|block| block.split_once('\n')) {
        let joined = block.replace("\\\n", " ");
        let typed = joined.lines().filter_map(|line| match language {
            "sh" => Some(line),
            "console" => line.strip_prefix("$ "),
            _ => None,
        });
        lines.extend(typed.map(str::to_owned));
    }
    lines
}

#[test]
fn every_command_line_in_the_book_is_valid() {
    let lines: Vec<String> = [README, *BOOK].into_iter().flat_map(code_lines).collect();
    let own = lines.iter().filter(|line| line.contains("recliner ")).count();
    assert!(own > 10, "command lines are found: {lines:#?}");
    let wrong: Vec<String> = lines.iter().filter_map(|line| wrong_with(line)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn book_names_only_existing_flags() {
    let known: BTreeSet<String> = commands()
        .iter()
        .flat_map(|(_, command)| command.get_arguments())
        .filter_map(|arg| arg.get_long().map(|long| format!("--{long}")))
        .chain(["--help", "--version"].map(str::to_owned))
        .collect();
    let mut unknown = BTreeSet::new();
    for text in [README, *BOOK] {
        let prose = text.split("\n```").step_by(2);
        for span in prose.flat_map(|prose| prose.split('`').skip(1).step_by(2)) {
            let flag = span.split(['=', ' ', '\n']).next().unwrap_or_default();
            if flag.starts_with("--") && flag.len() > 2 && !known.contains(flag) {
                unknown.insert(flag);
            }
        }
    }
    assert!(unknown.is_empty(), "flags that recliner does not have: {unknown:?}");
}
