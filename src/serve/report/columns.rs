//! Tables of answers, each said once: titles, alignment, and what a cell says.
//!
//! The console, the commands and `top` render them. A value keeps what a renderer may add: the console links
//! names and shows times as ages, a terminal shows dates, and `top` sorts by numbers.

use crate::{
    model::{rounding::to_bytes, target::TargetId},
    plan::RefusalReason,
    text::{Label as _, grouped, size, three_digits},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Which screens are too narrow for a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// None: the column is always shown.
    Any,
    /// Phones.
    Rest,
    /// Phones, and terminals of 80 characters.
    Wide,
}

/// The title of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Title {
    pub(crate) text: &'static str,
    pub(crate) room: Room,
    /// The API field by which the list is sorted when this column is chosen.
    pub(crate) sort: Option<&'static str>,
}

impl From<&'static str> for Title {
    fn from(text: &'static str) -> Self {
        any(text)
    }
}

impl Title {
    /// Lets the list be sorted by this column.
    pub(crate) const fn sorted_by(self, field: &'static str) -> Self {
        Self { sort: Some(field), ..self }
    }
}

/// The title of a column that is always shown.
pub(crate) const fn any(text: &'static str) -> Title {
    Title { text, room: Room::Any, sort: None }
}

/// The title of a column that phones leave out.
pub(crate) const fn rest(text: &'static str) -> Title {
    Title { room: Room::Rest, ..any(text) }
}

/// The title of a column that only wide screens show.
pub(crate) const fn wide(text: &'static str) -> Title {
    Title { room: Room::Wide, ..any(text) }
}

/// How a column's cells are aligned and broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// Aligned to the right, and never broken.
    Number,
    /// Sentences, which need more width.
    Sentence,
}

/// A table with a row for each value, built column by column.
#[derive(Debug)]
pub(crate) struct Table<T> {
    values: Vec<T>,
    pub(crate) columns: Vec<(Title, Kind)>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

impl<T: Copy> Table<T> {
    pub(crate) fn of(values: impl IntoIterator<Item = T>) -> Self {
        let values: Vec<T> = values.into_iter().collect();
        Self { columns: Vec::new(), rows: vec![Vec::new(); values.len()], values }
    }

    /// Adds a column of texts.
    pub(crate) fn text<C: Into<Cell>>(
        self,
        title: impl Into<Title>,
        cell: impl Fn(T) -> C,
    ) -> Self {
        self.add(Kind::Text, title.into(), cell)
    }

    /// Adds a column of numbers.
    pub(crate) fn number<C: Into<Cell>>(
        self,
        title: impl Into<Title>,
        cell: impl Fn(T) -> C,
    ) -> Self {
        self.add(Kind::Number, title.into(), cell)
    }

    /// Adds a column of sentences.
    pub(crate) fn says<C: Into<Cell>>(
        self,
        title: impl Into<Title>,
        cell: impl Fn(T) -> C,
    ) -> Self {
        self.add(Kind::Sentence, title.into(), cell)
    }

    fn add<C: Into<Cell>>(mut self, kind: Kind, title: Title, cell: impl Fn(T) -> C) -> Self {
        self.columns.push((title, kind));
        for (row, value) in self.rows.iter_mut().zip(&self.values) {
            row.push(cell(*value).into());
        }
        self
    }
}

/// The content of a cell, part by part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell(pub(crate) Vec<Part>);

#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) value: Value,
    /// The console's CSS class.
    pub(crate) class: Option<&'static str>,
    /// An explanation that the console shows on hover.
    pub(crate) title: Option<String>,
    /// The console page that the part links to.
    pub(crate) to: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A name chosen by a user.
    Name(String),
    /// The name of a node.
    Node(String),
    /// recliner's own words.
    Words(String),
    /// The title and the name of a set of rules that has a line in a chart.
    Rules(String, String),
    Bytes(u64),
    /// A time of the API.
    Time(String),
    Seconds(f64),
    /// A share from 0 to 1.
    Share(f64),
    Unknown,
    /// A reason, which the console shows on request.
    Why(String),
    /// Lines that the console shows on request, below these words.
    Details(String, Vec<String>),
    /// Text that a phone shows below the first column, in place of a column that it leaves out.
    Below(String),
}

impl From<Value> for Cell {
    fn from(value: Value) -> Self {
        Self(vec![Part { value, class: None, title: None, to: None }])
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Value::Name(text).into()
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(known: Option<T>) -> Self {
        known.map_or_else(|| Value::Unknown.into(), Into::into)
    }
}

impl Cell {
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn bytes(bytes: impl Into<Option<u64>>) -> Self {
        bytes.into().map(Value::Bytes).into()
    }

    /// Adds the error of a sample, if there is one.
    pub(crate) fn within(self, error: Option<u64>) -> Self {
        match error {
            None | Some(0) => self,
            Some(error) => self.and(Self::words(" ± ")).and(Self::bytes(error)),
        }
    }

