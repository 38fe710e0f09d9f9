//! Parses a rule of `[compactions]` like `couch_compaction_daemon:config_record/2`: a list of
//! pairs, in which a single unknown or malformed pair makes the whole rule invalid.

use crate::{
    DaemonRule, Opening,
    clock_time::{HourMinute, daily, hour_minute},
    number::integer,
    term::{self, Term},
};

/// Reads a rule, or returns why it cannot be read.
pub(crate) fn parse(database: &str, text: &str) -> Result<DaemonRule, String> {
    let pairs = match term::parse(text).map_err(|error| error.to_string())? {
        Term::List(pairs) => pairs,
        // In Erlang an empty string is an empty list.
        Term::Text(text) if text.is_empty() => Vec::new(),
        Term::Atom(_) | Term::Text(_) | Term::Integer(_) | Term::Float(_) | Term::Tuple(_) => {
            return Err("it is not a list".to_owned());
        }
    };
    let mut rule = DaemonRule { database: database.to_owned(), ..DaemonRule::default() };
    let (mut from, mut to) = (None, None);
    for pair in pairs {
        let Term::Tuple(parts) = pair else {
            return Err("it contains something other than pairs".to_owned());
        };
        let [Term::Atom(key), value] = parts.as_slice() else {
            return Err("it contains something other than pairs of a name and a value".to_owned());
        };
        match key.as_str() {
            "db_fragmentation" => rule.db_fragmentation = Some(percent(key, value)?),
            "view_fragmentation" => rule.view_fragmentation = Some(percent(key, value)?),
            "from" => from = Some(time(key, value)?),
            "to" => to = Some(time(key, value)?),
            "strict_window" => rule.strict_window = truth(key, value)?,
            "parallel_view_compaction" => rule.parallel_view_compaction = truth(key, value)?,
            _ => return Err(format!("{key} is not one of its parameters")),
        }
    }
    rule.opens = match (from, to) {
        (Some(from), Some(to)) => daily(from, to),
        (None, None) => Opening::Always,
        _ => return Err("from and to must be given together".to_owned()),
    };
    Ok(rule)
}

/// Reads a whole percentage, `"70%"` or `"70"`.
fn percent(key: &str, value: &Term) -> Result<u32, String> {
    let read = match value {
        Term::Text(text) => {
            let mut parts = text.split('%').filter(|part| !part.is_empty());
            match (parts.next(), parts.next()) {
                (Some(part), None) => integer(part),
                _ => None,
            }
        }
        Term::Atom(_) | Term::Integer(_) | Term::Float(_) | Term::Tuple(_) | Term::List(_) => None,
    };
    read.map(|percent| u32::try_from(percent.max(0)).unwrap_or(u32::MAX))
        .ok_or_else(|| format!("{key} must be a whole percentage, such as \"70%\""))
}

fn time(key: &str, value: &Term) -> Result<HourMinute, String> {
    let read = match value {
        Term::Text(text) => hour_minute(text),
        Term::Atom(_) | Term::Integer(_) | Term::Float(_) | Term::Tuple(_) | Term::List(_) => None,
    };
    read.ok_or_else(|| format!("{key} must be a time such as \"20:00\""))
}

fn truth(key: &str, value: &Term) -> Result<bool, String> {
    let word = |word: &str| *value == Term::Atom(word.to_owned());
    if word("true") || word("false") {
        return Ok(word("true"));
    }
    Err(format!("{key} must be true or false, without quotes"))
}
