//! The frame of every page: navigation, search, keys, footer; and the files that pages load.

use super::{
    PLACES, Page, Screen, Shown,
    cells::{name, with_code},
};
use crate::text::escape;
use maud::{DOCTYPE, Markup, html};
use std::sync::LazyLock;
use xxhash_rust::xxh3::xxh3_64;

/// Information about the process for every page.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Around {
    pub version: &'static str,
    /// `advise` or `enforce`.
    pub mode: &'static str,
    /// The notice that the cluster is simulated, if it is.
    pub simulation: Option<&'static str>,
    pub shown: Shown,
}

/// A file that pages load.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct Asset {
    pub(in crate::serve) content_type: &'static str,
    pub(in crate::serve) text: &'static str,
    /// The hash of the text: it is in the address, so that browsers load a changed file.
    pub(in crate::serve) hash: u64,
}

static ASSETS: LazyLock<[(&str, Asset); 2]> = LazyLock::new(|| {
    let asset = |content_type, text: &'static str| Asset {
        content_type,
        text,
        hash: xxh3_64(text.as_bytes()),
    };
    [
        ("console.css", asset("text/css; charset=utf-8", include_str!("assets/console.css"))),
        ("console.js", asset("text/javascript; charset=utf-8", include_str!("assets/console.js"))),
    ]
});

/// A hash of all assets, which changes when any of them does.
pub(in crate::serve) fn assets_version() -> String {
    let hashes = ASSETS.iter().fold(0, |all: u64, (_, asset)| all.rotate_left(1) ^ asset.hash);
    format!("{hashes:016x}")
}

/// The asset with this name.
pub(in crate::serve) fn asset(wanted: &str) -> Option<Asset> {
    ASSETS.iter().find(|(name, _)| *name == wanted).map(|(_, asset)| *asset)
}

/// The whole document of a page.
pub(in crate::serve) fn document(page: &Page, around: &Around) -> Markup {
    let body = html! {
        (bar("", page.screen, false, around.shown))
        main #page-content {
            (beside(page.screen, around.shown))
            h1 { (name(&page.title)) }
            @if let Some(says) = around.simulation { p.note { (says) } }
            @for part in &page.parts {
                section id=(part.id) { (part.html) }
            }
        }
        footer {
            "recliner " (around.version) @if around.shown != Shown::Fleet { ", mode " (around.mode) }
            @if page.is_live {
                " · this page: " span.state #live-state role="status" { "not updating" }
                " " button #live-pause type="button" hidden aria-pressed="false" { "Pause" }
            }
            " · press " kbd { "?" } " for keys"
        }
        (keys(around.shown))
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&page.title, ""))
            body data-live=[page.is_live.then_some("")] data-root="" data-version=(assets_version()) { (body) }
        }
    }
}

/// The complete document of a page of the book, which is served one directory deeper.
pub(in crate::serve) fn book_document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, "../"))
            body.book data-root="../" { (bar("../", None, true, Shown::Cluster)) (body) (keys(Shown::Cluster)) }
        }
    }
}

/// The document's `head`. Links begin with `root`, because a proxy may serve the console under a
/// path.
fn head(title: &str, root: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { (escape::escape_line(title)) " - recliner" }
            link rel="stylesheet" href={ (root) "assets/console.css" };
            link rel="icon" href="data:,";
            script src={ (root) "assets/console.js" } defer {}
        }
    }
}

/// The bar with the navigation and the search.
fn bar(root: &str, current: Option<Screen>, in_book: bool, shown: Shown) -> Markup {
    let here = |it: bool| it.then_some("page");
    html! {
        a.skip href="#page-content" { "Skip to the content" }
        header.bar {
            a.name href={ (root) "./" } { "recliner" }
            @if shown != Shown::Fleet {
            nav aria-label="Pages" {
                ul {
                    @for (title, screens) in PLACES {
                        @let is_here = current.is_some_and(|current| screens.contains(&current));
                        li { a href={ (root) (screens.first().map_or("./", |first| first.link())) } aria-current=[here(is_here)] { (title) } }
                    }
                    li { a href={ (root) "docs/" } aria-current=[in_book.then_some("true")] { "Book" } }
                }
            }
            form role="search" action={ (root) "targets" } {
                input #page-search type="search" name="search" placeholder="Database or id ( / )" aria-label="Search for a database, design document or id";
            }
            }
        }
    }
}

/// The screens of the same place, where it has several.
fn beside(current: Option<Screen>, shown: Shown) -> Markup {
    let place = current.map_or(&[][..], Screen::beside);
    let screens: Vec<Screen> = Screen::all(shown).filter(|screen| place.contains(screen)).collect();
    html! {
        @if screens.len() > 1 {
            nav.beside aria-label="Pages of this place" { ul {
                @for screen in screens {
                    @let (title, link, _) = screen.entry();
                    li { a href=(link) aria-current=[(current == Some(screen)).then_some("page")] { (title) } }
                }
            } }
        }
    }
}

fn keys(shown: Shown) -> Markup {
    html! {
        dialog #page-keys aria-label="Keys" {
            h2 { "Keys" }
            dl {
                @if shown != Shown::Fleet { dt { kbd { "/" } } dd { "search" } }
                @for screen in Screen::all(shown) {
                    @let (title, link, letter) = screen.entry();
                    dt { kbd { "g" } " " kbd data-to=(link) { (letter) } } dd { (title.to_lowercase()) }
                }
                dt { kbd { "?" } } dd { "this list" }
            }
            form method="dialog" { button { "Close" } }
        }
    }
}

/// A page that explains why the requested page cannot be shown.
pub(in crate::serve) fn failed(title: &str, why: &str) -> Page {
    let html = html! {
        p.banner.worst { (with_code(why)) }
        p { a href="./" { "To the overview" } ", " a href="targets" { "to the targets" } ", " a href="docs/" { "to the book" } }
    };
    Page::still(None, title, vec![super::Part::new("why", html)])
}
