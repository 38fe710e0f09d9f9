//! How one key is described: what may be written, how it is written back, and what an editor
//! learns about it.
//!
//! A [`Form`] is all three for one type of value, and forms are composed: a list of a form, a
//! section of keys. A [`Key`] is a form at its place in a section, with the sentence that
//! explains it and the moment from which a changed value is in force. Reading, writing, the
//! JSON Schema and what a reload changed all walk the same keys. Never knows a particular key.

use super::{
    changes::{Change, When},
    output::Output,
    section::{Report, Section, Spanned, scalar},
    tree::{Node, Value},
};
use serde_json::{Value as Json, json};
use std::{collections::BTreeMap, rc::Rc};

type Read<T> = dyn Fn(&mut Report, &Node, &str, Option<&T>) -> Option<T>;
type ReadInto<S> = dyn Fn(&mut Report, &Node, &str, &mut S) -> bool;
type Write<T> = dyn Fn(&T) -> Option<Output>;
type Schema<T> = dyn Fn(Option<&T>) -> Json;
type Changes<T> = dyn Fn(&T, &T) -> Vec<Change>;

/// What may be written for a value of this type.
pub(super) struct Form<T> {
    /// Reads a node at a path; what is left out stays as in the given value.
    read: Rc<Read<T>>,
    /// The value as it is read again; `None` where the key is left out.
    write: Rc<Write<T>>,
    /// The JSON Schema, with the given value as default.
    schema: Rc<Schema<T>>,
    /// What differs between two values, key by key; `None` where a value is compared as one.
    changes: Option<Rc<Changes<T>>>,
}

impl<T: 'static> Form<T> {
    /// A form by its three parts.
    pub(super) fn new(
        read: impl Fn(&mut Report, &Node, &str, Option<&T>) -> Option<T> + 'static,
        write: impl Fn(&T) -> Option<Output> + 'static,
        schema: impl Fn(Option<&T>) -> Json + 'static,
    ) -> Self {
        Self { read: Rc::new(read), write: Rc::new(write), schema: Rc::new(schema), changes: None }
    }

    /// One word, number or text; `read` says what is allowed instead, and `schema` says the
    /// same to an editor.
    pub(super) fn scalar(
        read: impl Fn(&str) -> Result<T, String> + 'static,
        write: impl Fn(&T) -> Output + Clone + 'static,
        schema: Json,
    ) -> Self {
        let write_default = write.clone();
        Self::new(
            move |report, node, path, _| scalar(report, node, path, &read),
            move |value| Some(write(value)),
            move |default| with_default(schema.clone(), default.map(&write_default)),
        )
    }

    pub(super) fn read(
        &self,
        report: &mut Report,
        node: &Node,
        path: &str,
        start: Option<&T>,
    ) -> Option<T> {
        (self.read)(report, node, path, start)
    }

    pub(super) fn write(&self, value: &T) -> Option<Output> {
        (self.write)(value)
    }

    pub(super) fn schema(&self, default: Option<&T>) -> Json {
        (self.schema)(default)
    }

    /// What differs between two values of a section.
    pub(super) fn changes(&self, old: &T, new: &T) -> Vec<Change> {
        self.changes.as_ref().map(|changes| changes(old, new)).unwrap_or_default()
    }

    /// The same notation for another type; `to` says why a value is refused after all, or
    /// nothing where that was reported already.
    pub(super) fn map<U: 'static>(
        self,
        to: impl Fn(T) -> Result<U, Option<String>> + 'static,
        from: impl Fn(&U) -> T + Clone + 'static,
    ) -> Form<U> {
        let Self { read, write, schema, changes: _ } = self;
        let (from_start, from_default) = (from.clone(), from.clone());
        Form::new(
            move |report, node, path, start| {
                let value = read(report, node, path, start.map(&from_start).as_ref())?;
                match to(value) {
                    Ok(value) => Some(value),
                    Err(why) => {
                        if let Some(why) = why {
                            report.refuse(node.at, path, why);
                        }
                        None
                    }
                }
            },
            move |value| write(&from(value)),
            move |default| schema(default.map(&from_default).as_ref()),
        )
    }

    /// A key that may be left out.
    pub(super) fn optional(self) -> Form<Option<T>> {
        let Self { read, write, schema, changes: _ } = self;
        Form::new(
            move |report, node, path, start| {
                read(report, node, path, start.and_then(Option::as_ref)).map(Some)
            },
            move |value| value.as_ref().and_then(|value| write(value)),
            move |default| schema(default.and_then(Option::as_ref)),
        )
    }

    /// A key that may be left out, with the place where it is written.
    pub(super) fn placed(self) -> Form<Option<Spanned<T>>> {
        let Self { read, write, schema, changes: _ } = self;
        Form::new(
            move |report, node, path, _| {
                let value = read(report, node, path, None)?;
                Some(Some(Spanned { value, at: node.at, path: path.to_owned() }))
            },
            move |value| value.as_ref().and_then(|found| write(&found.value)),
            move |default| schema(default.and_then(Option::as_ref).map(|found| &found.value)),
        )
    }

    /// Begins with `blank` where there is no value yet, as in a list.
    pub(super) fn starting_from(self, blank: T) -> Self {
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

    /// Reports what is worth knowing about each value that is read.
    pub(super) fn inspect(self, look: impl Fn(&mut Report, &Node, &str, &T) + 'static) -> Self {
        let read = self.read;
        let read = move |report: &mut Report, node: &Node, path: &str, start: Option<&T>| {
            let value = read(report, node, path, start)?;
            look(report, node, path, &value);
            Some(value)
        };
        Self { read: Rc::new(read), ..self }
    }

    /// Adds rules to the schema.
    pub(super) fn with_schema(self, more: Json) -> Self {
        let schema = self.schema;
        let schema = move |default: Option<&T>| merged(schema(default), &more);
        Self { schema: Rc::new(schema), ..self }
    }
}

