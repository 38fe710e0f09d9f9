//! Describes a key: its allowed values, how they are written, and what an editor learns about them.
//!
//! Forms are composed: a list of a form, a section of keys. Never knows a particular key.

use super::{
    Change, When,
    output::Output,
    problem::quoted,
    section::{Report, Section, Spanned, scalar},
    tree::{Node, Value},
};
use crate::text::Label as _;
use serde_json::{Value as Json, json};
use std::{collections::BTreeMap, rc::Rc};

type Read<T> = dyn Fn(&mut Report, &Node, &str, Option<&T>) -> Option<T>;
type Write<T> = dyn Fn(&T) -> Option<Output>;
type Schema<T> = dyn Fn(Option<&T>) -> Json;
type Changes<T> = dyn Fn(&T, &T) -> Vec<Change>;

/// How values of this type are read, written and described.
pub(crate) struct Form<T> {
    /// Reads a node at a path, starting from the given value: keys that are left out keep it.
    read: Rc<Read<T>>,
    /// Converts a value to its written form; `None` if the key is left out.
    write: Rc<Write<T>>,
    /// The JSON Schema, with the given value as the default.
    schema: Rc<Schema<T>>,
    /// The changed keys between two values; always empty if values are compared as a whole.
    changes: Rc<Changes<T>>,
}

