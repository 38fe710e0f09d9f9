//! Values of flags that a shell can complete.
//!
//! Owns only the words. The configuration and the service check the values and report invalid ones
//! together with all other problems.

use crate::{
    log::{LogFormat, LogLevel},
    model::{channel::Mode, records::JobResult},
    serve::report::DatabaseSort,
    store::journal::EventType,
    text::Label,
};
use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};
use std::ffi::OsStr;

/// A clap parser that accepts any text and suggests some values.
#[derive(Clone, Copy)]
pub(super) struct Suggested(fn() -> Vec<&'static str>);

/// Values of `--mode`.
pub(super) const MODES: Suggested = Suggested(Mode::labels);

/// Values of `--log.level`.
pub(super) const LOG_LEVELS: Suggested = Suggested(LogLevel::labels);

/// Values of `--log.format`.
pub(super) const LOG_FORMATS: Suggested = Suggested(LogFormat::labels);

/// Values of `--result`.
pub(super) const RESULTS: Suggested = Suggested(JobResult::labels);

/// Values of `--sort`.
pub(super) const DATABASE_SORTS: Suggested = Suggested(DatabaseSort::labels);

/// Values of `--type`.
pub(super) const EVENT_TYPES: Suggested = Suggested(EventType::labels);

impl TypedValueParser for Suggested {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}