impl<T: 'static> Form<Vec<T>> {
    /// Leaves the key out where the list is empty.
    pub(super) fn unless_empty(self) -> Self {
        let write = self.write;
        let write = move |value: &Vec<T>| write(value).filter(|_| !value.is_empty());
        Self { write: Rc::new(write), ..self }
    }
}

/// A list whose items have one form.
pub(super) fn list<T: 'static>(item: Form<T>) -> Form<Vec<T>> {
    let item = Rc::new(item);
    let (written, described) = (Rc::clone(&item), Rc::clone(&item));
    let write = move |values: &Vec<T>| {
        Output::List(values.iter().filter_map(|value| written.write(value)).collect())
    };
    let write_default = write.clone();
    Form::new(
        move |report, node, path, _| {
            let Value::List(items) = &node.value else {
                let found = node.found();
                report.refuse(
                    node.at,
                    path,
                    format!("found {found}, expected a list; leave the key out for the default, or write [] for none"),
                );
                return None;
            };
            let read = |(at, node): (usize, &Node)| {
                item.read(report, node, &format!("{path}[{at}]"), None)
            };
            Some(items.iter().enumerate().filter_map(read).collect())
        },
        move |values| Some(write(values)),
        move |default| {
            let schema = json!({"type": "array", "items": described.schema(None)});
            with_default(schema, default.map(&write_default))
        },
    )
}

/// A mapping whose keys are names of one form.
pub(super) fn mapping<T: 'static>(name: Form<String>, value: Form<T>) -> Form<BTreeMap<String, T>> {
    let value = Rc::new(value);
    let (written, described) = (Rc::clone(&value), Rc::clone(&value));
    let names = name.schema(None);
    let write = move |values: &BTreeMap<String, T>| {
        let entries = values.iter();
        Output::Map(
            entries.filter_map(|(key, one)| Some((key.clone(), written.write(one)?))).collect(),
        )
    };
    let write_default = write.clone();
    Form::new(
        move |report, node, path, _| {
            let (section, _) = Section::open(report, node, path);
            let (report, entries) = section.into_entries();
            let mut read = BTreeMap::new();
            for (key, node) in entries {
                let path = format!("{path}[{}]", super::problem::quoted(&key.text));
                let key = Node { at: key.at, value: Value::Text(key.text.clone()) };
                let key = name.read(report, &key, &path, None);
                if let (Some(key), Some(one)) = (key, value.read(report, node, &path, None)) {
                    read.insert(key, one);
                }
            }
            Some(read)
        },
        move |values| Some(write(values)),
        move |default| {
            let schema = json!({
                "type": ["object", "null"],
                "propertyNames": names,
                "additionalProperties": described.schema(None),
            });
            with_default(schema, default.map(&write_default))
        },
    )
}

/// One key of a section.
pub(super) struct Key<S> {
    /// Where it is in the file, such as `scan.interval`; of a section that occurs more than
    /// once, the last word alone.
    pub(super) path: &'static str,
    about: &'static str,
    when: Option<When>,
    read: Box<ReadInto<S>>,
    write: Box<Write<S>>,
    schema: Box<Schema<S>>,
    changes: Box<Changes<S>>,
}

