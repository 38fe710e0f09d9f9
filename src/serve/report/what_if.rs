//! What would happen under several rules, days ahead.

use crate::what_if::{Answer, Evidence, Outlook, SAMPLES, VolumeOutlook};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use wall_clock::Moment;

/// Outlooks under several rules, side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIf {
    /// When they begin: now.
    pub from: String,
    /// The seconds that they cover.
    pub seconds: u64,
    /// The seconds between two readings of a list.
    pub step_seconds: f64,
    /// Bytes of files whose growth is known.
    pub watched_bytes: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// How long files were watched, as a mean over their bytes.
    pub watched_seconds: u64,
    /// One for each set of rules: `nothing`, `smoosh`, `in force`, and `proposed` if it was asked for.
    pub outlooks: Vec<OutlookLine>,
}

/// What would happen under one set of rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutlookLine {
    /// The name of the rules.
    pub name: String,
    /// Mean of the bytes that compactions would free.
    pub mean_waste_bytes: u64,
    /// The most of them at a time.
    pub peak_waste_bytes: u64,
    /// Bytes written anew in a day.
    pub rewritten_bytes_per_day: f64,
    /// Bytes freed in all.
    pub freed_bytes: u64,
    /// Compactions in a day.
    pub compactions_per_day: f64,
    /// The longest time that a target waited in a queue; null if none did.
    pub longest_wait_seconds: Option<u64>,
    /// Targets that wait at the end.
    pub undone_targets: u64,
    /// What compacting them would free.
    pub undone_bytes: u64,
    /// Whether there were so many compactions that they were decided in batches.
    pub coarse: bool,
    /// The bytes that compactions would free, over time.
    pub waste_bytes: Vec<u64>,
    /// The bytes of all files, over time.
    pub file_bytes: Vec<u64>,
    /// The volumes whose free space is known.
    pub volumes: Vec<VolumeOutlookLine>,
}

/// The free space of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeOutlookLine {
    /// Its name.
    pub name: String,
    /// Free bytes over time.
    pub free_bytes: Vec<u64>,
    /// When it is full, if it goes on like this; null if that is more than ten years ahead.
    pub full_at: Option<String>,
}

impl WhatIf {
    /// How far to trust the outlooks, as a sentence.
    #[must_use]
    pub fn trust(&self) -> String {
        use crate::text::{duration, size};
        let known = size::format_size(self.watched_bytes);
        let all = size::format_size(self.file_bytes);
        let watched = duration::format_rounded(Duration::from_secs(self.watched_seconds));
        let short = if self.watched_seconds < self.seconds {
            "; a shorter time than they look ahead, so take them as a first guess"
        } else {
            ""
        };
        format!(
            "growth is known of {known} of {all} of files, watched for {watched} on average{short}"
        )
    }
}

impl From<&Answer> for WhatIf {
    fn from(answer: &Answer) -> Self {
        let Answer { from, span, evidence, outlooks } = answer;
        let Evidence { watched_bytes, file_bytes, watched } = *evidence;
        Self {
            from: from.rfc3339(),
            seconds: span.as_secs(),
            step_seconds: span.as_secs_f64() / (SAMPLES - 1) as f64,
            watched_bytes,
            file_bytes,
            watched_seconds: watched.as_secs(),
            outlooks: outlooks.iter().map(|outlook| OutlookLine::of(outlook, *span)).collect(),
        }
    }
}

impl OutlookLine {
    fn of(outlook: &Outlook, span: Duration) -> Self {
        let days = span.as_secs_f64() / 86_400.0;
        Self {
            name: outlook.name.clone(),
            mean_waste_bytes: outlook.mean_waste(),
            peak_waste_bytes: outlook.peak_waste(),
            rewritten_bytes_per_day: outlook.rewritten_bytes as f64 / days,
            freed_bytes: outlook.freed_bytes,
            compactions_per_day: outlook.compactions as f64 / days,
            longest_wait_seconds: outlook.longest_wait.map(|wait| wait.as_secs()),
            undone_targets: outlook.undone_targets,
            undone_bytes: outlook.undone_bytes,
            coarse: outlook.is_coarse,
            waste_bytes: outlook.samples.iter().map(|sample| sample.waste_bytes).collect(),
            file_bytes: outlook.samples.iter().map(|sample| sample.file_bytes).collect(),
            volumes: outlook.volumes.iter().map(VolumeOutlookLine::from).collect(),
        }
    }
}

impl From<&VolumeOutlook> for VolumeOutlookLine {
    fn from(volume: &VolumeOutlook) -> Self {
        Self {
            name: volume.name.to_string(),
            free_bytes: volume.free_bytes.clone(),
            full_at: volume.full_at.map(Moment::rfc3339),
        }
    }
}
