//! Draws points and lines on logarithmic axes, as the text of an SVG file.
//!
//! The picture has its own background, so that it is readable on light and on dark pages.

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 60.0;

/// The position of a label relative to its dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Above,
    Below,
}

#[derive(Clone, Debug)]
pub(crate) struct Dot {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The text next to the dot, if not empty.
    pub(crate) label: String,
}

/// Points of one colour.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) colour: &'static str,
    pub(crate) labels: Side,
    pub(crate) dots: Vec<Dot>,
    /// The points that the line connects, in the order of `x`.
    pub(crate) line: Vec<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x_title: &'static str,
    pub(crate) y_title: &'static str,
    pub(crate) series: Vec<Series>,
}

/// The visible part of one axis, and the pixels that it covers.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn around(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        Self { low: low / 1.3, high: high * 1.3, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        self.from + share * (self.to - self.from)
    }

    /// One, two and five times each power of ten in the visible part.
    fn ticks(&self) -> Vec<f64> {
        let powers = (0..18).map(|power| 10_f64.powi(power));
        let all = powers.flat_map(|power| [power, 2.0 * power, 5.0 * power]);
        all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

/// A round number of bytes.
fn size(bytes: f64) -> String {
    let units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6)];
    let unit = units.into_iter().find(|(_, unit)| bytes >= *unit);
    unit.map_or_else(|| format!("{bytes} B"), |(name, unit)| format!("{} {name}", bytes / unit))
}

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let dots = || self.series.iter().flat_map(|series| &series.dots);
        let x = Axis::around(dots().map(|dot| dot.x), LEFT, WIDTH - RIGHT);
        let y = Axis::around(dots().map(|dot| dot.y), HEIGHT - BOTTOM, TOP);
        let series = self.series.iter().enumerate();
        let series = series.map(|(at, one)| one.svg(&x, &y, LEFT + 250.0 * at as f64));
        let mut lines = vec![
            format!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="12" fill="{TEXT}" role="img">"#
            ),
            format!("<title>{}</title>", self.title),
            format!(r#"<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{PAPER}"/>"#),
            format!(
                r#"<text x="{LEFT}" y="26" font-size="15" font-weight="600">{}</text>"#,
                self.title
            ),
        ];
        lines.extend(self.grid(&x, &y));
        lines.extend(series.flatten());
        lines.push("</svg>\n".to_owned());
        lines.join("\n")
    }

    fn grid(&self, x: &Axis, y: &Axis) -> Vec<String> {
        let (left, right, top, bottom) = (x.from, x.to, y.to, y.from);
        let vertical = x.ticks().into_iter().map(|tick| {
            let at = x.at(tick);
            format!(
                r#"<path d="M{at:.1} {top:.1}V{bottom:.1}" stroke="{GRID}"/><text x="{at:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                bottom + 18.0,
                size(tick)
            )
        });
        let horizontal = y.ticks().into_iter().map(|tick| {
            let at = y.at(tick);
            format!(
                r#"<path d="M{left:.1} {at:.1}H{right:.1}" stroke="{GRID}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                left - 8.0,
                at + 4.0,
                size(tick)
            )
        });
        let middle = f64::midpoint(top, bottom);
        let titles = [
            format!(
                r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                f64::midpoint(left, right),
                HEIGHT - 16.0,
                self.x_title
            ),
            format!(
                r#"<text transform="translate(20 {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
                self.y_title
            ),
        ];
        vertical.chain(horizontal).chain(titles).collect()
    }
}

impl Series {
    /// The line, dots and labels, and the entry in the legend, which begins at `legend`.
    fn svg(&self, x: &Axis, y: &Axis, legend: f64) -> Vec<String> {
        let colour = self.colour;
        let points = self.line.iter().map(|(a, b)| format!("{:.1},{:.1}", x.at(*a), y.at(*b)));
        let points = points.collect::<Vec<_>>().join(" ");
        let dots = self.dots.iter().map(|dot| {
            let (at, up) = (x.at(dot.x), y.at(dot.y));
            format!(r#"<circle cx="{at:.1}" cy="{up:.1}" r="3.5" fill="{colour}"/>"#)
        });
        let labelled = self.dots.iter().filter(|dot| !dot.label.is_empty());
        let labels = labelled.map(|dot| {
            let (along, up, anchor) = match self.labels {
                Side::Above => (8.0, -6.0, "start"),
                Side::Below => (-8.0, 14.0, "end"),
            };
            format!(
                r#"<text x="{:.1}" y="{:.1}" text-anchor="{anchor}" fill="{colour}">{}</text>"#,
                x.at(dot.x) + along,
                y.at(dot.y) + up,
                dot.label
            )
        });
        let line = format!(
            r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>"#
        );
        let entry = format!(
            r#"<circle cx="{:.1}" cy="44" r="3.5" fill="{colour}"/><text x="{:.1}" y="48">{}</text>"#,
            legend + 4.0,
            legend + 14.0,
            self.name
        );
        [line].into_iter().chain(dots).chain(labels).chain([entry]).collect()
    }
}

const PAPER: &str = "#fdfdfc";
const TEXT: &str = "#333a44";
const GRID: &str = "#e3e5e8";