impl<S: 'static> Key<S> {
    /// A key, one sentence about it, from when a changed value is in force, its form and its
    /// place in the settings. A section whose keys say from when themselves has none.
    pub(super) fn new<T: 'static>(
        (path, about): (&'static str, &'static str),
        when: Option<When>,
        form: Form<T>,
        get: fn(&S) -> &T,
        get_mut: fn(&mut S) -> &mut T,
    ) -> Self {
        let form = Rc::new(form);
        let (written, described, compared) = (Rc::clone(&form), Rc::clone(&form), Rc::clone(&form));
        Self {
            path,
            about,
            when,
            read: Box::new(move |report, node, path, section| {
                let read = form.read(report, node, path, Some(get(section)));
                let is_read = read.is_some();
                if let Some(value) = read {
                    *get_mut(section) = value;
                }
                is_read
            }),
            write: Box::new(move |section| written.write(get(section))),
            schema: Box::new(move |default| described.schema(default.map(get))),
            changes: Box::new(move |old, new| compared.changes(get(old), get(new))),
        }
    }

    /// A key that is read, because other programs' settings have it, and has no effect.
    pub(super) fn without_effect<T: 'static>(
        (path, about): (&'static str, &'static str),
        form: Form<T>,
    ) -> Self {
        let form = Rc::new(form.with_schema(json!({"deprecated": true})));
        let described = Rc::clone(&form);
        Self {
            path,
            about,
            when: None,
            read: Box::new(move |report, node, path, _| {
                form.read(report, node, path, None).is_some()
            }),
            write: Box::new(|_| None),
            schema: Box::new(move |_| described.schema(None)),
            changes: Box::new(|_, _| Vec::new()),
        }
    }

    /// The word in the file.
    pub(super) fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// The value as the file would have it.
    pub(super) fn write(&self, section: &S) -> Option<Output> {
        (self.write)(section)
    }

    fn described(&self, default: Option<&S>) -> Json {
        let mut about = json!({"description": self.about});
        if let Some(when) = self.when {
            about["x-takes-effect"] = when.label().into();
        }
        merged((self.schema)(default), &about)
    }

    fn changed(&self, old: &S, new: &S) -> Vec<Change> {
        match self.when {
            None => (self.changes)(old, new),
            Some(_) if self.write(old) == self.write(new) => Vec::new(),
            Some(when) => vec![Change { key: self.path, when }],
        }
    }
}

/// Describes keys, each by its place in the file, its field, from when a changed value is in
/// force (`_` for a section whose keys say so themselves), its form and one sentence:
/// `"scan.top" => top, NextSweep, integer(0..=100_000), "One sentence.";`.
///
/// Of a struct every field has to be described, or it does not compile; `in` lifts that.
macro_rules! keys {
    ($type:ident { $($path:literal => $field:ident, $when:tt, $form:expr, $about:literal;)+ }) => {{
        let _every_field = |$type { $($field: _),+ }: &$type| {};
        keys!(in $type { $($path => $field, $when, $form, $about;)+ })
    }};
    (in $type:ident {
        $($path:literal => $($field:ident).+, $when:tt, $form:expr, $about:literal;)+
    }) => {
        vec![$($crate::config::form::Key::new(
            ($path, $about),
            keys!(when $when),
            $form,
            |section: &$type| &section.$($field).+,
            |section: &mut $type| &mut section.$($field).+,
        )),+]
    };
    (when _) => { None };
    (when $when:ident) => { Some($crate::config::changes::When::$when) };
}
pub(super) use keys;

/// A section of these keys; `check` sees what was read, for rules that look at several keys.
pub(super) fn section<S: Clone + 'static>(
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
                    (key.read)(report, node, path, &mut value)
                });
            }
            if is_mapping {
                check(&mut value, &mut section);
            }
            section.close(is_mapping);
            Some(value)
        },
        move |value| Some(write_keys(&written, value)),
        move |default| schema_of(&described, default),
    );
    let changes =
        move |old: &S, new: &S| compared.iter().flat_map(|key| key.changed(old, new)).collect();
    Form { changes: Some(Rc::new(changes)), ..form }
}

/// Every key with its value, in the order in which the keys are described.
fn write_keys<S: 'static>(keys: &[Key<S>], value: &S) -> Output {
    let entries = keys.iter();
    Output::Map(
        entries.filter_map(|key| Some((key.name().to_owned(), key.write(value)?))).collect(),
    )
}

/// The schema of a section; an empty one may be written as nothing.
fn schema_of<S: 'static>(keys: &[Key<S>], default: Option<&S>) -> Json {
    let properties: serde_json::Map<String, Json> =
        keys.iter().map(|key| (key.name().to_owned(), key.described(default))).collect();
    json!({
        "type": ["object", "null"],
        "properties": properties,
        "additionalProperties": false,
    })
}

/// Adds the default to a schema.
pub(super) fn with_default(mut schema: Json, default: Option<Output>) -> Json {
    if let (Some(default), Json::Object(schema)) = (default, &mut schema) {
        schema.insert("default".to_owned(), default.json());
    }
    schema
}

fn merged(mut schema: Json, more: &Json) -> Json {
    if let (Json::Object(schema), Json::Object(more)) = (&mut schema, more) {
        schema.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    schema
}
