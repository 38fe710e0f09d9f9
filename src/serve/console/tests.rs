//! Charts, cells, and properties of every page.

use super::{
    cells::{count, link, name},
    chart::{self, Line, Segment},
    *,
};
use crate::serve::report::{
    FullDates, OutlookLine, ProposedHorizon, RentProposal, SmooshRules, UndoneLine,
    VolumeOutlookLine, WhatIf,
};

const HOSTILE: &str = "<script>alert(\"1\")</script>&'\u{202e}evil\u{7}";

#[test]
fn escapes_hostile_names() {
    let shown = name(HOSTILE).into_string();
    assert!(
        !shown.contains("<script") && !shown.contains('\u{7}') && !shown.contains('\u{202e}'),
        "{shown}"
    );
    assert!(shown.starts_with("<bdi>"), "{shown}");
}

#[test]
fn text_between_backticks_is_code() {
    for (text, shown) in [
        ("plain", "<bdi>plain</bdi>"),
        ("", "<bdi></bdi>"),
        ("run `a <b>` now", "<bdi>run </bdi><code><bdi>a &lt;b&gt;</bdi></code><bdi> now</bdi>"),
        ("`a` or `b`", "<code><bdi>a</bdi></code><bdi> or </bdi><code><bdi>b</bdi></code>"),
        ("it's `odd", "<bdi>it's `odd</bdi>"),
    ] {
        assert_eq!(cells::with_code(text).into_string(), shown);
    }
}

#[test]
fn links_percent_encode_names() {
    let to = link("database", &[("name", "a&b=c#d/e+f %é"), ("x", "")]);
    assert_eq!(to, "database?name=a%26b%3Dc%23d%2Fe%2Bf%20%25%C3%A9&x=");
}

#[test]
fn shows_readable_names_for_ids() {
    for (id, ddoc, expected) in [
        ("db:couchdb@a/shards%2F00000000-7fffffff%2Fa%252Fb.17", None, "a%2Fb 00-7f"),
        (
            "view:_cluster/orders.17/3e0edd1b61ed8b433e0edd1b61ed8b43",
            Some("_design/x"),
            "orders/_design/x",
        ),
        (
            "view:_cluster/orders.17/3e0edd1b61ed8b433e0edd1b61ed8b43",
            None,
            "view 3e0edd1b of orders",
        ),
        ("cleanup:app%2Feu", None, "index files of app/eu"),
        ("nothing", None, "nothing"),
    ] {
        let shown = cells::id_link(id, ddoc).into_string();
        assert!(shown.contains(&format!("<bdi>{expected}</bdi>")), "{shown}");
    }
}

