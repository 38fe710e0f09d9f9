use super::{render::Page, *};
use std::collections::{BTreeMap, BTreeSet};

/// The anchors of the headings.
fn ids(source: &str) -> Vec<String> {
    Page::render(source).headings.into_iter().map(|heading| heading.id).collect()
}

#[test]
fn heading_anchors_match_mdbook() {
    for (heading, id) in [
        ("`--passes`: add more rustdoc passes", "--passes-add-more-rustdoc-passes"),
        ("Method-call 🐙 expressions \u{1f47c}", "method-call--expressions-"),
        ("_-_12345", "_-_12345"),
        ("中文標題 CJK title", "中文標題-cjk-title"),
        ("Über", "über"),
        ("What's new -- and **why**", "whats-new--and-why"),
        ("A [link](demo.md) in it", "a-link-in-it"),
        ("Its own {#other}", "other"),
    ] {
        assert_eq!(ids(&format!("# {heading}\n")), [id], "{heading}");
    }
    assert_eq!(
        ids("## Check\n\n## Do\n\n## Check\n\n## Check\n"),
        ["check", "do", "check-1", "check-2"]
    );
}

#[test]
fn renders_page_with_html_links_and_without_comments() {
    let page = Page::render(
        "# A `b` title\n\n<!-- begin generated: x -->\n\n| a | b |\n|---|--:|\n| [x](why.md#a-b) | 2 |\n\n\
         <!-- end generated -->\n\n<script>alert(1)</script>\n\nText <b>bold</b> ![i](images/a.png)\n\
         <http://127.0.0.1/x.md> [own](#a-b-title) [mail](mailto:a@b.md)\n",
    );
    let expected = "<h1 id=\"a-b-title\"><a class=\"anchor\" href=\"#a-b-title\">A <code>b</code> title</a></h1>\n";
    assert!(page.html.starts_with(expected), "{}", page.html);
    for part in [
        "<div class=\"wide\"><table>",
        "</table>\n</div>",
        "<a href=\"why.html#a-b\">x</a>",
        "<img src=\"images/a.png\" alt=\"i\" />",
        "&lt;script&gt;",
        "&lt;b&gt;bold&lt;/b&gt;",
        "href=\"http://127.0.0.1/x.md\"",
    ] {
        assert!(page.html.contains(part), "{part} in {}", page.html);
    }
    assert!(!page.html.contains("<!--") && !page.html.contains("<script"), "{}", page.html);
    let links =
        ["why.html#a-b", "images/a.png", "http://127.0.0.1/x.md", "#a-b-title", "mailto:a@b.md"];
    assert_eq!(page.links, links);
}

#[test]
fn page_says_how_long_it_takes_to_read() {
    for (words, length) in
        [(0, "1 minute"), (228, "1 minute"), (229, "2 minutes"), (688, "3 minutes")]
    {
        let page = Page::render(&format!("# T\n{}", " word".repeat(words)));
        let below_title = page.html.split_once("</h1>\n").expect("it has a title").1;
        let expected = format!("<p class=\"quiet\">About {length}.</p>\n");
        assert!(below_title.starts_with(&expected), "{words}: {below_title}");
        assert_eq!(page.html.matches("About").count(), 1, "{words}");
    }
}

/// Readers of only these three chapters can run recliner; each chapter takes four minutes.
#[test]
fn first_three_chapters_have_at_most_900_words() {
    for name in ["install.md", "first-cluster.md", "enforcing.md"] {
        let words = source(name).expect("it is a chapter").split_whitespace().count();
        assert!(words <= 900, "{name} has {words} words");
    }
}

#[test]
fn reads_list_of_contents_like_mdbook() {
    let contents = Contents::read(
        "# Summary\n\n[Introduction](introduction.md)\n\n# First *steps*\n\n- [Install](install.md)\n\
         - [A `b`](b.md)\n\n# Empty\n\n# Last\n\n- [C](c.md)\n",
    );
    let chapter =
        |title: &str, source: &str| Chapter { title: title.into(), source: source.into() };
    let part =
        |title: &str, chapters: &[Chapter]| Part { title: title.into(), chapters: chapters.into() };
    assert_eq!(
        contents.parts,
        [
            part("", &[chapter("Introduction", "introduction.md")]),
            part("First steps", &[chapter("Install", "install.md"), chapter("A b", "b.md")]),
            part("Last", &[chapter("C", "c.md")]),
        ]
    );
    let (found, before, after) = contents.find("b.html").expect("b.html is a chapter");
    assert_eq!(found.title, "A b");
    assert_eq!(
        (before.map(|it| &*it.title), after.map(|it| &*it.title)),
        (Some("Install"), Some("C"))
    );
    assert!(contents.find("b.md").is_none());
    assert_eq!(contents.find("introduction.html").and_then(|(_, before, _)| before), None);
}

