//! The book at `/docs/`.

use super::{console::assert_nested, *};
use crate::book;
use std::collections::BTreeSet;

#[tokio::test]
async fn serves_every_page_with_navigation() {
    let surface = Surface::new();
    let chapters: Vec<_> = book::contents().chapters().collect();
    for (at, chapter) in chapters.iter().enumerate() {
        let page = surface.get(&format!("/docs/{}", chapter.html_name())).await;
        assert_eq!(page.status, StatusCode::OK, "{}", chapter.source);
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        let text = page.text();
        assert!(text.starts_with("<!DOCTYPE html><html lang=\"en\">"));
        assert_nested(text);
        let own = format!("href=\"{}\" aria-current=\"page\"", chapter.html_name());
        assert_eq!(text.matches("aria-current=\"page\"").count(), 1, "{}", chapter.source);
        assert!(text.contains(&own), "{own}");
        for (relation, neighbour) in [("prev", at.wrapping_sub(1)), ("next", at + 1)] {
            let link = chapters
                .get(neighbour)
                .map(|it| format!("rel=\"{relation}\" href=\"{}\"", it.html_name()));
            assert_eq!(text.contains(&format!("rel=\"{relation}\"")), link.is_some(), "{own}");
            assert!(link.is_none_or(|link| text.contains(&link)), "{own}");
        }
        for chapter in &chapters {
            assert!(text.contains(&format!("href=\"{}\"", chapter.html_name())), "{own}");
        }
        let ids: Vec<&str> =
            text.split(" id=\"").skip(1).filter_map(|it| it.split('"').next()).collect();
        let distinct: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), distinct.len(), "repeated anchor in {}", chapter.source);
        let own_links = text.split("href=\"#").skip(1).filter_map(|it| it.split('"').next());
        let lost: Vec<&str> = own_links.filter(|id| !distinct.contains(id)).collect();
        assert!(lost.is_empty(), "{}: {lost:?}", chapter.source);
    }
    let first = surface.get("/docs/").await;
    let own = surface.get(&format!("/docs/{}", chapters[0].html_name())).await;
    assert_eq!(first.text(), own.text());
    let moved = surface.get("/docs").await;
    assert_eq!((moved.status, moved.header("location")), (StatusCode::PERMANENT_REDIRECT, "docs/"));
}

#[tokio::test]
async fn serves_images_with_their_content_type() {
    let surface = Surface::new();
    let images: Vec<_> = book::file_names().filter(|name| name.starts_with("images/")).collect();
    assert!(!images.is_empty());
    for name in images {
        let image = surface.get(&format!("/docs/{name}")).await;
        assert_eq!(image.status, StatusCode::OK, "{name}");
        assert_eq!(image.body, book::file(name).unwrap(), "{name}");
        let (_, ending) = name.rsplit_once('.').unwrap();
        let expected = if ending == "svg" { "image/svg+xml" } else { "image/png" };
        assert_eq!(image.header("content-type"), expected, "{name}");
    }
}

#[tokio::test]
async fn unknown_book_page_returns_404_with_link_to_start() {
    let surface = Surface::new();
    for path in [
        "/docs/nothing.html",
        "/docs/alerts",
        "/docs/alerts.md",
        "/docs/SUMMARY.md",
        "/docs/SUMMARY.html",
        "/docs/%2e%2e%2fbook.toml",
        "/docs/%ff.html",
        "/docs/..",
    ] {
        let answer = surface.get(path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(answer.text().contains("href=\"./\""), "{path}: {}", answer.text());
        assert_nested(answer.text());
        assert!(answer.header("etag").is_empty(), "{path}");
    }
    for path in
        ["/docs/images/nothing.png", "/docs/images/alerts.md", "/docs/images/..%2falerts.md"]
    {
        assert_eq!(surface.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(surface.get("/docs/images/").await.status, StatusCode::NOT_FOUND);
    let post = surface.ask(Method::POST, "/docs/alerts.html", &[]).await;
    assert_eq!(post.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn revalidates_book_pages_by_etag() {
    let surface = Surface::new();
    let image = book::file_names().find(|name| name.ends_with(".png")).unwrap();
    for path in ["/docs/", "/docs/alerts.html", &format!("/docs/{image}")] {
        let first = surface.get(path).await;
        assert_eq!(first.header("cache-control"), "no-cache", "{path}");
        let tag = first.header("etag").to_owned();
        assert!(tag.len() > 2, "{path}");
        for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}")] {
            let again = surface.ask(Method::GET, path, &[("if-none-match", &known)]).await;
            assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0), "{path}");
            assert_eq!(again.header("etag"), tag, "{path}");
        }
        let other = surface.ask(Method::GET, path, &[("if-none-match", "\"x\"")]).await;
        assert_eq!((other.status, other.body), (StatusCode::OK, first.body), "{path}");
        let head = surface.ask(Method::HEAD, path, &[]).await;
        assert_eq!((head.status, head.header("etag")), (StatusCode::OK, &*tag), "{path}");
    }
}

#[tokio::test]
async fn book_pages_load_only_own_images() {
    let surface = Surface::new();
    let own = surface.get("/").await.header("content-security-policy").to_owned();
    for path in ["/docs/", "/docs/alerts.html", "/docs/nothing.html"] {
        let page = surface.get(path).await;
        assert_eq!(page.header("content-security-policy"), own, "{path}");
        assert!(!page.text().contains("<style") && !page.text().contains(" style="), "{path}");
    }
    let text = surface.get("/docs/demo.html").await.text().to_owned();
    assert!(text.contains("<img ") && !text.contains(" src=\"http"));
    assert_eq!(text.matches("<script").count(), 1);
}