    /// A sum, marked if it is a lower bound or an estimate.
    pub(crate) fn bounded(sum: impl Into<Option<u64>>, unknown: u64, estimated: u64) -> Self {
        let Some(sum) = sum.into() else { return Value::Unknown.into() };
        let (mark, means) = match size::bound(unknown, estimated) {
            "" => return Self::bytes(sum),
            mark if unknown > 0 => (mark, "some sizes are unknown"),
            mark => (mark, "some copies of views were not measured"),
        };
        Self::words(mark).explained(Some(means)).and(Self::bytes(sum))
    }

    pub(crate) fn count(count: impl TryInto<u64>) -> Self {
        Self::words(grouped(count.try_into().unwrap_or(u64::MAX)))
    }

    pub(crate) fn number(number: Option<f64>) -> Self {
        number.map(|number| Self::words(three_digits(number))).into()
    }

    pub(crate) fn seconds(seconds: impl Into<Option<f64>>) -> Self {
        seconds.into().map(Value::Seconds).into()
    }

    pub(crate) fn time(at: Option<&str>) -> Self {
        at.map(|at| Value::Time(at.to_owned())).into()
    }

    pub(crate) fn node(node: &str) -> Self {
        Value::Node(node.to_owned()).into()
    }

    pub(crate) fn rules(title: &str, name: &str) -> Self {
        Value::Rules(title.to_owned(), name.to_owned()).into()
    }

    pub(crate) fn words(words: impl Into<String>) -> Self {
        Value::Words(words.into()).into()
    }

    /// The day of an API time; the console explains it with the full time.
    pub(crate) fn date(at: &str) -> Self {
        Self::words(day(at)).explained(Some(at))
    }

    pub(crate) fn why(why: &str) -> Self {
        Value::Why(why.to_owned()).into()
    }

    pub(crate) fn details(words: impl Into<String>, lines: Vec<String>) -> Self {
        Value::Details(words.into(), lines).into()
    }

    pub(crate) fn database(db: &str) -> Self {
        Self::from(db).leading(link("database", &[("name", db)]))
    }

    pub(crate) fn target(id: &str, name: &str) -> Self {
        Self::from(name).leading(link("target", &[("id", id)]))
    }

    /// A target given by id, with the name used next to a column of nodes.
    pub(crate) fn id(id: &str, ddoc: Option<&str>) -> Self {
        Self::target(id, &target_name(id, ddoc))
    }

    /// A priority with its unit.
    pub(crate) fn score(score: Option<f64>, in_bytes: bool) -> Self {
        match score {
            Some(score) if in_bytes => Self::bytes(to_bytes(score.max(0.0))),
            score => Self::number(score),
        }
    }

    pub(crate) fn reason(label: &str) -> Self {
        let meaning = RefusalReason::from_label(label).map(RefusalReason::meaning);
        let words = Self::words(RefusalReason::words_of(label)).explained(meaning);
        words.leading(format!("docs/why.html#{label}"))
    }

    /// Appends another cell.
    pub(crate) fn and(mut self, other: impl Into<Self>) -> Self {
        self.0.extend(other.into().0);
        self
    }

    /// Appends text that only phones show, in place of a column that they leave out.
    pub(crate) fn below(self, text: &str) -> Self {
        self.and(Self::from(Value::Below(text.to_owned())))
    }

    /// Sets the console's CSS class.
    pub(crate) fn styled(mut self, class: &'static str) -> Self {
        self.0.iter_mut().for_each(|part| part.class = Some(class));
        self
    }

    pub(crate) fn quiet(self) -> Self {
        self.styled("quiet")
    }

    /// Adds an explanation for the console.
    pub(crate) fn explained(mut self, title: Option<&str>) -> Self {
        let title = title.map(str::to_owned);
        self.0.iter_mut().for_each(|part| part.title.clone_from(&title));
        self
    }

    /// Links to a page of the console.
    pub(crate) fn leading(mut self, to: String) -> Self {
        self.0.iter_mut().for_each(|part| part.to = Some(to.clone()));
        self
    }
}

/// A target's name for people, next to a column of nodes.
pub(crate) fn target_name(id: &str, ddoc: Option<&str>) -> String {
    id.parse::<TargetId>().map_or_else(|_| id.to_owned(), |id| id.name(ddoc))
}

pub(crate) fn day(at: &str) -> &str {
    at.split('T').next().unwrap_or(at)
}

/// A relative link with a query.
pub(crate) fn link(page: &str, query: &[(&str, &str)]) -> String {
    let pairs = query.iter().map(|(key, value)| [encoded(key), encoded(value)].join("="));
    let pairs: Vec<String> = pairs.collect();
    let mark = if pairs.is_empty() { "" } else { "?" };
    [page, mark, &pairs.join("&")].concat()
}

/// Percent-encodes every character that could have a meaning in a query.
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
