//! Checks that a list that is read page by page advances and ends.
//!
//! Pure. Each page has to go on after the one before. All pages together have to stay near the
//! count in the first page, and within fixed limits: a server that always has another page costs
//! no more memory than a large cluster.

use std::borrow::Cow;

/// The limits of all pages of a list together.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageLimits {
    pub(super) rows: usize,
    /// Approximate size of the rows in memory, in bytes.
    pub(super) weight: usize,
}

/// Rows allowed beyond twice the announced count: lists grow while they are read, and a small list
/// may grow by more than its own length.
const SLACK: usize = 10_000;

/// The position in a list, from which the next page is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paging {
    /// The key of the last row. The next page begins with it, or after it if it was deleted in
    /// between.
    pub(super) after: Option<String>,
    rows: usize,
    weight: usize,
    /// The total number of rows in the first page.
    announced: Option<u64>,
}

/// The keys and numbers of a page.
#[derive(Debug, Default)]
pub(super) struct Page<'a> {
    /// The keys of its rows.
    pub(super) keys: Vec<&'a str>,
    /// Whether it has as many rows as requested, so that there may be more.
    pub(super) full: bool,
    /// Its approximate size in memory, in bytes.
    pub(super) weight: usize,
    /// The total number of rows, if the page has it.
    pub(super) total: Option<u64>,
}

impl Paging {
    /// The position after `page`; `None` at the end of the list.
    ///
    /// # Errors
    /// Says that the page does not go on, or that there are too many pages.
    pub(super) fn after_page(
        from: Option<&Self>,
        page: &Page<'_>,
        most: PageLimits,
    ) -> Result<Option<Self>, String> {
        let mut at = from.map_or_else(Cow::default, Cow::Borrowed).into_owned();
        let after = at.after.as_deref();
        let mut fresh = page.keys.iter().filter(|key| Some(**key) != after);
        let (first, count) = (fresh.clone().next(), fresh.clone().count());
        let last = fresh.next_back();
        for key in first.into_iter().chain(last) {
            // CouchDB sorts names and ids by their bytes (`raw` collation).
            if let Some(after) = after.filter(|after| key.as_bytes() <= after.as_bytes()) {
                return Err(format!("its pages are out of order: {key:?} comes after {after:?}"));
            }
        }
        at.announced = at.announced.or_else(|| page.total.filter(|_| from.is_none()));
        at.rows = at.rows.saturating_add(count);
        at.weight = at.weight.saturating_add(page.weight);
        if let Some(announced) = at.announced.and_then(|announced| usize::try_from(announced).ok())
            && at.rows > announced.saturating_mul(2).saturating_add(SLACK)
        {
            let rows = at.rows;
            return Err(format!(
                "its pages do not end: {rows} rows arrived, but {announced} were announced"
            ));
        }
        if at.rows > most.rows || at.weight > most.weight {
            return Err(format!("its pages do not end: {} rows arrived", at.rows));
        }
        let last = last.filter(|_| page.full).map(|last| (*last).to_owned());
        Ok(last.map(|last| {
            at.after = Some(last);
            at
        }))
    }
}

/// The approximate size of a text in memory.
pub(super) const fn size_of_text(text: &str) -> usize {
    size_of::<String>() + text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: PageLimits = PageLimits { rows: 1_000_000, weight: 1 << 30 };

    fn page<'a>(keys: &[&'a str], full: bool) -> Page<'a> {
        Page { keys: keys.to_vec(), full, ..Page::default() }
    }

    fn behind(after: &str, keys: &[&str], full: bool) -> Result<Option<String>, String> {
        let from = Paging { after: Some(after.to_owned()), ..Paging::default() };
        let next = Paging::after_page(Some(&from), &page(keys, full), MOST)?;
        Ok(next.and_then(|next| next.after))
    }

    #[test]
    fn page_must_continue_after_the_previous_one() {
        for (keys, full, expected) in [
            (&["c", "d", "e"][..], true, Some("e")),
            (&["d", "e", "f"], true, Some("f")),
            (&["c", "d"], false, None),
            (&["c"], true, None),
            (&[], true, None),
        ] {
            let next = behind("c", keys, full).unwrap();
            assert_eq!(next.as_deref(), expected, "{keys:?}");
        }
        for keys in [&["a", "b", "d"][..], &["b"], &["d", "a"], &["c", "a"], &["c", "d", "b"]] {
            let why = behind("c", keys, true).unwrap_err();
            assert!(why.starts_with("its pages are out of order: "), "{why}");
        }
    }

    /// How many rows of an endless list are read, and the error that stops it.
    fn read_endless(
        announced: Option<u64>,
        a_page: usize,
        weight: usize,
        most: PageLimits,
    ) -> (usize, String) {
        let (mut at, mut rows): (Option<Paging>, usize) = (None, 0);
        loop {
            let keys: Vec<String> =
                (rows..rows + a_page).map(|number| format!("{number:09}")).collect();
            let keys = keys.iter().map(String::as_str).collect();
            let page = Page { keys, full: true, weight, total: announced };
            match Paging::after_page(at.as_ref(), &page, most) {
                Ok(next) => at = next,
                Err(why) => return (rows, why),
            }
            rows += a_page;
        }
    }

    #[test]
    fn endless_list_is_cut_off() {
        let (rows, why) = read_endless(Some(500), 500, 0, MOST);
        assert_eq!(rows, 11_000);
        assert_eq!(why, "its pages do not end: 11500 rows arrived, but 500 were announced");
        assert_eq!(read_endless(None, 500, 0, PageLimits { rows: 2_000, ..MOST }).0, 2_000);
        assert_eq!(
            read_endless(Some(u64::MAX), 500, 0, PageLimits { rows: 2_000, ..MOST }).0,
            2_000
        );
        let (rows, why) = read_endless(None, 10, 100, PageLimits { weight: 1_000, ..MOST });
        assert_eq!((rows, why.as_str()), (100, "its pages do not end: 110 rows arrived"));
    }

    #[test]
    fn only_the_first_page_announces_the_row_count() {
        let first = Page { total: Some(3), ..page(&["a"], true) };
        let at = Paging::after_page(None, &first, MOST).unwrap().unwrap();
        let later = Page { total: Some(1 << 40), ..page(&["b"], true) };
        let at = Paging::after_page(Some(&at), &later, MOST).unwrap().unwrap();
        assert_eq!((at.announced, at.rows), (Some(3), 2));
    }

    proptest! {
        #[test]
        fn position_only_ever_advances(pages in prop::collection::vec(prop::collection::vec("[a-c]{0,2}", 0..4), 0..9)) {
            let mut at: Option<Paging> = None;
            for keys in &pages {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let before = at.as_ref().and_then(|at| at.after.clone());
                match Paging::after_page(at.as_ref(), &page(&keys, true), MOST) {
                    Ok(Some(next)) => {
                        prop_assert!(next.after > before);
                        at = Some(next);
                    }
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }
}