impl<T: 'static> Form<T> {
    /// A form with these three functions.
    pub(crate) fn new(
        read: impl Fn(&mut Report, &Node, &str, Option<&T>) -> Option<T> + 'static,
        write: impl Fn(&T) -> Option<Output> + 'static,
        schema: impl Fn(Option<&T>) -> Json + 'static,
    ) -> Self {
        Self {
            read: Rc::new(read),
            write: Rc::new(write),
            schema: Rc::new(schema),
            changes: Rc::new(|_, _| Vec::new()),
        }
    }

    /// A form whose schema contains the written value as the default.
    pub(crate) fn with_default(
        read: impl Fn(&mut Report, &Node, &str, Option<&T>) -> Option<T> + 'static,
        write: impl Fn(&T) -> Option<Output> + Clone + 'static,
        schema: impl Fn() -> Json + 'static,
    ) -> Self {
        let written = write.clone();
        Self::new(read, write, move |default| match default.and_then(&written) {
            Some(default) => merged(schema(), &json!({"default": default.json()})),
            None => schema(),
        })
    }

    /// A single word, number or text. `read` reports what is allowed instead, and `schema` tells an
    /// editor the same.
    pub(crate) fn scalar(
        read: impl Fn(&str) -> Result<T, String> + 'static,
        write: impl Fn(&T) -> Output + Clone + 'static,
        schema: Json,
    ) -> Self {
        Self::with_default(
            move |report, node, path, _| scalar(report, node, path, &read),
            move |value| Some(write(value)),
            move || schema.clone(),
        )
    }

    pub(crate) fn read(
        &self,
        report: &mut Report,
        node: &Node,
        path: &str,
        start: Option<&T>,
    ) -> Option<T> {
        (self.read)(report, node, path, start)
    }

    pub(crate) fn write(&self, value: &T) -> Option<Output> {
        (self.write)(value)
    }

    pub(crate) fn schema(&self, default: Option<&T>) -> Json {
        (self.schema)(default)
    }

    /// The changed keys between two values of a section.
    pub(crate) fn changes(&self, old: &T, new: &T) -> Vec<Change> {
        (self.changes)(old, new)
    }

    /// Uses the same notation for another type. `to` may refuse a value with a reason, or without
    /// one if the problem was already reported.
    pub(crate) fn map<U: 'static>(
        self,
        to: impl Fn(T) -> Result<U, Option<String>> + 'static,
        from: impl Fn(&U) -> T + Clone + 'static,
    ) -> Form<U> {
        let Self { read, write, schema, changes: _ } = self;
        let (from_start, from_default) = (from.clone(), from.clone());
        Form::new(
            move |report, node, path, start| {
                let value = read(report, node, path, start.map(&from_start).as_ref())?;
                let refused = |why: Option<String>| {
                    why.into_iter().for_each(|why| report.refuse(node.at, path, why));
                };
                to(value).map_err(refused).ok()
            },
            move |value| write(&from(value)),
            move |default| schema(default.map(&from_default).as_ref()),
        )
    }

    /// Uses the same notation for a part of another value.
    pub(crate) fn part_of<S: Clone + 'static>(
        self,
        get: fn(&S) -> &T,
        get_mut: fn(&mut S) -> &mut T,
    ) -> Form<S> {
        let Self { read, write, schema, changes } = self;
        let read = move |report: &mut Report, node: &Node, path: &str, start: Option<&S>| {
            let mut whole = start?.clone();
            *get_mut(&mut whole) = read(report, node, path, start.map(get))?;
            Some(whole)
        };
        let changes = move |old: &S, new: &S| changes(get(old), get(new));
        Form {
            changes: Rc::new(changes),
            ..Form::new(read, move |it| write(get(it)), move |it| schema(it.map(get)))
        }
    }

    /// A key that is accepted because other programs have it, but has no effect.
    pub(crate) fn without_effect<S: Clone + 'static>(self) -> Form<S> {
        let Self { read, schema, .. } = self;
        Form::new(
            move |report, node, path, start: Option<&S>| {
                read(report, node, path, None).and_then(|_| start.cloned())
            },
            |_| None,
            move |_| merged(schema(None), &json!({"deprecated": true})),
        )
    }

    /// Makes the key optional.
    pub(crate) fn optional(self) -> Form<Option<T>> {
        let Self { read, write, schema, changes: _ } = self;
        Form::new(
            move |report, node, path, start| {
                read(report, node, path, start.and_then(Option::as_ref)).map(Some)
            },
            move |value| value.as_ref().and_then(|value| write(value)),
            move |default| schema(default.and_then(Option::as_ref)),
        )
    }

    /// Adds the place where the value is written.
    pub(crate) fn spanned(self) -> Form<Spanned<T>> {
        let Self { read, write, schema, changes: _ } = self;
        Form::new(
            move |report, node, path, _| {
                let value = read(report, node, path, None)?;
                Some(Spanned { value, at: node.at, path: path.to_owned() })
            },
            move |found| write(&found.value),
            move |default| schema(default.map(|found| &found.value)),
        )
    }

    /// Makes the key optional and adds the place where it is written.
    pub(crate) fn placed(self) -> Form<Option<Spanned<T>>> {
        self.spanned().optional()
    }

    /// Starts from `blank` if there is no value yet, as in a list.
    pub(crate) fn starting_from(self, blank: T) -> Self {
        let Self { read, write, schema, changes } = self;
        let blank = Rc::new(blank);
        let default_blank = Rc::clone(&blank);
        Self {
            read: Rc::new(move |report, node, path, start| {
                read(report, node, path, start.or(Some(&blank)))
            }),
            write,
            schema: Rc::new(move |default| schema(default.or(Some(&default_blank)))),
            changes,
        }
    }

    /// Calls `look` with each value that is read, to report findings or problems about it.
    pub(crate) fn inspect(self, look: impl Fn(&mut Report, &Node, &str, &T) + 'static) -> Self {
        let read = self.read;
        let read = move |report: &mut Report, node: &Node, path: &str, start: Option<&T>| {
            let value = read(report, node, path, start)?;
            look(report, node, path, &value);
            Some(value)
        };
        Self { read: Rc::new(read), ..self }
    }

    /// Adds rules to the schema.
    pub(crate) fn with_schema(self, more: Json) -> Self {
        let schema = self.schema;
        let schema = move |default: Option<&T>| merged(schema(default), &more);
        Self { schema: Rc::new(schema), ..self }
    }
}

impl<T: 'static> Form<Vec<T>> {
    /// Leaves out the key if the list is empty.
    pub(crate) fn unless_empty(self) -> Self {
        let write = self.write;
        let write = move |value: &Vec<T>| write(value).filter(|_| !value.is_empty());
        Self { write: Rc::new(write), ..self }
    }
}

