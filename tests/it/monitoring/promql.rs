//! Parses PromQL: the selectors of an expression, and the labels it names.

use promql_parser::{
    label::{Labels, Matchers},
    parser::{self, Expr, LabelModifier, VectorSelector},
};
use std::{collections::BTreeSet, time::Duration};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Matcher {
    pub(crate) label: String,
    /// `=`, `!=`, `=~` or `!~`.
    pub(crate) op: String,
    pub(crate) value: String,
}

/// The labels by which an aggregation groups.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grouping {
    By(BTreeSet<String>),
    Without(BTreeSet<String>),
}

impl Grouping {
    /// Whether series that differ in this label stay separate.
    pub(crate) fn keeps(&self, label: &str) -> bool {
        match self {
            Self::By(labels) => labels.contains(label),
            Self::Without(labels) => !labels.contains(label),
        }
    }
}

/// One selector of an expression.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Selector {
    pub(crate) name: String,
    pub(crate) matchers: Vec<Matcher>,
    /// The range of a range selector.
    pub(crate) range: Option<Duration>,
    /// The function whose direct argument the selector is, parentheses ignored.
    pub(crate) function: Option<&'static str>,
    /// The aggregations around the selector, such as `sum`, the innermost last.
    pub(crate) aggregations: Vec<String>,
    /// The grouping of each aggregation.
    pub(crate) groupings: Vec<Grouping>,
}

impl Selector {
    /// The names that the selector matches: several if it uses a pattern.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.name.split('|')
    }
}

/// The names in an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) selectors: Vec<Selector>,
    /// Labels in `by`, `without`, `on`, `ignoring` and `group_…`, and those named by functions such
    /// as `label_replace`.
    pub(crate) labels: BTreeSet<String>,
}

/// Parses an expression in which Grafana's variables are already expanded.
pub(crate) fn read(expression: &str) -> Result<Reading, String> {
    let mut reading = Reading::default();
    walk(&parser::parse(expression)?, &Around::default(), &mut reading);
    Ok(reading)
}

/// Whether an expression may have a result if only series that are `there` exist. Functions that
/// need no series, such as `absent` and `vector`, and numbers always may.
pub(crate) fn may_yield(expression: &str, there: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    Ok(yields(&parser::parse(expression)?, there))
}

fn yields(expr: &Expr, there: &dyn Fn(&str) -> bool) -> bool {
    let selects = |it| selector(it, None, &Around::default()).names().any(there);
    match expr {
        Expr::Aggregate(it) => yields(&it.expr, there),
        Expr::Unary(it) => yields(&it.expr, there),
        Expr::Paren(it) => yields(&it.expr, there),
        Expr::Subquery(it) => yields(&it.expr, there),
        Expr::Binary(it) => {
            let (left, right) = (yields(&it.lhs, there), yields(&it.rhs, there));
            match it.op.to_string().as_str() {
                "or" => left || right,
                "unless" => left,
                _ => left && right,
            }
        }
        Expr::Call(it) => {
            let conjures = ["absent", "absent_over_time", "scalar", "vector"];
            conjures.contains(&it.func.name) || it.args.args.iter().all(|it| yields(it, there))
        }
        Expr::VectorSelector(it) => selects(it),
        Expr::MatrixSelector(it) => selects(&it.vs),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => true,
    }
}

/// The functions and aggregations around an expression.
#[derive(Clone, Debug, Default)]
struct Around {
    function: Option<&'static str>,
    aggregations: Vec<String>,
    groupings: Vec<Grouping>,
}

impl Around {
    fn function(&self, function: Option<&'static str>) -> Self {
        Self { function, ..self.clone() }
    }
}

