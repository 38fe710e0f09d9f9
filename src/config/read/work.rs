//! `views`, `smoosh`, `follow`, `warmer`, `journal`: what runs beside the planner.

use super::{SECOND, channels, set};
use crate::{
    config::{section::Section, value},
    model::settings::work::{
        EnforceViews, Follow, Journal, Keep, Smoosh, SmooshMode, Views, Warmer,
    },
};
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

pub(super) fn views(section: &mut Section<'_, '_>) -> Views {
    let read = value::one_of(EnforceViews::ALL, EnforceViews::label);
    Views { enforce: section.value("enforce", read).unwrap_or_default() }
}

pub(super) fn smoosh(section: &mut Section<'_, '_>) -> Smoosh {
    let mut smoosh = Smoosh::default();
    let read = value::one_of(SmooshMode::ALL, SmooshMode::label);
    set(&mut smoosh.mode, section.value("mode", read));
    set(&mut smoosh.takeover, words(section, "takeover"));
    smoosh
}

pub(super) fn follow(section: &mut Section<'_, '_>) -> Follow {
    let mut follow = Follow::default();
    set(&mut follow.enabled, section.value("enabled", value::boolean));
    set(
        &mut follow.max_event_delay,
        section.value("max_event_delay", value::duration(MILLISECOND)),
    );
    set(
        &mut follow.max_write_delay,
        section.value("max_write_delay", value::duration(MILLISECOND)),
    );
    set(&mut follow.update_db, section.value("update_db", value::boolean));
    set(&mut follow.reread_after, section.value("reread_after", value::duration(Duration::ZERO)));
    follow
}

pub(super) fn warmer(section: &mut Section<'_, '_>) -> Warmer {
    let mut warmer = Warmer::default();
    set(&mut warmer.enabled, section.value("enabled", value::boolean));
    set(&mut warmer.batch_channels, section.value("batch_channels", value::integer(0..=10_000)));
    set(
        &mut warmer.incremental_channels,
        section.value("incremental_channels", value::integer(0..=10_000)),
    );
    set(
        &mut warmer.max_incremental_updates,
        section.value("max_incremental_updates", value::count),
    );
    // ken takes it, and does nothing by it.
    let _none = section.value("limit", value::count);
    set(&mut warmer.batch_size, section.value("batch_size", value::count));
    set(&mut warmer.delay, section.value("delay", value::duration(Duration::ZERO)));
    set(&mut warmer.prune_interval, section.value("prune_interval", value::duration(SECOND)));
    set(&mut warmer.grace, section.value("grace", value::duration(Duration::ZERO)));
    set(&mut warmer.ignore, channels::patterns(section, "ignore"));
    set(&mut warmer.languages, words(section, "languages"));
    warmer
}

pub(super) fn journal(section: &mut Section<'_, '_>) -> Journal {
    let mut journal = Journal::default();
    section.section("events", |section| keep(section, &mut journal.events));
    section.section("outcomes", |section| keep(section, &mut journal.outcomes));
    journal
}

fn keep(section: &mut Section<'_, '_>, keep: &mut Keep) {
    set(&mut keep.keep, section.value("keep", value::duration(SECOND)));
    let least = 1 << 20;
    set(
        &mut keep.max_size,
        section.value("max_size", |text| match value::bytes(text)? {
            size if size < least => Err(format!(
                "found {}, but 1MiB is the least that is allowed",
                crate::config::problem::quoted(text)
            )),
            size => Ok(size),
        }),
    );
}

fn words(section: &mut Section<'_, '_>, key: &'static str) -> Option<Vec<String>> {
    Some(section.values(key, value::text)?.into_iter().map(|found| found.value).collect())
}