/// A list whose items all have this form.
pub(crate) fn list<T: 'static>(item: Form<T>) -> Form<Vec<T>> {
    let item = Rc::new(item);
    let (written, described) = (Rc::clone(&item), Rc::clone(&item));
    Form::with_default(
        move |report, node, path, _| {
            let Value::List(items) = &node.value else {
                let says = format!(
                    "found {}, expected a list; omit the key for the default, or write [] for none",
                    node.found()
                );
                report.refuse(node.at, path, says);
                return None;
            };
            let read = |(at, node): (usize, &Node)| {
                item.read(report, node, &format!("{path}[{at}]"), None)
            };
            Some(items.iter().enumerate().filter_map(read).collect())
        },
        move |values: &Vec<T>| {
            Some(Output::List(values.iter().filter_map(|value| written.write(value)).collect()))
        },
        move || json!({"type": "array", "items": described.schema(None)}),
    )
}

/// A mapping whose names and values have these forms.
pub(crate) fn mapping<T: 'static>(name: Form<String>, value: Form<T>) -> Form<BTreeMap<String, T>> {
    let value = Rc::new(value);
    let (written, described) = (Rc::clone(&value), Rc::clone(&value));
    let names = name.schema(None);
    Form::with_default(
        move |report, node, path, _| {
            let (section, _) = Section::open(report, node, path);
            let (report, entries) = section.into_entries();
            let mut read = BTreeMap::new();
            for (key, node) in entries {
                let path = format!("{path}[{}]", quoted(&key.text));
                let key = Node { at: key.at, value: Value::Text(key.text.clone()) };
                let key = name.read(report, &key, &path, None);
                if let (Some(key), Some(one)) = (key, value.read(report, node, &path, None)) {
                    read.insert(key, one);
                }
            }
            Some(read)
        },
        move |values: &BTreeMap<String, T>| {
            let write = |(key, one): (&String, &T)| Some((key.clone(), written.write(one)?));
            Some(Output::Map(values.iter().filter_map(write).collect()))
        },
        move || {
            json!({
                "type": ["object", "null"],
                "propertyNames": names,
                "additionalProperties": described.schema(None),
            })
        },
    )
}

pub(crate) struct Key<S> {
    /// The key's path in the file, such as `scan.interval`; only the last word if the section
    /// occurs more than once.
    path: &'static str,
    /// A sentence that describes the key to people.
    about: String,
    /// When a changed value takes effect; `None` for a section whose keys define it themselves.
    when: Option<When>,
    form: Form<S>,
}

impl<S: Clone + 'static> Key<S> {
    pub(crate) fn new(
        path: &'static str,
        about: &[&str],
        when: Option<When>,
        form: Form<S>,
    ) -> Self {
        Self { path, about: about.concat().trim().to_owned(), when, form }
    }

    /// The key's name in the file.
    pub(crate) fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// The value's written form; `None` if the key is left out.
    pub(crate) fn write(&self, section: &S) -> Option<Output> {
        self.form.write(section)
    }

    fn described(&self, default: Option<&S>) -> Json {
        let mut about = json!({"description": self.about});
        if let Some(when) = self.when {
            about["x-takes-effect"] = when.label().into();
        }
        merged(self.form.schema(default), &about)
    }

    fn changed(&self, old: &S, new: &S) -> Vec<Change> {
        match self.when {
            None => self.form.changes(old, new),
            Some(_) if self.write(old) == self.write(new) => Vec::new(),
            Some(when) => vec![Change { key: self.path, when }],
        }
    }
}