#[test]
fn page_source_gets_absolute_links() {
    let source = "# T\n\n[a](why.md#x), [b](#t), [c](http://h/x.md) and [`d.md`](d.md).\n\n`[e](e.md)` ![f](images/f.png)\n";
    let written = render::with_links_to(source, "https://h/docs");
    assert_eq!(
        written,
        "# T\n\n[a](https://h/docs/why.html#x), [b](#t), [c](http://h/x.md) and [`d.md`](https://h/docs/d.html).\n\n`[e](e.md)` ![f](https://h/docs/images/f.png)\n"
    );
}

/// Every page of the book, rendered, by the name of its HTML file.
fn pages() -> BTreeMap<String, Page> {
    let chapters = contents().chapters();
    let page = |chapter: &Chapter| {
        let source = source(&chapter.source);
        let source = source.unwrap_or_else(|| panic!("SUMMARY.md names {}", chapter.source));
        (chapter.html_name(), Page::render(source))
    };
    chapters.map(page).collect()
}

#[test]
fn contents_list_every_page_once_and_pages_have_titles() {
    let chapters: Vec<&str> = contents().chapters().map(|it| &*it.source).collect();
    let named: BTreeSet<&str> = chapters.iter().copied().collect();
    assert_eq!(named.len(), chapters.len(), "listed twice: {chapters:?}");
    let is_page = |name: &&str| name.ends_with(".md") && *name != SUMMARY;
    assert_eq!(file_names().filter(is_page).collect::<BTreeSet<_>>(), named);
    for (name, page) in pages() {
        let titles = page.headings.iter().filter(|heading| heading.depth == 1).count();
        assert_eq!((titles, page.headings.first().map(|it| it.depth)), (1, Some(1)), "{name}");
        let depths = page.headings.iter().map(|heading| heading.depth);
        assert!(depths.clone().zip(depths.skip(1)).all(|(one, next)| next <= one + 1), "{name}");
    }
}

#[test]
fn every_link_in_the_book_resolves() {
    let pages = pages();
    let mut broken = Vec::new();
    for (name, page) in &pages {
        for link in &page.links {
            if ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let reached = if path.is_empty() { name } else { path };
            let is_there = match pages.get(reached) {
                Some(page) => {
                    anchor.is_empty() || page.headings.iter().any(|heading| heading.id == anchor)
                }
                None => anchor.is_empty() && !path.ends_with(".html") && file(path).is_some(),
            };
            if !is_there {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn pages_contain_no_raw_html_or_links_in_headings() {
    for (name, page) in pages() {
        assert!(!page.html.contains("&lt;!--"), "{name}: a comment has other text on its line");
        for html in page.html.split("<h").skip(1) {
            let heading = html.split("</h").next().unwrap_or_default();
            assert!(heading.matches("<a ").count() <= 1, "{name}: a link in {heading}");
        }
        let shown = page.html.split("&lt;").skip(1).filter(|rest| {
            // Angle brackets are allowed in code, but not in text.
            let before = &page.html[..rest.as_ptr() as usize - page.html.as_ptr() as usize];
            before.rfind("<code").unwrap_or(0) <= before.rfind("</code").unwrap_or(0)
        });
        let shown: Vec<&str> = shown.map(|rest| rest.get(..20).unwrap_or(rest)).collect();
        assert!(shown.is_empty(), "{name}: HTML is shown as text: {shown:?}");
    }
}

#[test]
fn every_image_file_is_shown_on_a_page() {
    let shown: BTreeSet<String> = pages().into_values().flat_map(|page| page.links).collect();
    for name in file_names().filter(|name| !name.ends_with(".md")) {
        assert!(name.ends_with(".png") || name.ends_with(".svg"), "{name}");
        assert!(shown.contains(name), "no page shows {name}, and the program carries it");
    }
}
