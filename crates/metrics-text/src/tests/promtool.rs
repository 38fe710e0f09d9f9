//! Checks with Prometheus's own tool, if it is installed.

use super::super::{FamilyDescription, MetricType, TextFormat, Value, writer::FamilyHeader};
use super::*;
use std::{
    io::Write,
    process::{Command, Stdio},
};

/// One sample of every declared family, with the writer's own header.
fn every_family(format: TextFormat) -> String {
    let mut writer = Writer::new(format, Encoding::Identity);
    for FamilyDescription { name, metric_type, help, labels, .. } in f::ALL {
        let word = metric_type.label();
        writer.header(&FamilyHeader { name, help, text_type: word, openmetrics_type: word });
        let pairs: Vec<_> = labels.iter().map(|label| format!("{label}=\"x\"")).collect();
        let samples: &[(&str, &[&str])] = match metric_type {
            MetricType::Histogram => {
                &[("_bucket", &["le=\"+Inf\""]), ("_sum", &[]), ("_count", &[])]
            }
            MetricType::Gauge | MetricType::Counter => &[("", &[])],
        };
        for (suffix, more) in samples {
            let pairs: Vec<_> =
                pairs.iter().map(|pair| &**pair).chain(more.iter().copied()).collect();
            let braced =
                if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
            writer.out.extend([*name, *suffix, &braced, " 1\n"]);
        }
    }
    text(writer)
}

#[test]
fn promtool_reports_no_problem() {
    if Command::new("promtool").arg("--version").output().is_err() {
        // Not `println!`, whose output the test harness would capture.
        let fails = std::env::var_os("RECLINER_TEST_NO_SKIP").is_some();
        assert!(!fails, "promtool is not installed, and RECLINER_TEST_NO_SKIP is set");
        let lacks = "promtool, which Debian has in the package prometheus";
        writeln!(std::io::stderr(), "skipped: promtool_reports_no_problem: {lacks}").unwrap();
        return;
    }
    // The registry part of the specimen breaks naming rules on purpose.
    let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
    let mut files = writer.family(&f::TARGET_FILE_BYTES);
    for (place, name) in ODD.iter().enumerate() {
        files.sample(&["couchdb@a", "db", name, &place.to_string(), "a\0b", ""], f64::NAN);
    }
    writer.family(&f::QUEUE_RATIO_MAX).sample(&["a", "b"], Value::Float(f64::INFINITY));
    for text in [text(writer), every_family(TextFormat::Text)] {
        let mut promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        let words = [output.stdout, output.stderr].concat();
        assert_eq!(String::from_utf8_lossy(&words), "", "{text}");
        assert!(output.status.success(), "{text}");
    }
}

#[test]
fn every_declared_family_parses_in_both_formats() {
    for format in TextFormat::ALL {
        assert_eq!(parse(format, &every_family(format)).unwrap().len(), f::ALL.len());
    }
}
