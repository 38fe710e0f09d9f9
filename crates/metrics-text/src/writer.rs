//! The writer of both text formats.
//!
//! Owns the layout of lines, the escaping, and the rule that a family's samples follow each other
//! under one header. Never sorts or rounds its input. Used for every family declared with
//! [`super::families`] and, through `registry`, for those of `prometheus`.
//!
//! It is built for a hundred thousand series in one scrape: the text before and between label
//! values is built once for each family, a target's labels once for all its families
//! ([`super::LabelSets`]), numbers are formatted without `fmt`, and text is compressed while it is
//! still in the processor's cache.

use super::{
    Encoding, TextFormat,
    escape::{push_char, push_escaped},
    family::{Family, MetricType, Unit},
    gzip::GzipEncoder,
    labels::LabelSet,
    number,
};
use std::{collections::HashSet, fmt, mem};
use wall_clock::Moment;

/// A family, and the function that reads its value from a row, if known.
pub type Column<'a, const N: usize, R, V> = (&'a Family<N>, fn(R) -> Option<V>);

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A count, a size or a time; exact.
    Integer(u64),
    /// Any other number.
    Float(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Integer(u64::from(value))
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Integer(value as u64)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Integer(u64::from(value))
    }
}

impl From<Moment> for Value {
    /// Seconds since 1970.
    fn from(value: Moment) -> Self {
        Self::Integer(value.unix())
    }
}

/// The size of a default configuration's text, so that most writers need not grow.
const INITIAL_CAPACITY: usize = 256 << 10;

/// Size of the text that is compressed at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Receives a text piece by piece; returns whether it accepts more.
pub type PieceSink = Box<dyn FnMut(Vec<u8>) -> bool + Send>;

/// The receiver of pieces.
struct PieceOutput {
    sink: PieceSink,
    /// Compressed bytes that are too few to be passed on yet.
    pending: Vec<u8>,
    is_wanted: bool,
}

impl fmt::Debug for PieceOutput {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pieces").field("wanted", &self.is_wanted).finish_non_exhaustive()
    }
}

impl PieceOutput {
    fn send(&mut self, piece: Vec<u8>) {
        self.is_wanted = self.is_wanted && (self.sink)(piece);
    }
}

/// Writes families one after another into a text.
#[derive(Debug)]
pub struct Writer {
    pub(super) format: TextFormat,
    pub(super) out: String,
    gzip: Option<GzipEncoder>,
    pieces: Option<PieceOutput>,
    written: HashSet<Box<str>>,
}

impl Writer {
    /// A writer for a new text.
    pub fn new(format: TextFormat, coding: Encoding) -> Self {
        let (gzip, room) = match coding {
            Encoding::Identity => (None, INITIAL_CAPACITY),
            Encoding::Gzip => (Some(GzipEncoder::new()), 2 * PIECE_BYTES),
        };
        let out = String::with_capacity(room);
        Self { format, out, gzip, pieces: None, written: HashSet::new() }
    }

    /// A writer that passes its text to `sink` in pieces of some tens of kilobytes, except for the
    /// last part.
    pub fn to(format: TextFormat, coding: Encoding, sink: PieceSink) -> Self {
        let gzip = (coding == Encoding::Gzip).then(GzipEncoder::new);
        let pieces = Some(PieceOutput { sink, pending: Vec::new(), is_wanted: true });
        Self {
            format,
            out: String::with_capacity(2 * PIECE_BYTES),
            gzip,
            pieces,
            written: HashSet::new(),
        }
    }

    /// Passes on or compresses the text written so far.
    #[cold]
    fn pass_on(&mut self) {
        match (&mut self.gzip, &mut self.pieces) {
            (_, Some(pieces)) if !pieces.is_wanted => self.out.clear(),
            (Some(gzip), pieces) => {
                gzip.compress(&mut self.out);
                if let Some(pieces) = pieces {
                    pieces.pending.extend(gzip.take_ready());
                    if pieces.pending.len() >= PIECE_BYTES {
                        let packed = mem::take(&mut pieces.pending);
                        pieces.send(packed);
                    }
                }
            }
            (None, Some(pieces)) => {
                let piece = mem::replace(&mut self.out, String::with_capacity(2 * PIECE_BYTES));
                pieces.send(piece.into_bytes());
            }
            (None, None) => {}
        }
    }

