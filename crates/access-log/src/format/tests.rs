use super::*;
use crate::{Class, How, Request, Used};
use proptest::prelude::*;

const AT: u64 = 1_795_755_600;

fn read(line: &str) -> Option<(u64, String, String, How, Class)> {
    let Line::Request(Request { at, node, used }) = read_line(line.as_bytes()) else { return None };
    let Used { db, design, view, how, class } = used?;
    Some((at, node.unwrap_or_default().into_owned(), format!("{db} {design} {view}"), how, class))
}

/// Every format, with the node and the class that it yields.
const FORMATS: [(&str, &str, Class); 14] = [
    (
        "[notice] 2026-11-27T05:00:00.830527Z node1@127.0.0.1 <0.5163.0> b5a3d9556d localhost:5984 127.0.0.1 admin GET PATH 200 ok 36",
        "node1@127.0.0.1",
        Class::Unknown,
    ),
    (
        "2026-11-27T05:00:01.1Z stdout F [notice] 2026-11-27T05:00:00.830527Z node1@127.0.0.1 <0.5163.0> b5a3d9556d undefined 127.0.0.1 undefined GET PATH 200 aborted 36",
        "node1@127.0.0.1",
        Class::Unknown,
    ),
    (
        "[notice] 2026-11-27T05:00:00.830527Z a@b <0.5163.0> b5a3d9556d h 127.0.0.1 jan GET /x/_design/y/_view/z 200 ok 3 GET PATH 200 ok 36",
        "a@b",
        Class::Unknown,
    ),
    (
        r#"192.0.2.1 - jan [27/Nov/2026:05:00:00 +0000] "GET PATH HTTP/1.1" 200 12"#,
        "",
        Class::Unknown,
    ),
    (
        r#"192.0.2.1 - - [27/Nov/2026:06:00:00 +0100] "GET PATH HTTP/1.1" 200 12 "-" "Mozilla/5.0 (X11)""#,
        "",
        Class::Browser,
    ),
    (
        r#"couch.example 192.0.2.1 - - [27/Nov/2026:05:00:00 +0000] "GET PATH HTTP/2.0" 200 12 "https://x/[a]" "node-fetch" 0.003 "a""#,
        "",
        Class::Library,
    ),
    (
        r#"192.0.2.1 - - [27/Nov/2026:05:00:00 +0000] "GET PATH HTTP/1.1" 200 12 "-" "-" 7 "couch@docker" "http://10.0.0.1:5984" 3ms"#,
        "",
        Class::Unknown,
    ),
    (
        r#"Nov 27 05:00:00 lb haproxy[14389]: 192.0.2.1:33317 [27/Nov/2026:05:00:00.655] http-in couch/node1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {couch.example|CouchDB-Replicator/3.5.2} {} "GET PATH HTTP/1.1""#,
        "",
        Class::Replicator,
    ),
    (
        r#"192.0.2.1:33317 [27/Nov/2026:05:00:00.655] http-in~ couch/node1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET PATH HTTP/1.1""#,
        "",
        Class::Unknown,
    ),
    (
        r#"{"time_iso8601":"2026-11-27T05:00:00+00:00","request":"GET PATH HTTP/1.1","uri":"/decoded","status":"200","http_user_agent":"okhttp/4"}"#,
        "",
        Class::Library,
    ),
    (
        r#"{"DownstreamStatus":200,"OriginStatus":500,"RequestMethod":"GET","RequestPath":"PATH","StartUTC":"2026-11-27T05:00:00.5Z","time":"2026-11-27T05:00:09Z","request_User-Agent":"Mozilla/5.0"}"#,
        "",
        Class::Browser,
    ),
    (
        r#"{"ts":1795755600.5,"request":{"method":"GET","uri":"PATH","headers":{"User-Agent":["Mozilla/5.0"],"X":{"request":{}}}},"status":200}"#,
        "",
        Class::Browser,
    ),
    (
        r#"{"log":"[notice] 2026-11-27T05:00:00.8Z a@b <0.1.0> b5 h 127.0.0.1 admin GET PATH 200 ok 36\n","stream":"stdout","time":"2026-11-27T05:00:07Z"}"#,
        "a@b",
        Class::Unknown,
    ),
    (
        r#"{"log":"{\"msec\":\"1795755600.123\",\"method\":\"GET\",\"path\":\"PATH\",\"status\":200}\n"}"#,
        "",
        Class::Unknown,
    ),
];