fn walk(expr: &Expr, around: &Around, out: &mut Reading) {
    let plain = around.function(None);
    match expr {
        Expr::Aggregate(it) => {
            let mut inside = plain.clone();
            inside.aggregations.push(it.op.to_string());
            let labels = |of: &Labels| of.labels.iter().cloned().collect();
            inside.groupings.push(match &it.modifier {
                Some(LabelModifier::Exclude(of)) => Grouping::Without(labels(of)),
                Some(LabelModifier::Include(of)) => Grouping::By(labels(of)),
                None => Grouping::By(BTreeSet::new()),
            });
            walk(&it.expr, &inside, out);
            if let Some(parameter) = &it.param {
                walk(parameter, &plain, out);
            }
            out.labels.extend(it.modifier.iter().flat_map(|it| it.labels().labels.clone()));
        }
        Expr::Unary(it) => walk(&it.expr, &plain, out),
        Expr::Binary(it) => {
            walk(&it.lhs, &plain, out);
            walk(&it.rhs, &plain, out);
            if let Some(modifier) = &it.modifier {
                let matching = modifier.matching.iter().map(LabelModifier::labels);
                let lists = matching.chain(modifier.card.labels());
                out.labels.extend(lists.flat_map(|list| list.labels.clone()));
            }
        }
        Expr::Paren(it) => walk(&it.expr, around, out),
        Expr::Subquery(it) => walk(&it.expr, &plain, out),
        Expr::VectorSelector(it) => out.selectors.push(selector(it, None, around)),
        Expr::MatrixSelector(it) => {
            out.selectors.push(selector(&it.vs, Some(it.range), around));
        }
        Expr::Call(it) => {
            for argument in &it.args.args {
                walk(argument, &around.function(Some(it.func.name)), out);
            }
            if it.func.name.starts_with("label_") {
                let texts = it.args.args.iter().map(|argument| {
                    let Expr::StringLiteral(text) = &**argument else { return None };
                    Some(text.val.clone())
                });
                let texts: Vec<Option<String>> = texts.collect();
                // label_replace(v, dst, replacement, src, regex), label_join(v, dst, separator, src…)
                let named = texts.iter().enumerate().filter(|(at, _)| match it.func.name {
                    "label_replace" => [1, 3].contains(at),
                    _ => *at == 1 || *at >= 3,
                });
                out.labels.extend(named.filter_map(|(_, text)| text.clone()));
            }
        }
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

fn selector(it: &VectorSelector, range: Option<Duration>, around: &Around) -> Selector {
    let Matchers { matchers, or_matchers } = &it.matchers;
    let all = matchers.iter().chain(or_matchers.iter().flatten());
    let matchers = all.map(|matcher| Matcher {
        label: matcher.name.clone(),
        op: matcher.op.to_string(),
        value: matcher.value.clone(),
    });
    let mut matchers: Vec<Matcher> = matchers.collect();
    // The name, or a pattern of alternative names, as a matcher in braces.
    let named = |it: &Matcher| it.label == "__name__" && ["=", "=~"].contains(&&*it.op);
    let in_braces = matchers.iter().position(named);
    let in_braces = in_braces.map(|at| matchers.remove(at).value);
    let Around { function, aggregations, groupings } = around.clone();
    let name = it.name.clone().or(in_braces).unwrap_or_default();
    Selector { name, matchers, range, function, aggregations, groupings }
}

#[test]
fn every_part_of_an_expression_is_parsed() {
    let text = r#"
        label_replace(
            sum by (node, channel) (rate(a_total{job=~"x|y", node!="_cluster"}[5m]))
                / on (node) group_left (version) max without (instance) (b),
            "to", "$1", "from", "(.*)"
        ) > 0
        or (max_over_time((count({__name__=~"c|d"}))[1h:]))
    "#;
    let reading = read(text).expect("the expression is valid");
    let matcher = |label: &str, op: &str, value: &str| Matcher {
        label: label.to_owned(),
        op: op.to_owned(),
        value: value.to_owned(),
    };
    let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
    let plain = |name: &str, aggregation: &str, grouping: Grouping| Selector {
        name: name.to_owned(),
        matchers: Vec::new(),
        range: None,
        function: None,
        aggregations: vec![aggregation.to_owned()],
        groupings: vec![grouping],
    };
    let a = Selector {
        matchers: vec![matcher("job", "=~", "x|y"), matcher("node", "!=", "_cluster")],
        range: Some(Duration::from_secs(300)),
        function: Some("rate"),
        ..plain("a_total", "sum", Grouping::By(labels(&["node", "channel"])))
    };
    let b = plain("b", "max", Grouping::Without(labels(&["instance"])));
    let c = plain("c|d", "count", Grouping::By(BTreeSet::new()));
    assert!(a.groupings[0].keeps("node") && !a.groupings[0].keeps("instance"));
    assert!(b.groupings[0].keeps("node") && !b.groupings[0].keeps("instance"));
    assert_eq!(c.names().collect::<Vec<_>>(), ["c", "d"]);
    assert_eq!(reading.selectors, [a, b, c]);
    let labels: Vec<&str> = reading.labels.iter().map(String::as_str).collect();
    assert_eq!(labels, ["channel", "from", "instance", "node", "to", "version"]);
    for broken in ["sum by node (a)", "rate(a)", "a >", "a{b=c}"] {
        assert!(read(broken).is_err(), "{broken}");
    }
}