    /// Opens a family. Nothing is written before its first sample.
    ///
    /// A family may occur only once in a text. Opening it again after it got samples is an error
    /// of the caller: this panics in debug builds and writes nothing in others, because a second
    /// header makes OpenMetrics readers drop the whole scrape.
    pub fn family<const N: usize>(&mut self, family: &Family<N>) -> Samples<'_, N> {
        let again = self.was_written(family.name);
        debug_assert!(!again, "{} was written before", family.name);
        Samples {
            header: FamilyHeader::of(family),
            label_heads: label_heads(family),
            names: family.labels,
            state: FamilyState::of(again),
            writer: self,
        }
    }

    /// Writes a family with these samples, each with its label values in the order of the family's
    /// labels.
    #[expect(single_use_lifetimes, reason = "an anonymous one is not stable here")]
    pub fn write<'a, const N: usize, V: Into<Value>>(
        &mut self,
        family: &Family<N>,
        samples: impl IntoIterator<Item = ([&'a str; N], V)>,
    ) {
        let mut out = self.family(family);
        for (labels, value) in samples {
            out.sample(&labels, value);
        }
    }

    /// Writes families over the same rows; each function reads a family's value from a row, if known.
    pub fn write_each<const N: usize, R: Copy, V: Into<Value>>(
        &mut self,
        rows: &[([&str; N], R)],
        families: &[Column<'_, N, R, V>],
    ) {
        for (family, read) in families {
            let samples = rows.iter().filter_map(|(labels, row)| Some((*labels, read(*row)?)));
            self.write(family, samples);
        }
    }

    /// Reserves memory for this many more bytes. Text that is passed on in pieces needs none.
    pub fn reserve(&mut self, bytes: usize) {
        if self.gzip.is_none() && self.pieces.is_none() {
            self.out.reserve(bytes);
        }
    }

    /// Ends the text, with OpenMetrics's `# EOF` if required, in its encoding; returns the part
    /// that was not passed on before.
    pub fn finish(mut self) -> Vec<u8> {
        let packed = self.pieces.take().map(|pieces| pieces.pending);
        self.finish_text(packed.unwrap_or_default())
    }

    /// Ends the text of a writer with a sink, and passes the last part to it. Returns whether the
    /// sink accepted everything.
    pub fn finish_to_sink(mut self) -> bool {
        let Some(mut pieces) = self.pieces.take() else { return true };
        if pieces.is_wanted {
            let rest = self.finish_text(mem::take(&mut pieces.pending));
            pieces.send(rest);
        }
        pieces.is_wanted
    }

    /// The rest of the text, after compressed bytes that were not passed on.
    fn finish_text(mut self, mut packed: Vec<u8>) -> Vec<u8> {
        if self.format == TextFormat::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        match self.gzip {
            Some(gzip) if packed.is_empty() => gzip.finish(self.out),
            Some(gzip) => {
                packed.extend(gzip.finish(self.out));
                packed
            }
            None => self.out.into_bytes(),
        }
    }

    #[inline]
    pub(super) fn end_line(&mut self) {
        self.out.push('\n');
        if self.out.len() >= PIECE_BYTES && (self.gzip.is_some() || self.pieces.is_some()) {
            self.pass_on();
        }
    }

    pub(super) fn was_written(&self, name: &str) -> bool {
        self.written.contains(name)
    }

    /// Writes a family's comment lines and records that it was written.
    pub(super) fn header(&mut self, header: &FamilyHeader<'_>) {
        self.written.insert(header.name.into());
        let out = &mut self.out;
        let (name, word) = match self.format {
            TextFormat::Text => (header.name, header.text_type),
            TextFormat::OpenMetrics => (header.openmetrics_name(), header.openmetrics_type),
        };
        if !header.help.is_empty() {
            out.extend(["# HELP ", name, " "]);
            match self.format {
                TextFormat::Text => push_help(out, header.help),
                TextFormat::OpenMetrics => push_escaped(out, header.help),
            }
            out.push('\n');
        }
        out.extend(["# TYPE ", name, " ", word, "\n"]);
        let unit = Unit::ending(header.name);
        if self.format == TextFormat::OpenMetrics && unit != Unit::None {
            out.extend(["# UNIT ", name, " ", unit.label(), "\n"]);
        }
    }
}

/// The content of a family's comment lines.
#[derive(Debug)]
pub(super) struct FamilyHeader<'a> {
    pub(super) name: &'a str,
    pub(super) help: &'a str,
    pub(super) text_type: &'static str,
    pub(super) openmetrics_type: &'static str,
}