#[test]
fn formats_counts_in_groups_of_three_digits() {
    for (number, shown) in [(0_u64, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")]
    {
        assert_eq!(count(number), shown);
    }
}

#[test]
fn bar_segments_fit_the_bar_and_have_a_text_alternative() {
    let segments = [("live", 80.0), ("waste", 50.0), ("other", f64::NAN)];
    let segments = segments.map(|(class, size)| Segment { class, size });
    let bar = chart::stacked("volume", &segments, 100.0, "80 live").into_string();
    let widths = bar.split("width=\"").skip(2).map(|rest| rest.split('"').next().unwrap());
    let sum: f64 = widths.map(|width| width.parse::<f64>().unwrap()).sum();
    assert!(sum <= 1000.0, "{bar}");
    assert!(bar.contains("aria-label=\"80 live\""), "{bar}");
}

#[test]
fn charts_without_data_are_valid_svg() {
    let dates = ["", "", ""].map(str::to_owned);
    for picture in [
        chart::stacked("volume", &[], 0.0, "nothing"),
        chart::columns(&[], "", "", "", "nothing"),
        chart::lines(&[], &dates, "nothing"),
        chart::lines(&[Line { class: "line", values: &[] }], &dates, "nothing"),
        chart::lines(&[Line { class: "line", values: &[0] }], &dates, "nothing"),
        chart::scatter(&[], "nothing"),
        chart::scatter(&[(0.0, 5.0)], "nothing"),
        chart::against_threshold(0.0, 0.0, "nothing"),
        chart::against_threshold(f64::INFINITY, 2.0, "nothing"),
    ] {
        let text = picture.into_string();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}

#[test]
fn every_screen_has_a_keyboard_shortcut() {
    let around = Around {
        version: "0.1.0",
        mode: "advise",
        simulation: None,
        shown: Shown::ClusterAndFleet,
    };
    let text = document(&failed("Not found", ""), &around).into_string();
    for screen in Screen::all(Shown::ClusterAndFleet) {
        let (title, to, letter) = screen.entry();
        assert!(text.contains(&format!("<kbd data-to=\"{to}\">{letter}</kbd>")), "{title}");
    }
}

#[test]
fn documents_have_no_inline_code_or_external_links() {
    let page = failed("Not found", HOSTILE);
    let around = Around {
        version: "0.1.0",
        mode: "advise",
        simulation: Some("a simulation"),
        shown: Shown::ClusterAndFleet,
    };
    let text = document(&page, &around).into_string();
    for refused in [" style=", "onclick", "http://", "https://", "<style", "javascript:"] {
        assert!(!text.contains(refused), "{refused} in {text}");
    }
    assert_eq!(text.matches("<script").count(), 1, "{text}");
}

fn outlook(name: &str, waste: [u64; 3]) -> OutlookLine {
    let undone = UndoneLine {
        reason: "window".into(),
        says: "closed".into(),
        targets: 7,
        reclaimable_bytes: 9,
    };
    OutlookLine {
        name: name.to_owned(),
        mean_waste_bytes: waste[1],
        peak_waste_bytes: waste[2],
        rewritten_bytes_per_day: 3e9,
        freed_bytes: 1 << 30,
        compactions_per_day: 7.25,
        longest_wait_seconds: Some(5_400),
        undone_targets: 7,
        undone_bytes: 1 << 20,
        undone: vec![undone],
        coarse: true,
        waste_bytes: waste.into(),
        file_bytes: waste.into(),
        volumes: vec![VolumeOutlookLine {
            name: HOSTILE.to_owned(),
            nodes: Vec::new(),
            free_bytes: waste.into(),
            full: FullDates {
                full_at: Some("2026-12-24T00:00:00Z".to_owned()),
                ..FullDates::default()
            },
            forecast_seconds: Some(86_400),
            forecast_withheld: None,
        }],
    }
}

#[test]
fn forecast_shows_charts_and_tables_of_all_rules() {
    let horizon = ProposedHorizon {
        channel: "rent_dbs".to_owned(),
        kind: "db".into(),
        horizon_seconds: 3_600,
        smoosh_waste_bytes: 1,
        waste_bytes: 2,
        fit: "near".into(),
        says: "databases waste as much".to_owned(),
    };
    let answer = WhatIf {
        from: "2026-11-23T10:00:00Z".to_owned(),
        seconds: 604_800,
        step_seconds: 302_400.0,
        watched_bytes: 900 << 30,
        file_bytes: 1_000 << 30,
        watched_seconds: 86_400,
        smoosh: SmooshRules {
            settings: "cluster".into(),
            nodes: vec![],
            other_nodes: vec![],
            says: "smoosh is shown as it is set".to_owned(),
        },
        outlooks: ["nothing", "smoosh", "in force", "proposed"]
            .map(|name| outlook(name, [1 << 20, 1 << 30, 1 << 40]))
            .into(),
        as_rent: Some(RentProposal {
            horizons: vec![horizon],
            findings: vec![HOSTILE.to_owned()],
            config: format!("channels: []\n# {HOSTILE}"),
        }),
    };
    let given = Given::new(vec![("channels".to_owned(), "rent".to_owned())]);
    let page = what_if(&given, Some(&Ok(answer)));
    let text: String = page.parts.iter().map(|part| part.html.0.as_str()).collect();
    for part in [
        "The next 7 days",
        "<svg class=\"swatch\"",
        "line of-nothing",
        "line of-smoosh",
        "line of-force",
        "line of-proposed",
        "nothing: 1 TiB wasted on 2026-11-30",
        "databases waste as much",
        "1.0 MiB</span> in 7",
        "text-anchor=\"middle\">2026-11-26<",
        "<span title=\"nothing is compacted\">",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("<script") && !text.contains("NaN") && !text.contains('\u{202e}'));
    assert_eq!(text.matches("<polyline").count(), 8, "{text}");
}
