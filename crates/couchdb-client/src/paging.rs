//! How far a list goes that comes page by page.
//!
//! Pure. A page has to go on behind the one before it, and all pages together have to stay near
//! what the first one promised, and within what nothing sensible exceeds: a server that always
//! has another page costs no more memory than a large cluster does.

use std::borrow::Cow;

/// How much there may be in all pages of a list together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Rows.
    pub(super) rows: usize,
    /// About what they take in memory, in bytes.
    pub(super) weight: usize,
}

/// Rows beyond twice the number that was promised: lists grow while they are read, and small
/// ones by more than their own length.
const SLACK: usize = 10_000;

/// Where a list stands: what the next page is asked with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paging {
    /// The key of the last row that came; the next page begins with it, or behind it where it
    /// has gone meanwhile.
    pub(super) after: Option<String>,
    rows: usize,
    weight: usize,
    /// How many rows there are in all, as the first page said.
    promised: Option<u64>,
}

/// A page as it came, in keys and numbers.
#[derive(Debug, Default)]
pub(super) struct Page<'a> {
    /// The keys of its rows.
    pub(super) keys: Vec<&'a str>,
    /// Whether it has as many rows as were asked for, so that there may be more.
    pub(super) full: bool,
    /// About what it takes in memory, in bytes.
    pub(super) weight: usize,
    /// How many rows there are in all, where it says so.
    pub(super) total: Option<u64>,
}

impl Paging {
    /// Where the list stands behind `page`; `None` at its end.
    ///
    /// # Errors
    /// In words, where the page does not go on or there are too many.
    pub(super) fn behind(
        from: Option<&Self>,
        page: &Page<'_>,
        most: Most,
    ) -> Result<Option<Self>, String> {
        let mut at = from.map_or_else(Cow::default, Cow::Borrowed).into_owned();
        let after = at.after.as_deref();
        let mut fresh = page.keys.iter().filter(|key| Some(**key) != after);
        let (first, count) = (fresh.clone().next(), fresh.clone().count());
        let last = fresh.next_back();
        for key in first.into_iter().chain(last) {
            // CouchDB sorts names and ids by their bytes (`raw` collation).
            if let Some(after) = after.filter(|after| key.as_bytes() <= after.as_bytes()) {
                return Err(format!("its pages do not go on: behind {after:?} comes {key:?}"));
            }
        }
        at.promised = at.promised.or_else(|| page.total.filter(|_| from.is_none()));
        at.rows = at.rows.saturating_add(count);
        at.weight = at.weight.saturating_add(page.weight);
        if let Some(promised) = at.promised.and_then(|promised| usize::try_from(promised).ok())
            && at.rows > promised.saturating_mul(2).saturating_add(SLACK)
        {
            let rows = at.rows;
            return Err(format!("its pages do not end: {rows} rows of {promised} that were said"));
        }
        if at.rows > most.rows || at.weight > most.weight {
            return Err(format!("its pages do not end: {} rows came", at.rows));
        }
        let last = last.filter(|_| page.full).map(|last| (*last).to_owned());
        Ok(last.map(|last| {
            at.after = Some(last);
            at
        }))
    }
}

/// About what a text takes in memory.
pub(super) const fn of_text(text: &str) -> usize {
    size_of::<String>() + text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: Most = Most { rows: 1_000_000, weight: 1 << 30 };

    fn page<'a>(keys: &[&'a str], full: bool) -> Page<'a> {
        Page { keys: keys.to_vec(), full, ..Page::default() }
    }

    fn behind(after: &str, keys: &[&str], full: bool) -> Result<Option<String>, String> {
        let from = Paging { after: Some(after.to_owned()), ..Paging::default() };
        let next = Paging::behind(Some(&from), &page(keys, full), MOST)?;
        Ok(next.and_then(|next| next.after))
    }

    #[test]
    fn a_page_goes_on_behind_the_one_before_it() {
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
            assert!(why.starts_with("its pages do not go on: behind \"c\" comes "), "{why}");
        }
    }

    /// Rows that are taken of a list without an end.
    fn taken(promised: Option<u64>, a_page: usize, weight: usize, most: Most) -> (usize, String) {
        let (mut at, mut rows): (Option<Paging>, usize) = (None, 0);
        loop {
            let keys: Vec<String> =
                (rows..rows + a_page).map(|number| format!("{number:09}")).collect();
            let keys = keys.iter().map(String::as_str).collect();
            let page = Page { keys, full: true, weight, total: promised };
            match Paging::behind(at.as_ref(), &page, most) {
                Ok(next) => at = next,
                Err(why) => return (rows, why),
            }
            rows += a_page;
        }
    }

    #[test]
    fn a_list_without_an_end_is_cut_off() {
        let (rows, why) = taken(Some(500), 500, 0, MOST);
        assert_eq!(rows, 11_000);
        assert_eq!(why, "its pages do not end: 11500 rows of 500 that were said");
        assert_eq!(taken(None, 500, 0, Most { rows: 2_000, ..MOST }).0, 2_000);
        assert_eq!(taken(Some(u64::MAX), 500, 0, Most { rows: 2_000, ..MOST }).0, 2_000);
        let (rows, why) = taken(None, 10, 100, Most { weight: 1_000, ..MOST });
        assert_eq!((rows, why.as_str()), (100, "its pages do not end: 110 rows came"));
    }

    #[test]
    fn the_first_page_alone_promises() {
        let first = Page { total: Some(3), ..page(&["a"], true) };
        let at = Paging::behind(None, &first, MOST).unwrap().unwrap();
        let later = Page { total: Some(1 << 40), ..page(&["b"], true) };
        let at = Paging::behind(Some(&at), &later, MOST).unwrap().unwrap();
        assert_eq!((at.promised, at.rows), (Some(3), 2));
    }

    proptest! {
        #[test]
        fn keys_only_ever_grow(pages in prop::collection::vec(prop::collection::vec("[a-c]{0,2}", 0..4), 0..9)) {
            let mut at: Option<Paging> = None;
            for keys in &pages {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let before = at.as_ref().and_then(|at| at.after.clone());
                match Paging::behind(at.as_ref(), &page(&keys, true), MOST) {
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
