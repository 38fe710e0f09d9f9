//! The databases that the stream writes to.

/// The writes to one database.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) q: u32,
    /// The database's share of all writes, as a weight.
    pub(crate) weight: u64,
    /// The approximate bytes of text in a document.
    pub(crate) bytes: usize,
    /// Of a hundred writes, the number that change an existing document.
    pub(crate) changes: u64,
    /// Of a hundred writes, the number that delete a document.
    pub(crate) deletes: u64,
    /// The number of documents above which only existing ones are changed.
    pub(crate) at_most: usize,
    /// Whether a view is kept up to date.
    pub(crate) view: bool,
}

impl Shape {
    fn new(prefix: &str, name: &str) -> Self {
        Self {
            name: format!("{prefix}{name}"),
            q: 1,
            weight: 1,
            bytes: 800,
            changes: 0,
            deletes: 0,
            at_most: usize::MAX,
            view: false,
        }
    }
}

/// Every database. Those with a view have one range, because only then CouchDB shows each copy of
/// the index by itself.
pub(crate) fn all(prefix: &str) -> Vec<Shape> {
    let of = |name: &str| Shape::new(prefix, name);
    let mut shapes = vec![
        Shape { q: 2, weight: 12, changes: 70, ..of("orders") },
        Shape { q: 2, weight: 8, bytes: 400, changes: 30, deletes: 30, ..of("sessions") },
        Shape { q: 2, weight: 4, bytes: 300, changes: 90, at_most: 200, ..of("counters") },
        Shape { weight: 4, bytes: 2_000, ..of("archive") },
        Shape { weight: 6, changes: 60, view: true, ..of("viewed") },
    ];
    for at in 0..5 {
        shapes.push(Shape {
            weight: 1 + at % 3,
            changes: 80,
            at_most: 2_000,
            ..of(&format!("tenant-{at}"))
        });
    }
    shapes
}
