//! Writes the same families as Prometheus text 0.0.4 and as OpenMetrics 1.0.
//!
//! ```text
//! cargo run -p metrics-text --example families
//! ```
//!
//! Compare the two: a counter's `# TYPE` line, `# UNIT` and `# EOF` differ; the series do not.

use metrics_text::{Encoding, TextFormat, Writer};
use std::io::{self, Write as _};

metrics_text::families! {
    QUEUE_JOBS: Gauge None "mail_queue_jobs" ["queue"] "Jobs that wait in a queue.";
    SENT_BYTES: Counter Bytes "mail_sent_bytes_total" [] "Bytes sent since the process started.";
    SEND_TIME: Histogram Seconds "mail_send_duration_seconds" ["server"]
        "Time to send one message, in seconds.";
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "# {} families\n", ALL.len())?;
    for format in TextFormat::ALL {
        writeln!(out, "# Content-Type: {}", format.content_type())?;
        out.write_all(&scrape(format))?;
        writeln!(out)?;
    }
    Ok(())
}

fn scrape(format: TextFormat) -> Vec<u8> {
    let mut writer = Writer::new(format, Encoding::Identity);

    let mut jobs = writer.family(&QUEUE_JOBS);
    jobs.sample(&["urgent"], 3_u64);
    jobs.sample(&["bulk \"night\""], 1_250_u64);

    writer.family(&SENT_BYTES).sample(&[], 73_400_320_u64);

    // Each bucket counts the values at or below its bound. The writer adds `+Inf` from the count.
    let buckets = [(0.1, 40), (1.0, 55), (10.0, 57)];
    writer.family(&SEND_TIME).histogram(&["mx-1"], &buckets, 58, 31.5);

    writer.finish()
}
