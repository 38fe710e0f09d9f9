//! Lines of JSON: Traefik's, Caddy's, Envoy's, and those that an operator gave nginx or HAProxy. Collectors wrap lines.

use crate::{Agent, Line, Parts, line, time};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use std::{borrow::Cow, fmt};

/// Reads a line that begins as a JSON object.
pub(crate) fn read(line: &[u8]) -> Line<'static> {
    let Ok(fields) = serde_json::from_slice::<Fields<'_>>(line) else { return Line::Other };
    if let Some(inner) = &fields.inner {
        let inner = inner.trim_end().as_bytes();
        // A line is wrapped once.
        return match inner.first() {
            Some(b'{') => match serde_json::from_slice::<Fields<'_>>(inner) {
                Ok(fields) if fields.inner.is_none() => owned(request(&fields)),
                Ok(_) | Err(_) => Line::Other,
            },
            _ => owned(line::parts(inner).map_or(Line::Other, |it| Line::Request(it.request()))),
        };
    }
    owned(request(&fields))
}

fn request<'a>(fields: &'a Fields<'_>) -> Line<'a> {
    let parts = || {
        let line = fields.request.as_deref().map(str::as_bytes);
        let line =
            line.and_then(|line| line::request_line(line)).map(|(method, path, _)| (method, path));
        let named =
            || Some((fields.method.as_deref()?.as_bytes(), fields.path.as_deref()?.as_bytes()));
        let (method, path) = named().or(line)?;
        let at = fields.time.as_deref()?.as_bytes();
        let at = time::rfc3339(at).or_else(|| time::common(at)).or_else(|| time::unix(at))?;
        let agent =
            fields.agent.as_deref().map_or(Agent::UNKNOWN, |agent| Agent::of(agent.as_bytes()));
        Some(Parts { at, node: None, method, path, status: fields.status?, agent })
    };
    parts().map_or(Line::Other, |parts| Line::Request(parts.request()))
}

/// An owned copy: JSON escapes mean that the fields may not borrow from the line.
fn owned(line: Line<'_>) -> Line<'static> {
    let Line::Request(request) = line else { return Line::Other };
    let used = request.used.map(|used| crate::Used {
        db: used.db.into_owned().into(),
        design: used.design.into_owned().into(),
        view: used.view.into_owned().into(),
        how: used.how,
        class: used.class,
    });
    let node = request.node.map(|node| node.into_owned().into());
    Line::Request(crate::Request { at: request.at, node, used })
}

/// The fields that are read, under any of their names.
#[derive(Debug, Default)]
struct Fields<'a> {
    time: Option<Cow<'a, str>>,
    status: Option<u16>,
    method: Option<Cow<'a, str>>,
    path: Option<Cow<'a, str>>,
    request: Option<Cow<'a, str>>,
    agent: Option<Cow<'a, str>>,
    /// A whole line that a collector wrapped.
    inner: Option<Cow<'a, str>>,
}

impl<'a> Fields<'a> {
    /// Overrides with the fields of a nested object: Caddy nests the request and its headers.
    fn add(&mut self, inner: Self) {
        self.method = inner.method.or_else(|| self.method.take());
        self.path = inner.path.or_else(|| self.path.take());
        self.agent = inner.agent.or_else(|| self.agent.take());
    }

    fn set(&mut self, name: &str, value: Value<'a>) {
        let text = match value {
            Value::Text(text) => text,
            Value::Object(inner) => {
                if matches!(name, "request" | "headers") {
                    self.add(*inner);
                }
                return;
            }
            Value::Other => return,
        };
        match name {
            "time_iso8601" | "StartUTC" | "@timestamp" => self.time = Some(text),
            "time" | "timestamp" | "ts" | "start_time" | "time_local" | "msec" => {
                self.time.get_or_insert(text);
            }
            "DownstreamStatus" | "status" | "status_code" | "response_code" => {
                self.status = line::number(text.as_bytes());
            }
            "method" | "request_method" | "RequestMethod" => self.method = Some(text),
            // nginx's `uri` is decoded, and its `request_uri` is not.
            "uri" if self.path.is_some() => {}
            "request_uri" | "RequestPath" | "uri" | "path" => self.path = Some(text),
            "request" => self.request = Some(text),
            "http_user_agent" | "user_agent" | "request_User-Agent" | "User-Agent" => {
                self.agent = Some(text);
            }
            "log" | "MESSAGE" => self.inner = Some(text),
            _ => {}
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_map(ValueVisitor)? {
            Value::Object(fields) => Ok(*fields),
            Value::Text(_) | Value::Other => Ok(Self::default()),
        }
    }
}

/// A value; only texts, numbers, objects and the last element of a list matter.
#[derive(Debug)]
enum Value<'a> {
    /// A text, a number, or the last text of a list.
    Text(Cow<'a, str>),
    Object(Box<Fields<'a>>),
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

#[derive(Debug)]
struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Value::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Value::Text(text.to_owned().into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Value::Text(number.to_string().into()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Value::Text(number.to_string().into()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut last = Value::Other;
        while let Some(value) = list.next_element()? {
            last = value;
        }
        Ok(last)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields::default();
        while let Some(Key(name)) = map.next_key()? {
            fields.set(&name, map.next_value()?);
        }
        Ok(Value::Object(Box::new(fields)))
    }
}

/// The name of a field.
#[derive(Debug, Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
