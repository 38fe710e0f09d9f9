//! A document to write, as YAML or as JSON.

use crate::text::{duration, quote::yaml_scalar};
use std::{path::Path, time::Duration};

/// A node of the document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    Nothing,
    Bool(bool),
    /// A number as it is written.
    Number(String),
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

/// A size in the largest unit that expresses it exactly, in a form that can be read back.
pub(crate) fn exact_bytes(bytes: u64) -> String {
    [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")]
        .into_iter()
        .find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// A text node.
pub(crate) fn text(text: &str) -> Output {
    Output::Text(text.to_owned())
}

impl Output {
    pub(crate) fn number(number: impl ToString) -> Self {
        Self::Number(number.to_string())
    }

    /// A duration in a form that can be read back.
    pub(crate) fn duration(span: Duration) -> Self {
        Self::Text(duration::format_exact(span))
    }

    /// A size in the largest unit that expresses it exactly.
    pub(crate) fn bytes(bytes: u64) -> Self {
        let text = exact_bytes(bytes);
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            Self::Number(text)
        } else {
            Self::Text(text)
        }
    }

    /// A path. A path that is not UTF-8 is written approximately.
    pub(crate) fn path(path: &Path) -> Self {
        Self::Text(path.to_string_lossy().into_owned())
    }

    /// Converts the document to JSON.
    pub(crate) fn json(self) -> serde_json::Value {
        match self {
            Self::Nothing => serde_json::Value::Null,
            Self::Bool(value) => value.into(),
            Self::Number(digits) => serde_json::from_str::<serde_json::Number>(&digits)
                .map_or(serde_json::Value::String(digits), serde_json::Value::Number),
            Self::Text(text) => text.into(),
            Self::List(items) => items.into_iter().map(Self::json).collect(),
            Self::Map(entries) => {
                entries.into_iter().map(|(key, value)| (key, value.json())).collect()
            }
        }
    }

    /// Converts the document to YAML in block style, with every text quoted.
    pub(crate) fn yaml(&self) -> String {
        let mut out = String::new();
        self.block(0, false, &mut out);
        out
    }

    fn block(&self, depth: usize, after_dash: bool, out: &mut String) {
        if self.is_scalar() {
            self.scalar(out);
            out.push('\n');
        } else if let Self::Map(entries) = self {
            for (at, (key, value)) in entries.iter().enumerate() {
                if at > 0 || !after_dash {
                    indent(depth, out);
                }
                out.push_str(&yaml_scalar(key));
                out.push(':');
                value.after_colon(depth, out);
            }
        } else if let Self::List(items) = self {
            for item in items {
                indent(depth, out);
                out.push_str("- ");
                item.block(depth + 1, true, out);
            }
        }
    }

    fn after_colon(&self, depth: usize, out: &mut String) {
        let is_nested = |item: &Self| matches!(item, Self::Map(_) | Self::List(_));
        if self.is_scalar() {
            out.push(' ');
            self.scalar(out);
            out.push('\n');
        } else if let Self::List(items) = self
            && !items.iter().any(is_nested)
        {
            out.push_str(" [");
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                item.scalar(out);
            }
            out.push_str("]\n");
        } else {
            out.push('\n');
            self.block(depth + 1, false, out);
        }
    }

    /// Whether it is written on one line; lists and maps without items are.
    fn is_scalar(&self) -> bool {
        match self {
            Self::Map(entries) => entries.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Nothing | Self::Bool(_) | Self::Number(_) | Self::Text(_) => true,
        }
    }

    fn scalar(&self, out: &mut String) {
        match self {
            Self::Nothing => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(digits) => out.push_str(digits),
            Self::Text(text) => out.push_str(&yaml_scalar(text)),
            // Lists with items are written as blocks, so this list is empty.
            Self::List(_) => out.push_str("[]"),
            Self::Map(_) => out.push_str("{}"),
        }
    }
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}