#[test]
fn reads_index_node_and_reader_from_every_log_format() {
    for (format, node, class) in FORMATS {
        let line = format.replace("PATH", "/orders%2Feu/_design/d/_view/v?key=1");
        let expected = (AT, node.to_owned(), "orders/eu _design/d v".to_owned(), How::Read, class);
        assert_eq!(read(&line), Some(expected), "{line}");
        for (status, other) in [(" 200", " 404"), ("\"200\"", "\"404\""), (":200", ":404")] {
            let missing = line.replace(status, other);
            if missing != line {
                let how = read(&missing).map(|it| it.3);
                assert_eq!(how, Some(How::Refused), "{missing}");
                assert_eq!(read(&missing.replace("404", "500")), None, "{missing}");
            }
        }
    }
}

#[test]
fn own_requests_are_not_counted_as_index_reads() {
    let own = r#"192.0.2.1 - - [27/Nov/2026:05:00:00 +0000] "GET /db/_design/d/_view/v HTTP/1.1" 200 12 "-" "recliner/0.1.0""#;
    assert_eq!(read(own), None);
    assert_eq!(
        read_line(own.as_bytes()),
        Line::Request(Request { at: AT, node: None, used: None })
    );
}

#[test]
fn lines_without_a_request_are_classified_as_other() {
    for line in [
        "",
        "[notice] ",
        "[notice] 2026-11-27T05:00:00Z node1@127.0.0.1 <0.1.0> -------- config: [x] set to /a 200 ok y",
        "[info] 2026-11-27T05:00:00Z node1@127.0.0.1 <0.1.0> -------- Starting index update",
        "[report] 2026-11-27T05:00:00Z node1@127.0.0.1 <0.1.0> 3ad [mango-stats dbname=\"db\"]",
        "192.0.2.1:1 [27/Nov/2026:05:00:00.655] tcp-in couch/node1 1/0/5 200 -- 1/1/1/1/0 0/0",
        "192.0.2.1 - - [27/Nov/2026:05:00:00 +0000] \"GET /db/_design/d/_view/cut",
        "192.0.2.1 - - [27/Nov/2026:05:00:00 +0000] \"\\x16\\x03\\x01\" 400 12",
        "{",
        "{}",
        "[]",
        "{\"log\":\"{\\\"log\\\":\\\"x\\\"}\"}",
    ] {
        assert_eq!(read_line(line.as_bytes()), Line::Other, "{line}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _any = read_line(&bytes);
    }

    #[test]
    fn damaged_log_lines_cause_no_panic(
        format in 0..FORMATS.len(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let line = FORMATS[format].0.replace("PATH", "/a%2Fb/_design/d/_view/v");
        let mut bytes = line.clone().into_bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        if let Line::Request(Request { used: Some(used), .. }) = read_line(&bytes) {
            prop_assert!(used.db.len() + used.design.len() + used.view.len() <= bytes.len() + 16);
        }
    }

    #[test]
    fn parsed_request_contains_neither_query_nor_user(format in 0..FORMATS.len(), secret in "[a-z]{12}") {
        let path = format!("/db/_design/d/_view/v?startkey=%22{secret}%22");
        let line = FORMATS[format].0.replace("PATH", &path).replace("jan", &secret);
        let read = format!("{:?}", read_line(line.as_bytes()));
        prop_assert!(!read.contains(&secret), "{}", read);
    }
}
