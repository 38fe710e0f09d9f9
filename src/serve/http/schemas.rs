//! JSON schemas of requests and responses, generated from their types.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain";
pub(super) const HTML: &str = "text/html";

/// Separate schemas for requests and for responses: a field with a default is optional in an order
/// and always present in a response.
pub(super) struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = || {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
            settings
        };
        Self {
            read: settings().for_deserialize().into_generator(),
            written: settings().for_serialize().into_generator(),
        }
    }

    pub(super) fn definitions(mut self) -> Map<String, Value> {
        let mut all = self.written.take_definitions(true);
        all.extend(self.read.take_definitions(true));
        all
    }

    pub(super) fn read<T: JsonSchema>(&mut self) -> Value {
        self.read.subschema_for::<T>().to_value()
    }

    pub(super) fn written<T: JsonSchema>(&mut self) -> Value {
        self.written.subschema_for::<T>().to_value()
    }

    /// The parameters of a query, from the fields of its type.
    pub(super) fn parameters<T: JsonSchema>(&mut self) -> Vec<Value> {
        let mut schema = T::json_schema(&mut self.read).to_value();
        let required = schema["required"].take();
        let required = |name: &str| {
            required.as_array().is_some_and(|names| names.iter().any(|required| required == name))
        };
        let fields = schema["properties"].take();
        let parameter = |(name, schema): (&String, &Value)| {
            let mut schema = without_null(schema.clone());
            let description =
                schema.as_object_mut().and_then(|fields| fields.remove("description"));
            // A list is one value, separated by commas.
            json!({
                "name": name, "in": "query", "required": required(name),
                "style": "form", "explode": false,
                "description": description, "schema": schema,
            })
        };
        fields.as_object().into_iter().flatten().map(parameter).collect()
    }
}

/// The schema of a parameter without null: an absent parameter is omitted instead.
fn without_null(mut schema: Value) -> Value {
    let some = |list: &mut Vec<Value>| list.retain(|it| !it.is_null() && it != "null");
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("default");
        if let Some(Value::Array(words)) = fields.get_mut("enum") {
            some(words);
        }
        if let Some(Value::Array(types)) = fields.get_mut("type") {
            some(types);
            if let [one] = &types[..] {
                let one = one.clone();
                fields.insert("type".into(), one);
            }
        }
        // Replaces the choice between an enum and null by the enum.
        if let Some(Value::Array(mut either)) = fields.remove("anyOf") {
            either.retain(|it| it["type"] != "null");
            if let Some(Value::Object(one)) = either.pop() {
                fields.extend(one);
            }
        }
    }
    schema
}
