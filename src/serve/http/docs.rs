//! The book at `/docs/`, so that the runbook links of alerts work without internet access.
//!
//! Owns the frame around a page: the list of chapters, the page's own headings, the links to the
//! previous and the next page. The pages come from [`book`]. Nothing here depends on the cluster;
//! everyone who may see the page at `/` may read the book.

use super::{
    compression, guard,
    route::{Kind, Operation, Route},
    updates,
};
use crate::{
    book::{self, Chapter, Heading, Page},
    serve::console,
};
use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    middleware,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};
use xxhash_rust::xxh3::xxh3_64;

/// The routes of the book.
pub(super) fn routes() -> Vec<Route> {
    const UNCHANGED: (u16, &str) = (304, "Nothing changed since the response with this ETag.");
    const NO_PAGE: (u16, &str) = (404, "The book has no page or image with this name.");
    let compressed = || middleware::from_fn(compression::compress);
    let (first, one) = (get(first_page).layer(compressed()), get(one_page).layer(compressed()));
    vec![
        Route::page("/docs/", "book", first, "The first page of the book.", &[UNCHANGED]),
        Route::page("/docs/{page}", "bookPage", one, "A page of the book.", &[UNCHANGED, NO_PAGE])
            .described(|operation| Operation {
                parameters: |_| vec![in_path("page", "The name of the page.", page_names())],
                kind: Kind::Html,
                ..operation
            }),
        Route::page(
            "/docs/images/{image}",
            "bookImage",
            get(image),
            "An image of the book.",
            &[UNCHANGED, NO_PAGE],
        )
        .described(|operation| Operation {
            answer: "The image.",
            parameters: |_| vec![in_path("image", "The name of the image.", image_names())],
            answers: |_| {
                let types = ["image/png", "image/svg+xml"];
                types.map(|kind| (kind, json!({ "type": "string" }))).into()
            },
            ..operation
        }),
    ]
}

/// A path parameter that is one of these words.
fn in_path(name: &str, description: &str, words: Vec<impl Into<Value>>) -> Value {
    let words: Vec<Value> = words.into_iter().map(Into::into).collect();
    json!({
        "name": name, "in": "path", "required": true, "description": description,
        "schema": { "type": "string", "enum": words },
    })
}

/// Browsers keep the response but revalidate it, because another version of recliner may answer
/// next.
const CACHING: HeaderValue = HeaderValue::from_static("no-cache");

/// `/docs`: redirects, because links in pages are relative to `/docs/`.
pub(super) async fn with_slash() -> Redirect {
    Redirect::permanent("docs/")
}

/// `/docs/`: the first page.
pub(super) async fn first_page(headers: HeaderMap) -> Response {
    match book::contents().chapters().next() {
        Some(chapter) => page_response(&chapter.html_name(), &headers),
        None => no_such_page(),
    }
}

/// `/docs/{page}`.
pub(super) async fn one_page(uri: Uri, headers: HeaderMap) -> Response {
    match uri.path().strip_prefix("/docs/").unwrap_or_default() {
        // mdBook serves the first page under this name too.
        "index.html" => first_page(headers).await,
        name => page_response(name, &headers),
    }
}

/// `/docs/images/{image}`.
pub(super) async fn image(uri: Uri, headers: HeaderMap) -> Response {
    let name = uri.path().strip_prefix("/docs/").unwrap_or_default();
    let content_type = match name.rsplit_once('.') {
        Some((_, "png")) => "image/png",
        Some((_, "svg")) => "image/svg+xml",
        _ => "",
    };
    match book::file(name).filter(|_| !content_type.is_empty()) {
        Some(bytes) => cached(content_type, Body::from(bytes), xxh3_64(bytes), &headers),
        None => (StatusCode::NOT_FOUND, "the book has no such image\n").into_response(),
    }
}

/// The names of all pages, for the description of the route.
pub(super) fn page_names() -> Vec<String> {
    book::contents().chapters().map(Chapter::html_name).collect()
}

