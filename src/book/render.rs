//! Renders a page as HTML.
//!
//! Covers where mdBook differs from plain Markdown: the extensions, the anchors of headings, and
//! links between pages. HTML in a page is shown as text, except comments, which are omitted. Below
//! the title, a page says how long it takes to read.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "Markdown has many kinds of events, and most of them stay as they are"
)]

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use std::collections::HashSet;

/// A heading that can be linked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// Its depth: 1 for the page's title.
    pub depth: u8,
    /// The name of its anchor.
    pub id: String,
    /// Its text, without formatting.
    pub text: String,
}

/// A rendered page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The body as HTML.
    pub html: String,
    /// Its headings, in the page's order.
    pub headings: Vec<Heading>,
    /// The destinations of its links and images, as in the HTML.
    pub links: Vec<String>,
}

/// The extensions that mdBook enables.
fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_HEADING_ATTRIBUTES
        | Options::ENABLE_SMART_PUNCTUATION
        | Options::ENABLE_DEFINITION_LIST
        | Options::ENABLE_GFM
}

impl Page {
    /// Renders a page of the book.
    #[must_use]
    pub fn render(source: &str) -> Self {
        let (mut page, mut used_ids) = (Self::default(), HashSet::new());
        let mut events = Vec::new();
        let mut parser = Parser::new_ext(source, options());
        while let Some(event) = parser.next() {
            match event {
                Event::Start(Tag::Heading { level, id, .. }) => {
                    let end = |event: &Event<'_>| matches!(event, Event::End(TagEnd::Heading(_)));
                    let inner = parser.by_ref().take_while(|event| !end(event)).collect();
                    events.extend(page.heading(level, id.as_deref(), inner, &mut used_ids));
                    if level == HeadingLevel::H1 {
                        events.push(Event::Html(reading_time(source).into()));
                    }
                }
                other => events.extend(page.event(other)),
            }
        }
        html::push_html(&mut page.html, events.into_iter());
        page
    }

    /// Renders a heading as a link to itself.
    fn heading<'a>(
        &mut self,
        level: HeadingLevel,
        own_id: Option<&str>,
        inner: Vec<Event<'a>>,
        used_ids: &mut HashSet<String>,
    ) -> Vec<Event<'a>> {
        let text = text_of(&inner);
        let id = match own_id {
            Some(id) => id.to_owned(),
            None => unique_id(&id_of(&text), used_ids),
        };
        let id_of_event = Some(CowStr::from(id.clone()));
        let start = Tag::Heading { level, id: id_of_event, classes: Vec::new(), attrs: Vec::new() };
        let link = format!("<a class=\"anchor\" href=\"#{id}\">");
        self.headings.push(Heading { depth: level as u8, id, text });
        let mut events = vec![Event::Start(start), Event::InlineHtml(link.into())];
        events.extend(inner.into_iter().flat_map(|event| self.event(event)));
        events.push(Event::InlineHtml("</a>".into()));
        events.push(Event::End(TagEnd::Heading(level)));
        events
    }

    /// Converts any event that is not in a heading.
    fn event<'a>(&mut self, event: Event<'a>) -> Vec<Event<'a>> {
        match event {
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let dest_url = CowStr::from(in_html(&dest_url));
                self.links.push(dest_url.to_string());
                vec![Event::Start(Tag::Link { link_type, dest_url, title, id })]
            }
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                self.links.push(dest_url.to_string());
                vec![Event::Start(Tag::Image { link_type, dest_url, title, id })]
            }
            // Wide tables get a scroll bar of their own.
            Event::Start(table @ Tag::Table(_)) => {
                vec![Event::Html("<div class=\"wide\">".into()), Event::Start(table)]
            }
            Event::End(TagEnd::Table) => {
                vec![Event::End(TagEnd::Table), Event::Html("</div>\n".into())]
            }
            Event::Html(text) | Event::InlineHtml(text) => match is_comment(&text) {
                true => Vec::new(),
                false => vec![Event::Text(text)],
            },
            other => vec![other],
        }
    }
}

/// How long a page takes to read, at 230 words per minute.
fn reading_time(source: &str) -> String {
    match source.split_whitespace().count().div_ceil(230) {
        0 | 1 => "<p class=\"quiet\">About 1 minute.</p>\n".to_owned(),
        minutes => format!("<p class=\"quiet\">About {minutes} minutes.</p>\n"),
    }
}

fn is_comment(html: &str) -> bool {
    let html = html.trim();
    html.is_empty() || (html.starts_with("<!--") && html.ends_with("-->"))
}

/// The text of a heading, without its formatting.
fn text_of(events: &[Event<'_>]) -> String {
    let mut text = String::new();
    for event in events {
        match event {
            Event::Text(piece) | Event::Code(piece) => text.push_str(piece),
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            _ => {}
        }
    }
    text
}

/// mdBook's `id_from_content`: letters, digits, `-` and `_` in lower case, and a hyphen for each space.
fn id_of(text: &str) -> String {
    let letters = text.trim().to_lowercase();
    let letters = letters.chars().filter_map(|letter| match letter {
        _ if letter.is_alphanumeric() || letter == '_' || letter == '-' => Some(letter),
        _ if letter.is_whitespace() => Some('-'),
        _ => None,
    });
    letters.collect()
}

/// mdBook's `unique_id`: the second heading of the same text gets `-1`.
fn unique_id(id: &str, used: &mut HashSet<String>) -> String {
    let numbered = (1_u32..).map(|number| format!("{id}-{number}"));
    let mut candidates = std::iter::once(id.to_owned()).chain(numbered);
    candidates.find(|candidate| used.insert(candidate.clone())).unwrap_or_default()
}

/// The destination of a link between rendered pages.
fn in_html(target: &str) -> String {
    match split_page_link(target) {
        Some((page, anchor)) => format!("{page}.html{anchor}"),
        None => target.to_owned(),
    }
}

/// Splits a link to another page into the page without `.md` and the anchor with its `#`.
fn split_page_link(target: &str) -> Option<(&str, &str)> {
    let (path, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
    let page = path.strip_suffix(".md").filter(|page| !page.contains(':'))?;
    Some((page, anchor))
}

/// Rewrites the links of a page to other pages and images so that they begin with `base`.
pub(super) fn with_links_to(source: &str, base: &str) -> String {
    let mut text = source.to_owned();
    let links: Vec<_> = Parser::new_ext(source, options())
        .into_offset_iter()
        .filter_map(|(event, range)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some((dest_url.into_string(), range))
            }
            _ => None,
        })
        .collect();
    // Backwards, so that the positions of earlier links stay valid.
    for (target, range) in links.into_iter().rev() {
        let is_complete = target.contains(':') || target.starts_with('#');
        let written = text.get(range.clone()).and_then(|link| link.rfind(&target));
        if let Some(at) = written.filter(|_| !is_complete) {
            let start = range.start + at;
            let complete = format!("{base}/{}", in_html(&target));
            text.replace_range(start..start + target.len(), &complete);
        }
    }
    text
}
