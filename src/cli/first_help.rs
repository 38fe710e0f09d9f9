//! The help of `recliner` itself, in one screen: how to begin, the eleven commands that people need first, and the
//! names of all others.

use super::table::paragraph;
use clap::Command;

/// Commands that are described, in the order in which people meet them.
const FIRST: [&str; 11] = [
    "demo",
    "scan",
    "tidy",
    "serve",
    "databases",
    "explain",
    "advise",
    "compact",
    "history",
    "suspend",
    "top",
];

/// Columns of the text.
const WIDTH: u16 = 80;

pub(super) fn of(command: &Command, program: &str) -> String {
    let begin = [
        ("demo", "try it on a simulated cluster"),
        ("scan --couchdb.url http://couch-a:5984", "read your cluster once"),
        ("serve --couchdb.url http://couch-a:5984", "keep watching it"),
    ];
    let begin = begin.map(|(words, what)| format!("  {program} {words:<40}{what}\n")).concat();
    let described = |name: &&str| {
        let command = command.find_subcommand(name)?;
        Some(format!("  {name:<11}{}\n", command.get_about()?))
    };
    let first: String = FIRST.iter().filter_map(described).collect();
    let others = command.get_subcommands().map(Command::get_name);
    let others: Vec<&str> = others.filter(|name| !FIRST.contains(name)).collect();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    [
        paragraph(&format!("{about}."), WIDTH),
        format!("\nBegin:\n{begin}\nCommands:\n{first}\n"),
        paragraph(&format!("More: {}", others.join(" ")), WIDTH),
        format!("\n{program} help COMMAND explains a command; --version prints the version.\n"),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_one_screen_and_names_every_command() {
        let command = super::super::command_line();
        let help = of(&command, "recliner");
        assert!(help.lines().count() <= 40, "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= WIDTH.into()), "{help}");
        for name in command.get_subcommands().map(Command::get_name) {
            let mut words = help.split([' ', ',', '\n']);
            assert!(words.any(|word| word == name), "{name} is not in {help}");
        }
        for name in FIRST {
            assert!(command.find_subcommand(name).is_some() || name == "demo", "{name}");
        }
    }
}
