//! How fast a log is read and summed, on one core.
//!
//! ```text
//! cargo bench -p access-log
//! ```

use access_log::{Line, LineReader, LogReads, read_line};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

/// Bytes of each log.
const BYTES: usize = 64 << 20;

/// Lines of a format, of which one in four reads one of 400 views.
fn log(format: &str) -> Vec<u8> {
    let paths = ["/orders/0a1b2c3d4e5f", "/orders/_changes?since=now&feed=longpoll", "/", "VIEW"];
    let mut text = String::new();
    for number in 0.. {
        let view = format!("/orders%2F{}/_design/d{}/_view/v?startkey=%22a%22&limit=20", number % 20, number / 4 % 20);
        let path = paths[number % 4].replace("VIEW", &view);
        let time = format!("{:02}:{:02}:{:02}", number / 36_000 % 24, number / 600 % 60, number / 10 % 60);
        text.push_str(&format.replace("PATH", &path).replace("TIME", &time));
        text.push('\n');
        if text.len() >= BYTES {
            break;
        }
    }
    text.into_bytes()
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("access-log");
    group.throughput(Throughput::Bytes(BYTES as u64)).sample_size(10);
    for (name, format) in [
        ("couchdb", "[notice] 2026-11-27TTIME.830527Z couchdb@couch-a.example <0.5163.0> b5a3d9556d couch.example:5984 192.0.2.17 shop GET PATH 200 ok 36"),
        ("combined", r#"192.0.2.17 - shop [27/Nov/2026:TIME +0000] "GET PATH HTTP/1.1" 200 1532 "https://shop.example/" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36""#),
        ("haproxy", r#"Nov 27 05:00:00 lb haproxy[14389]: 192.0.2.17:33317 [27/Nov/2026:TIME.655] http-in couch/node1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {Mozilla/5.0} "GET PATH HTTP/1.1""#),
        ("json", r#"{"ClientAddr":"192.0.2.17:4711","DownstreamStatus":200,"Duration":36000000,"RequestMethod":"GET","RequestPath":"PATH","RouterName":"couch@docker","StartUTC":"2026-11-27TTIME.655Z","level":"info","request_User-Agent":"Mozilla/5.0"}"#),
    ] {
        let text = log(format);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut reads = LogReads::default();
                let mut lines = LineReader::new(black_box(&text[..]));
                let read = lines.for_each(|line| {
                    if let Line::Request(request) = read_line(line) {
                        reads.add(request, "log");
                    }
                    true
                });
                assert!(read.is_ok(), "a slice has no errors");
                reads
            });
        });
    }
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