/// The names of all images, for the description of the route.
pub(super) fn image_names() -> Vec<&'static str> {
    book::file_names().filter_map(|name| name.strip_prefix("images/")).collect()
}

/// A page as sent. It does not depend on the request, so it is rendered once, when it is first
/// requested.
struct RenderedPage {
    text: Bytes,
    hash: u64,
}

fn page_response(name: &str, headers: &HeaderMap) -> Response {
    match rendered_page(name) {
        Some(RenderedPage { text, hash }) => {
            cached("text/html; charset=utf-8", Body::from(text.clone()), *hash, headers)
        }
        None => no_such_page(),
    }
}

/// The page with this name, if the book has it.
fn rendered_page(name: &str) -> Option<&'static RenderedPage> {
    static PAGES: LazyLock<BTreeMap<String, OnceLock<Option<RenderedPage>>>> =
        LazyLock::new(|| page_names().into_iter().map(|name| (name, OnceLock::new())).collect());
    PAGES.get(name)?.get_or_init(|| render(name)).as_ref()
}

fn render(name: &str) -> Option<RenderedPage> {
    let (chapter, before, after) = book::contents().find(name)?;
    let page = Page::render(book::source(&chapter.source)?);
    let body = html! {
        (PreEscaped(&page.html))
        div.turn {
            span { @if let Some(before) = before { a rel="prev" href=(before.html_name()) { "← " (before.title) } } }
            span { @if let Some(after) = after { a rel="next" href=(after.html_name()) { (after.title) " →" } } }
        }
    };
    let text = with_frame(&chapter.title, Some(chapter), &body, &page.headings).into_string();
    Some(RenderedPage { hash: xxh3_64(text.as_bytes()), text: text.into() })
}

/// A response that the client may keep; without a body if the client has it already.
pub(super) fn cached(
    content_type: &'static str,
    body: Body,
    hash: u64,
    headers: &HeaderMap,
) -> Response {
    let tag = format!("\"{hash:016x}\"");
    let is_known = updates::has(headers, &tag);
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, content_type)], body).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, CACHING);
    guard::allow_own_files(headers);
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

fn no_such_page() -> Response {
    let body = html! {
        h1 { "This page is not in the book" }
        p { "Perhaps the link is from another version of recliner. " a href="./" { "Start of the book" } "." }
    };
    guard::page(StatusCode::NOT_FOUND, with_frame("not found", None, &body, &[]))
}

/// A page with its frame.
fn with_frame(
    title: &str,
    current: Option<&Chapter>,
    body: &Markup,
    headings: &[Heading],
) -> Markup {
    let second = headings.iter().filter(|heading| (2..=3).contains(&heading.depth));
    let second: Vec<&Heading> = second.collect();
    let body = html! {
        div.chaptered {
            main #page-content { (body) }
            (chapters(current))
            @if second.len() > 1 {
                nav.toc aria-label="On this page" {
                    p.part { "On this page" }
                    ul {
                        @for heading in second {
                            li.{ "depth" (heading.depth) } { a href={ "#" (heading.id) } { (heading.text) } }
                        }
                    }
                }
            }
        }
    };
    console::book_document(title, &body)
}

/// The list of all chapters.
fn chapters(current: Option<&Chapter>) -> Markup {
    html! {
        nav #contents .chapters aria-label="Contents" {
            @for part in &book::contents().parts {
                @if !part.title.is_empty() { p.part { (part.title) } }
                ul {
                    @for chapter in &part.chapters {
                        @let is_current = current == Some(chapter);
                        li { a href=(chapter.html_name()) aria-current=[is_current.then_some("page")] { (chapter.title) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_each_page_once() {
        for name in page_names() {
            let first = rendered_page(&name).expect("every chapter has a page");
            assert!(
                std::ptr::eq(first, rendered_page(&name).expect("every chapter still has a page")),
                "{name}"
            );
        }
        assert!(rendered_page("nothing.html").is_none());
    }
}
