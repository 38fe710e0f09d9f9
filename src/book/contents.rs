//! The order of the book's pages, as `SUMMARY.md` gives it.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "Markdown has many kinds of events, and most of them stay as they are"
)]

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

/// A page and its title in the list of contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chapter {
    /// The title in the list of contents.
    pub title: String,
    /// The name of the source file, such as `alerts.md`.
    pub source: String,
}

impl Chapter {
    /// The name under which the page is served, such as `alerts.html`.
    pub fn html_name(&self) -> String {
        format!("{}.html", self.source.trim_end_matches(".md"))
    }
}

/// Chapters under one title.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The title; empty for chapters before the first titled part.
    pub title: String,
    /// The chapters, in the book's order.
    pub chapters: Vec<Chapter>,
}

/// The whole book in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The parts that have chapters.
    pub parts: Vec<Part>,
}

impl Contents {
    /// Reads a `SUMMARY.md`: headings are parts, links are chapters. The first heading is the title
    /// of the list itself.
    #[must_use]
    pub fn read(summary: &str) -> Self {
        let mut parts = vec![Part::default()];
        let (mut text, mut target) = (String::new(), String::new());
        for event in Parser::new(summary) {
            match event {
                Event::Start(Tag::Heading { .. }) => text.clear(),
                Event::Start(Tag::Link { dest_url, .. }) => {
                    text.clear();
                    target = dest_url.into_string();
                }
                Event::Text(piece) | Event::Code(piece) => text.push_str(&piece),
                Event::End(TagEnd::Heading(_)) => {
                    parts.push(Part { title: text.clone(), chapters: Vec::new() });
                }
                Event::End(TagEnd::Link) => {
                    let chapter = Chapter { title: text.clone(), source: target.clone() };
                    if let Some(part) = parts.last_mut() {
                        part.chapters.push(chapter);
                    }
                }
                _ => {}
            }
        }
        if let Some(own) = parts.get_mut(1) {
            own.title.clear();
        }
        parts.retain(|part| !part.chapters.is_empty());
        Self { parts }
    }

    /// Every chapter, in the book's order.
    pub fn chapters(&self) -> impl Iterator<Item = &Chapter> {
        self.parts.iter().flat_map(|part| &part.chapters)
    }

    /// Finds a chapter by the name under which it is served, with the previous and the next
    /// chapter.
    pub fn find(&self, html_name: &str) -> Option<(&Chapter, Option<&Chapter>, Option<&Chapter>)> {
        let all: Vec<&Chapter> = self.chapters().collect();
        let at = all.iter().position(|chapter| chapter.html_name() == html_name)?;
        let before = at.checked_sub(1).and_then(|at| all.get(at).copied());
        Some((all.get(at)?, before, all.get(at + 1).copied()))
    }
}