/// Describes keys: a doc comment, and below it the key's path in the file, its field, when a
/// changed value takes effect (`_` for a section whose keys define it themselves), and its form:
/// `"scan.top" => top, NextSweep, integer(0..=100_000);`.
///
/// Does not compile unless every field of the struct is described; `in` allows fields without a
/// key.
macro_rules! keys {
    ($type:ident {
        $($(#[doc = $about:literal])+ $path:literal => $field:ident, $when:tt, $form:expr;)+
    }) => {{
        let _every_field = |$type { $($field: _),+ }: &$type| {};
        keys!(in $type { $($(#[doc = $about])+ $path => $field, $when, $form;)+ })
    }};
    (in $type:ty {
        $($(#[doc = $about:literal])+ $path:literal => $($field:ident).+, $when:tt, $form:expr;)+
    }) => {
        vec![$($crate::config_format::form::Key::new(
            $path,
            &[$($about),+],
            keys!(when $when),
            $form.part_of(
                |section: &$type| &section.$($field).+,
                |section: &mut $type| &mut section.$($field).+,
            ),
        )),+]
    };
    (when _) => { None };
    (when ($when:expr)) => { Some($when) };
    (when $when:ident) => { Some($crate::config_format::When::$when) };
}
pub(crate) use keys;

/// Declares a section of the configuration: a struct in which every field is a key. Uses the
/// notation of `keys!`, with the type and the default after the field: `"scan.top" => top: usize =
/// 100, NextSweep, integer(0..=100_000);`.
///
/// `check` receives the values that were read, for rules that involve several keys. `also` adds a
/// key without a field.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $vis:vis struct $type:ident {
            $($(#[doc = $about:literal])+
            $path:literal => $field:ident: $of:ty = $default:expr, $when:tt, $form:expr;)+
        }
        $(also = $also:expr;)?
        $(check = $check:expr;)?
    ) => {
        $(#[$meta])*
        $vis struct $type {
            $($(#[doc = $about])+ $vis $field: $of,)+
        }

        impl Default for $type {
            fn default() -> Self {
                Self { $($field: $default),+ }
            }
        }

        impl $type {
            pub(crate) fn form() -> $crate::config_format::form::Form<Self> {
                use $crate::config_format::form::{keys, section};
                let keys = keys!(in $type { $($(#[doc = $about])+ $path => $field, $when, $form;)+ });
                $(let keys = keys.into_iter().chain([$also]).collect();)?
                section(keys, settings!(check $($check)?))
            }
        }
    };
    (check) => { |_, _| {} };
    (check $check:expr) => { $check };
}
pub(crate) use settings;

/// A section with these keys; `check` receives the values that were read, for rules that involve
/// several keys.
pub(crate) fn section<S: Clone + 'static>(
    keys: Vec<Key<S>>,
    check: impl Fn(&mut S, &mut Section<'_, '_>) + 'static,
) -> Form<S> {
    let keys = Rc::new(keys);
    let (written, described, compared) = (Rc::clone(&keys), Rc::clone(&keys), Rc::clone(&keys));
    let form = Form::new(
        move |report, node, path, start: Option<&S>| {
            let mut value = start?.clone();
            let (mut section, is_mapping) = Section::open(report, node, path);
            for key in keys.iter() {
                section.read_key(key.name(), |report, node, path| {
                    let read = key.form.read(report, node, path, Some(&value));
                    let is_read = read.is_some();
                    read.into_iter().for_each(|read| value = read);
                    is_read
                });
            }
            if is_mapping {
                check(&mut value, &mut section);
            }
            section.close(is_mapping);
            Some(value)
        },
        move |value| {
            let write = |key: &Key<S>| Some((key.name().to_owned(), key.write(value)?));
            Some(Output::Map(written.iter().filter_map(write).collect()))
        },
        // An empty section may be written without a value.
        move |default| {
            let describe = |key: &Key<S>| (key.name().to_owned(), key.described(default));
            json!({
                "type": ["object", "null"],
                "properties": described.iter().map(describe).collect::<serde_json::Map<_, _>>(),
                "additionalProperties": false,
            })
        },
    );
    let changes =
        move |old: &S, new: &S| compared.iter().flat_map(|key| key.changed(old, new)).collect();
    Form { changes: Rc::new(changes), ..form }
}

fn merged(mut schema: Json, more: &Json) -> Json {
    if let (Json::Object(schema), Json::Object(more)) = (&mut schema, more) {
        schema.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    schema
}
