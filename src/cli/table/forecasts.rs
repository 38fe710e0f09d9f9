//! The forecasts of volumes, and how earlier ones did.

use super::{
    super::printable,
    layout::{Grid, bytes, paragraph},
};
use crate::serve::report::{Forecasts, FreeLine, RecordLine, VolumeForecastLine};

pub(in crate::cli) fn forecasts(answer: &Forecasts, width: u16) -> String {
    if answer.volumes.is_empty() {
        return "No forecast: the free space of every volume is unknown. Set headroom.volumes or files.data_dir.\n"
            .to_owned();
    }
    let mut text: String =
        answer.says.iter().map(|says| paragraph(&printable(says), width)).collect();
    let head = ["volume", "ahead", "free, low", "median", "high", "right", "error"];
    let mut table = Grid::new(head, &[2, 3, 4, 5, 6]);
    for volume in &answer.volumes {
        for (row, record) in volume.record.iter().enumerate() {
            let name = if row == 0 { printable(&volume.title()) } else { String::new() };
            let [low, median, high] = ahead(volume, record.days);
            let [right, error] = compared(record);
            table.push([name, format!("{}d", record.days), low, median, high, right, error]);
        }
    }
    text.push_str(&format!("\n{}", table.wrapped(width)));
    for volume in &answer.volumes {
        let Some(why) = &volume.withheld else { continue };
        let title = printable(&volume.title());
        let says = format!("There is no forecast for {title}: {}.", printable(why));
        text.push_str(&format!("\n{}", paragraph(&says, width)));
    }
    text
}

fn ahead(volume: &VolumeForecastLine, days: u32) -> [String; 3] {
    let line = volume.ahead.iter().find(|line| line.days == days);
    let unknown = || [const { String::new() }; 3];
    line.map_or_else(unknown, |FreeLine { low_bytes, median_bytes, high_bytes, .. }| {
        [low_bytes, median_bytes, high_bytes].map(|free| bytes(Some(*free)))
    })
}

fn compared(record: &RecordLine) -> [String; 2] {
    let RecordLine { compared, within, error_ratio, .. } = record;
    match error_ratio {
        Some(error) => [format!("{within} of {compared}"), format!("{:.0} %", error * 100.0)],
        None => ["none yet".to_owned(), String::new()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::report::FullDates;

    const GIB: u64 = 1 << 30;

    #[test]
    fn shows_forecast_and_accuracy_of_earlier_ones() {
        let line = |days: u32, gib| FreeLine {
            days,
            low_bytes: (gib - 10) * GIB,
            median_bytes: gib * GIB,
            high_bytes: (gib + 10) * GIB,
        };
        let record = |days, compared, within, error_ratio| RecordLine {
            days,
            compared,
            within,
            error_ratio,
        };
        let known = VolumeForecastLine {
            volume: "couchdb@a".to_owned(),
            nodes: vec!["couchdb@a".to_owned()],
            made_at: Some("2026-11-26T10:00:00Z".to_owned()),
            withheld: None,
            watched_seconds: Some(20 * 86_400),
            ahead: vec![line(1, 200), line(7, 150), line(30, 40)],
            full: FullDates::default(),
            record: vec![
                record(1, 19, 16, Some(0.11)),
                record(7, 13, 10, Some(0.06)),
                record(30, 0, 0, None),
            ],
            kept: Vec::new(),
        };
        let withheld = VolumeForecastLine {
            volume: "couchdb@b".to_owned(),
            nodes: ["couchdb@b", "couchdb@c", "couchdb@d"].map(str::to_owned).into(),
            made_at: None,
            withheld: Some("growth was measured for 5h; a forecast needs 2d".to_owned()),
            watched_seconds: None,
            ahead: Vec::new(),
            record: vec![record(1, 0, 0, None)],
            ..known.clone()
        };
        let volumes = vec![known, withheld];
        let says = volumes.iter().map(VolumeForecastLine::says).collect();
        insta::assert_snapshot!(forecasts(&Forecasts { says, volumes }, 100));
    }
}