impl<'a> FamilyHeader<'a> {
    fn of<const N: usize>(family: &Family<N>) -> FamilyHeader<'static> {
        let word = family.metric_type.label();
        FamilyHeader {
            name: family.name,
            help: family.help,
            text_type: word,
            openmetrics_type: word,
        }
    }

    /// In OpenMetrics a counter's family is named without the `_total` of its samples.
    fn openmetrics_name(&self) -> &'a str {
        if self.openmetrics_type == MetricType::Counter.label() {
            self.name.strip_suffix("_total").unwrap_or(self.name)
        } else {
            self.name
        }
    }
}

/// The text before each label's value: `name{first="`, then `",second="`.
fn label_heads<const N: usize>(family: &Family<N>) -> [String; N] {
    let mut before = [family.name, "{"].concat();
    family.labels.map(|label| {
        let head = [&before, label, "=\""].concat();
        before = "\",".to_owned();
        head
    })
}

/// The progress of writing a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FamilyState {
    Empty,
    Open,
    /// The family was already written.
    AlreadyWritten,
}

impl FamilyState {
    const fn of(again: bool) -> Self {
        if again { Self::AlreadyWritten } else { Self::Empty }
    }
}

/// A family that accepts samples until another one is opened.
#[derive(Debug)]
pub struct Samples<'w, const N: usize> {
    writer: &'w mut Writer,
    header: FamilyHeader<'static>,
    label_heads: [String; N],
    names: [&'static str; N],
    state: FamilyState,
}

impl<const N: usize> Samples<'_, N> {
    /// Writes one sample, with its label values in the order of the family's labels.
    ///
    /// The caller must not write two samples of a family with the same label values
    /// (`tests/duplicate_series` finds them in tests).
    #[inline]
    pub fn sample(&mut self, labels: &[&str; N], value: impl Into<Value>) {
        if !self.is_open() {
            return;
        }
        let out = &mut self.writer.out;
        for (head, label) in self.label_heads.iter().zip(labels) {
            out.push_str(head);
            push_escaped(out, label);
        }
        if N == 0 {
            out.push_str(self.header.name);
            out.push(' ');
        } else {
            out.push_str("\"} ");
        }
        push_value(out, value.into());
        self.writer.end_line();
    }

    /// Like [`sample`](Self::sample), with label values that were prepared for a family with these
    /// labels.
    #[inline]
    pub fn sample_of(&mut self, labels: LabelSet<'_, N>, value: impl Into<Value>) {
        debug_assert_eq!(*labels.names, self.names, "labels of {}", self.header.name);
        if !self.is_open() {
            return;
        }
        let out = &mut self.writer.out;
        out.push_str(self.header.name);
        out.push_str(labels.text());
        push_value(out, value.into());
        self.writer.end_line();
    }

    /// Writes one histogram, with its label values in the order of the family's labels: pairs of
    /// upper bound and number of values at or below it, without the last bucket, which is `count`.
    pub fn histogram(&mut self, labels: &[&str; N], buckets: &[(f64, u64)], count: u64, sum: f64) {
        if !self.is_open() {
            return;
        }
        let name = self.header.name;
        let mut label_text = String::new();
        for (head, label) in self.label_heads.iter().zip(labels) {
            // The first head begins with the family's name.
            label_text.push_str(head.strip_prefix(name).unwrap_or(head));
            push_escaped(&mut label_text, label);
        }
        let (open, close) = if N == 0 { ("{", "") } else { ("\",", "\"}") };
        for (bound, values) in buckets.iter().copied().chain([(f64::INFINITY, count)]) {
            let out = &mut self.writer.out;
            out.extend([name, "_bucket", &label_text, open, "le=\""]);
            number::push_canonical(out, bound);
            out.push_str("\"} ");
            push_value(out, Value::Integer(values));
            self.writer.end_line();
        }
        for (ending, value) in [("_sum", Value::Float(sum)), ("_count", Value::Integer(count))] {
            let out = &mut self.writer.out;
            out.extend([name, ending, &label_text, close, " "]);
            push_value(out, value);
            self.writer.end_line();
        }
    }

    /// Whether samples may be written; the first call writes the header.
    fn is_open(&mut self) -> bool {
        if self.state == FamilyState::Empty {
            self.writer.header(&self.header);
            self.state = FamilyState::Open;
        }
        self.state == FamilyState::Open
    }
}

#[inline]
fn push_value(out: &mut String, value: Value) {
    match value {
        Value::Integer(value) => number::push_u64(out, value),
        Value::Float(value) => number::push_f64(out, value),
    }
}

/// Appends help as in text 0.0.4, where a quote is not escaped.
fn push_help(out: &mut String, text: &str) {
    text.chars().for_each(|c| push_char(out, c, false));
}
