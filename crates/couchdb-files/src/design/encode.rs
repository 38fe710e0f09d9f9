//! Encodes Erlang's external term format, for the input of a signature and for rows of trees.
//!
//! Owns the form of `term_to_binary(Term, [{minor_version, 1}])`; the signature is a digest of it,
//! so every byte matters.

use super::json::Json;

/// Maximum length of a list of bytes that is encoded as a string.
const LONGEST_STRING: usize = 0xffff;

/// An encoder of one term.
#[derive(Debug)]
pub(crate) struct Encoder {
    out: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self { out: vec![131] }
    }

    /// An encoder of a part of a term, without version byte.
    pub(crate) const fn part(out: Vec<u8>) -> Self {
        Self { out }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Adds a term that is already encoded.
    pub(crate) fn encoded(&mut self, term: &[u8]) {
        self.out.extend_from_slice(term);
    }

    /// Begins a list, unless it is empty; its elements and [`Self::nil`] follow.
    pub(crate) fn begin_list(&mut self, count: usize) {
        if count > 0 {
            self.out.push(108);
            self.length(count);
        }
    }

    /// Ends a list, or is an empty one.
    pub(crate) fn nil(&mut self) {
        self.out.push(106);
    }

    /// Begins a tuple; its elements follow.
    pub(crate) fn tuple(&mut self, count: u8) {
        self.out.extend_from_slice(&[104, count]);
    }

    /// Encodes a list that does not consist of bytes only.
    pub(crate) fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.begin_list(items.len());
        for item in items {
            write(self, item);
        }
        self.nil();
    }

    pub(crate) fn binary(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.push(109);
        self.length(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn atom(&mut self, name: &str) {
        self.out.push(100);
        self.out.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
        self.out.extend(name.as_bytes());
    }

    pub(crate) fn integer(&mut self, value: i128) {
        if let Ok(small) = u8::try_from(value) {
            self.out.extend_from_slice(&[97, small]);
        } else if let Ok(value) = i32::try_from(value) {
            self.out.push(98);
            self.out.extend_from_slice(&value.to_be_bytes());
        } else {
            let digits = value.unsigned_abs().to_le_bytes();
            let used = digits.iter().rposition(|digit| *digit != 0).map_or(0, |at| at + 1);
            self.out.extend_from_slice(&[
                110,
                u8::try_from(used).unwrap_or(16),
                u8::from(value < 0),
            ]);
            self.out.extend(digits.iter().take(used));
        }
    }

    /// Encodes a JSON value like CouchDB: an object is a tuple of one list of pairs.
    pub(crate) fn json(&mut self, value: &Json) {
        match value {
            Json::Integer(value) => self.integer(*value),
            Json::Float(value) => {
                self.out.push(70);
                self.out.extend_from_slice(&value.to_be_bytes());
            }
            Json::Text(text) => self.binary(text),
            Json::Array(items) => self.array(items),
            Json::Object(pairs) => {
                self.tuple(1);
                self.pairs(pairs);
            }
            Json::Null | Json::Bool(_) => self.atom(value.atom().unwrap_or_default()),
        }
    }

    /// Encodes an object's list of pairs.
    pub(in crate::design) fn pairs(&mut self, pairs: &[(String, Json)]) {
        self.list(pairs.iter(), |out, (key, value)| {
            out.tuple(2);
            out.binary(key);
            out.json(value);
        });
    }

    fn array(&mut self, items: &[Json]) {
        let byte = |item: &Json| match item {
            Json::Integer(value) => u8::try_from(*value).ok(),
            Json::Null
            | Json::Bool(_)
            | Json::Float(_)
            | Json::Text(_)
            | Json::Array(_)
            | Json::Object(_) => None,
        };
        let string: Option<Vec<u8>> = items.iter().map(byte).collect();
        match string.filter(|bytes| (1..=LONGEST_STRING).contains(&bytes.len())) {
            Some(bytes) => {
                self.out.push(107);
                self.out.extend_from_slice(
                    &u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes(),
                );
                self.out.extend(bytes);
            }
            None => self.list(items.iter(), Self::json),
        }
    }

    fn length(&mut self, length: usize) {
        self.out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    }
}
