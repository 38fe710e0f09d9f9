//! Neither messages nor `Debug` output contain the secret parts of a URL.

use super::*;
use proptest::prelude::*;

const SECRET: &str = "q9zsecretz9q";

/// Configurations with `url` in every place that expects a URL.
fn everywhere(url: &str) -> [(Flags, String); 6] {
    let url = serde_json::to_string(url).unwrap();
    let flag = Flags { couchdb_urls: vec![url.trim_matches('"').to_owned()], ..Flags::default() };
    let volume = format!("{{nodes: [couchdb@a], prometheus: {{url: {url}, query: up}}}}");
    [
        (flag, String::new()),
        (Flags::default(), format!("couchdb: {{urls: [{url}]}}")),
        (flags(), format!("couchdb: {{nodes: {{couchdb@b: {url}}}}}")),
        (flags(), format!("peers: [{url}]")),
        (flags(), format!("headroom: {{volumes: [{volume}]}}")),
        // This place expects no URL, but a user may put one here by mistake.
        (flags(), format!("couchdb: {url}")),
    ]
}

proptest! {
    #![proptest_config(crate::cases::one_case_in(8))]

    #[test]
    fn messages_hide_secrets_in_urls(
        scheme in "(http://|https://|ftp://|//|http:/|http:|)",
        user in "(adm:|adm|)",
        before in "[a-zA-Z0-9]{0,3}",
        after in "[a-zA-Z0-9]{0,3}",
        host in "[a-z]{1,6}(:[0-9]{1,6}|:x|)",
        end in "(/|/db|/?a=b|#x|)",
    ) {
        let secret = format!("{before}{SECRET}{after}");
        for url in [
            format!("{scheme}{user}:{secret}@{host}{end}"),
            format!("http://{secret}@{host}{end}"),
            format!("http://{host}?token={secret}"),
            format!("https://{host}/db?{secret}"),
            format!("http://{host}#{secret}"),
            format!("http://adm:x?{secret}@{host}"),
            format!("http://{host}?a@b={secret}"),
        ] {
            for (flags, text) in everywhere(&url) {
                let Err(problems) = load_text(&flags, &text) else { continue };
                let said = format!("{problems} {problems:?} {flags:?}");
                prop_assert!(!said.contains("q9z"), "{}: {}", url, said);
            }
        }
    }
}

proptest! {
    #[test]
    fn redaction_keeps_text_without_url(text in "[a-z0-9 ./_#?-]{0,20}(@[a-z-]{0,9})?") {
        prop_assert_eq!(redact_secrets(&text), &*text);
    }
}
