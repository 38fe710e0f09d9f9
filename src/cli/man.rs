//! `recliner man`: the manual pages, rendered from the same texts as `--help`.

use super::{
    CommandError, Exit,
    args::{Args, ManArgs},
    output::{print_own, write_files},
};
use crate::serve::http::ProcessInfo;
use clap::{Command, CommandFactory as _};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use std::io;

/// The section of the manual: user commands.
const SECTION: &str = "1";

/// Environment variables that commands read, and their meanings.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("COUCHDB_USER", "The CouchDB user to log in as, if --couchdb.username is not given."),
    ("COUCHDB_PASSWORD", "That user's password, if --couchdb.password-file is not given."),
    ("RECLINER_URL", "The URL of a running recliner, if --recliner.url is not given."),
    (
        "RECLINER_USER",
        "The user to log in as at a running recliner, if --recliner.username is not given.",
    ),
    ("RECLINER_PASSWORD", "That user's password, if --recliner.password-file is not given."),
];

pub(super) fn run(args: &ManArgs) -> Result<Exit, CommandError> {
    let rendered = |command: &Command| {
        page(command).map_err(|why| {
            CommandError::failed(format!("cannot render the page of {}: {why}", command.get_name()))
        })
    };
    // clap sets full names of commands, such as recliner-scan, when it builds them.
    let mut program = Args::command().disable_help_subcommand(true);
    program.build();
    let Some(directory) = &args.out else {
        print_own(&rendered(&program)?)?;
        return Ok(Exit::Done);
    };
    let mut files = vec![(file_name(&program), rendered(&program)?)];
    for command in program.get_subcommands() {
        files.push((file_name(command), rendered(command)?));
    }
    write_files(directory, &files)?;
    Ok(Exit::Done)
}

/// The command's full name as one word.
fn title(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn file_name(command: &Command) -> String {
    format!("{}.{SECTION}", title(command))
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let build = ProcessInfo::of_this_build(false);
    let version = build.version;
    let is_program = command.has_subcommands();
    let mut page = Vec::new();
    let man = Man::new(command.clone())
        .section(SECTION)
        .date(build.known_date().unwrap_or_default())
        .source(format!("recliner {version}"))
        .manual("recliner");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if is_program {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    definitions(&mut rest, "ENVIRONMENT", ENVIRONMENT.map(|(name, says)| (name.to_owned(), says)));
    let statuses = Exit::ALL.map(Exit::status);
    let statuses = statuses.map(|(code, meaning)| (code.to_string(), meaning));
    definitions(&mut rest, "EXIT STATUS", statuses);
    rest.control("SH", ["SEE ALSO"]);
    if is_program {
        rest.text([roman("The book: recliner serves it at http://127.0.0.1:10984/docs/.")]);
    } else {
        rest.text([bold("recliner"), roman(format!("({SECTION})"))]);
    }
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// A section with a list of words and their meanings.
fn definitions<const N: usize>(page: &mut Roff, heading: &str, words: [(String, &str); N]) {
    page.control("SH", [heading]);
    for (word, meaning) in words {
        page.control("TP", []);
        page.text([bold(word)]);
        page.text([roman(meaning)]);
    }
}
