//! A YAML document as a tree in which every node knows its place.
//!
//! Owns which documents are accepted: a single one, of limited depth and size, with unique texts as
//! keys. Scalars keep their text, because the key determines their type: `0123` as a password is
//! never read as a number.

use super::problem::{Place, Problem, Problems, quoted};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum nesting; no valid key is deeper than six levels.
const MAX_DEPTH: usize = 32;
/// Maximum memory in bytes that anchors and aliases may copy.
const MAX_COPIED: usize = 4 << 20;

/// A place in the text; line and column start at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl From<Marker> for At {
    fn from(marker: Marker) -> Self {
        Self { line: marker.line().max(1), column: marker.col() + 1 }
    }
}

/// A node and the place where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: At,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// No value, `~` or `null`.
    Nothing,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) at: At,
    pub(crate) text: String,
}

impl Node {
    /// The value of a key; `None` if the node is not a mapping or lacks the key.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => {
                entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node)
            }
            Value::Nothing | Value::Text(_) | Value::List(_) => None,
        }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Nothing | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// A description of the node for messages.
    pub(crate) fn found(&self) -> String {
        match &self.value {
            Value::Nothing => "nothing".to_owned(),
            Value::Text(text) => quoted(text),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }

    /// Size in memory, in bytes.
    fn size(&self) -> usize {
        let inside = match &self.value {
            Value::Nothing => 0,
            Value::Text(text) => text.len(),
            Value::List(items) => items.iter().map(Self::size).sum(),
            Value::Map(entries) => entries
                .iter()
                .map(|(key, node)| size_of::<Key>() + key.text.len() + node.size())
                .sum(),
        };
        size_of::<Self>() + inside
    }

    fn depth(&self) -> usize {
        match &self.value {
            Value::Nothing | Value::Text(_) => 1,
            Value::List(items) => items.iter().map(Self::depth).max().unwrap_or(0) + 1,
            Value::Map(entries) => {
                entries.iter().map(|(_, node)| node.depth()).max().unwrap_or(0) + 1
            }
        }
    }
}

/// A collection that is being read.
struct Open {
    at: At,
    anchor: usize,
    parts: Parts,
}

enum Parts {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, key: Option<Key>, seen: BTreeSet<String> },
}

struct Reader<'a> {
    file: &'a str,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    copied: usize,
    root: Option<Node>,
    documents: usize,
    problems: Vec<Problem>,
}

/// Reads the only document in `text`; an empty text counts as an empty mapping.
///
/// # Errors
/// Every duplicate key, or the place of the first syntax error.
pub(crate) fn read(file: &str, text: &str) -> Result<Node, Problems> {
    let mut reader = Reader {
        file,
        open: Vec::new(),
        anchors: BTreeMap::new(),
        copied: 0,
        root: None,
        documents: 0,
        problems: Vec::new(),
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let step = match event {
            Ok((event, span)) => reader.take(event, span),
            Err(error) => {
                let says = error.info();
                reader.refuse(
                    At::from(*error.marker()),
                    format!("cannot be read as YAML: {says}; check indentation, brackets and quotes just before this place"),
                );
                Err(Stop)
            }
        };
        if step.is_err() {
            break;
        }
    }
    if !reader.problems.is_empty() {
        return Err(Problems::new(reader.problems));
    }
    let start = At { line: 1, column: 1 };
    Ok(reader.root.unwrap_or(Node { at: start, value: Value::Nothing }))
}

/// The rest of the document cannot be read.
struct Stop;

impl Reader<'_> {
    fn refuse(&mut self, at: At, text: String) {
        let At { line, column } = at;
        let place = Place::At { file: self.file.to_owned(), line, column, key: String::new() };
        self.problems.push(Problem { place, text });
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Stop> {
        let at = At::from(span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.refuse(at, "a second document begins here; one is allowed".to_owned());
                    return Err(Stop);
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(at, tag.is_some())?;
                let nothing = style == ScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = if nothing { Value::Nothing } else { Value::Text(text.into_owned()) };
                self.put(Node { at, value }, anchor)
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    self.refuse(at, "this alias refers to a node that contains it".to_owned());
                    return Err(Stop);
                };
                let (size, too_deep) =
                    (node.size(), self.open.len().saturating_add(node.depth()) > MAX_DEPTH);
                self.copy(at, if too_deep { MAX_COPIED + 1 } else { size })?;
                let copy = self.anchors.get(&anchor).cloned().ok_or(Stop)?;
                self.put(copy, 0)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(at, tag.is_some())?;
                self.begin(Open { at, anchor, parts: Parts::List(Vec::new()) })
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(at, tag.is_some())?;
                let parts = Parts::Map { entries: Vec::new(), key: None, seen: BTreeSet::new() };
                self.begin(Open { at, anchor, parts })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { at, anchor, parts }) = self.open.pop() else {
                    return Err(Stop);
                };
                let value = match parts {
                    Parts::List(items) => Value::List(items),
                    Parts::Map { entries, .. } => Value::Map(entries),
                };
                self.put(Node { at, value }, anchor)
            }
        }
    }

    /// Counts a copy of this size against the limit.
    fn copy(&mut self, at: At, size: usize) -> Result<(), Stop> {
        self.copied = self.copied.saturating_add(size);
        if self.copied > MAX_COPIED {
            self.refuse(at, "aliases make this document too large".to_owned());
            return Err(Stop);
        }
        Ok(())
    }

    fn refuse_tag(&mut self, at: At, tagged: bool) -> Result<(), Stop> {
        if tagged {
            self.refuse(at, "found a tag (!); write the value without it".to_owned());
            return Err(Stop);
        }
        Ok(())
    }

    fn begin(&mut self, open: Open) -> Result<(), Stop> {
        // Collections as keys are refused before their content is read.
        if let Some(Open { parts: Parts::Map { key: None, .. }, .. }) = self.open.last() {
            self.refuse(
                open.at,
                "found a list or a mapping where a key belongs; keys are words".to_owned(),
            );
            return Err(Stop);
        }
        if self.open.len() >= MAX_DEPTH {
            self.refuse(open.at, format!("nested more than {MAX_DEPTH} levels deep"));
            return Err(Stop);
        }
        self.open.push(open);
        Ok(())
    }

    /// Adds a complete node to its parent.
    fn put(&mut self, node: Node, anchor: usize) -> Result<(), Stop> {
        if anchor > 0 {
            self.copy(node.at, node.size())?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        let mut twice = None;
        match &mut parent.parts {
            Parts::List(items) => items.push(node),
            Parts::Map { entries, key, seen } => match key.take() {
                Some(key) => {
                    if seen.insert(key.text.clone()) {
                        entries.push((key, node));
                    } else {
                        let first = entries.iter().find(|(other, _)| other.text == key.text);
                        twice = Some((key, first.map_or(0, |(other, _)| other.at.line)));
                    }
                }
                None => match node.value {
                    Value::Text(text) => *key = Some(Key { at: node.at, text }),
                    Value::Nothing | Value::List(_) | Value::Map(_) => {
                        let found = node.found();
                        self.refuse(
                            node.at,
                            format!("found {found} where a key belongs; keys are words"),
                        );
                        return Err(Stop);
                    }
                },
            },
        }
        if let Some((key, line)) = twice {
            self.refuse(
                key.at,
                format!("the key {} is written twice, first on line {line}", quoted(&key.text)),
            );
        }
        Ok(())
    }
}
