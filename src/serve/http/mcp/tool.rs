//! The tools: names for operations of the OpenAPI document.

use crate::text::listed;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::LazyLock};

/// The name of each tool, and the id of its operation. None of them changes anything.
const TOOLS: [(&str, &str); 8] = [
    ("overview", "status"),
    ("databases", "databases"),
    ("explain", "explain"),
    ("advise", "advice"),
    ("changes", "changes"),
    ("what_if", "whatIf"),
    ("history", "history"),
    ("preflight", "preflight"),
];

/// The number of entries in an answer, unless the question says otherwise.
const LIMIT: &str = "20";

/// The prefix of schemas in the OpenAPI document.
const COMPONENTS: &str = "#/components/schemas/";

/// A question to a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The path of the route.
    pub path: &'static str,
    /// What it is asked.
    pub parameters: Parameters,
}

/// The parameters of a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameters {
    /// The query of a GET.
    Query(BTreeMap<String, String>),
    /// The body of a POST.
    Body(Value),
}

/// A tool, and the route that answers it.
#[derive(Debug)]
pub(super) struct ApiTool {
    tool: Tool,
    path: String,
    is_post: bool,
}

static ALL: LazyLock<Vec<ApiTool>> = LazyLock::new(|| {
    let document = super::super::openapi(&[]);
    TOOLS.iter().filter_map(|(name, id)| ApiTool::of(name, id, &document)).collect()
});

pub(super) fn find(name: &str) -> Option<&'static ApiTool> {
    ALL.iter().find(|it| it.tool.name == name)
}

pub(super) fn names() -> String {
    listed(&TOOLS.map(|(name, _)| name.to_owned()))
}

/// The tools as the protocol describes them.
pub(super) fn described() -> Vec<Tool> {
    ALL.iter().map(|it| it.tool.clone()).collect()
}

impl ApiTool {
    fn of(name: &'static str, id: &str, document: &Value) -> Option<Self> {
        let paths = document["paths"].as_object()?.iter();
        let mut operations = paths.flat_map(|(path, methods)| {
            methods.as_object().into_iter().flatten().map(move |it| (path, it))
        });
        let (path, (method, operation)) =
            operations.find(|(_, (_, it))| it["operationId"] == id)?;
        let schema = match operation.get("requestBody") {
            Some(body) => body["content"]["application/json"]["schema"].clone(),
            None => schema_of_parameters(&operation["parameters"]),
        };
        let text = |key: &str| operation[key].as_str().unwrap_or_default();
        let description = format!("{} {}", text("summary"), text("detail")).trim_end().to_owned();
        let input = with_definitions(schema, &document["components"]["schemas"]);
        let annotations = ToolAnnotations::new().read_only(true).open_world(false);
        let tool = Tool::new(name, description, input).with_annotations(annotations);
        Some(Self { tool, path: path.clone(), is_post: method == "post" })
    }

    /// The question that these arguments ask.
    ///
    /// # Errors
    /// If an argument is no plain value.
    pub(super) fn question(&'static self, arguments: JsonObject) -> Result<Question, String> {
        let parameters = if self.is_post {
            Parameters::Body(arguments.into())
        } else {
            let pairs = arguments.into_iter().filter(|(_, value)| !value.is_null());
            let text = |(name, value): (String, Value)| {
                query_text(&name, &value).map(|value| (name, value))
            };
            let mut pairs = pairs.map(text).collect::<Result<BTreeMap<_, _>, _>>()?;
            if self.tool.input_schema["properties"].get("limit").is_some() {
                pairs.entry("limit".to_owned()).or_insert_with(|| LIMIT.to_owned());
            }
            Parameters::Query(pairs)
        };
        Ok(Question { path: &self.path, parameters })
    }
}

/// A value as text in a query; a list is one value, separated by commas.
fn query_text(name: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Array(values) => {
            let texts = values.iter().map(|value| query_text(name, value));
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join(","))
        }
        Value::Null | Value::Object(_) => Err(format!("{name} must be a plain value or a list")),
    }
}

/// The parameters of a query as one object.
fn schema_of_parameters(parameters: &Value) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for parameter in parameters.as_array().into_iter().flatten() {
        let mut schema = parameter["schema"].clone();
        schema["description"] = parameter["description"].clone();
        if parameter["required"] == true {
            required.push(parameter["name"].clone());
        }
        properties.insert(parameter["name"].as_str().unwrap_or_default().to_owned(), schema);
    }
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

/// A schema of the document by itself, with the definitions that it needs.
fn with_definitions(schema: Value, components: &Value) -> JsonObject {
    let mut definitions = Map::new();
    let mut whole = moved(schema, components, &mut definitions);
    if let Some(name) = whole["$ref"].as_str().and_then(|it| it.strip_prefix("#/$defs/")) {
        // The protocol wants an object at the top.
        whole = definitions.get(name).cloned().unwrap_or_default();
    }
    if !definitions.is_empty() {
        whole["$defs"] = definitions.into();
    }
    whole.as_object_mut().map(std::mem::take).unwrap_or_default()
}

/// The value with references to `$defs`, in which what they name is collected.
fn moved(value: Value, components: &Value, definitions: &mut Map<String, Value>) -> Value {
    match value {
        Value::Object(fields) => {
            if let Some(name) =
                fields.get("$ref").and_then(|it| it.as_str()?.strip_prefix(COMPONENTS))
            {
                if !definitions.contains_key(name) {
                    definitions.insert(name.to_owned(), Value::Null);
                    let definition = moved(components[name].clone(), components, definitions);
                    definitions.insert(name.to_owned(), definition);
                }
                return json!({ "$ref": format!("#/$defs/{name}") });
            }
            let fields = fields.into_iter();
            fields
                .map(|(key, value)| (key, moved(value, components, definitions)))
                .collect::<Map<_, _>>()
                .into()
        }
        Value::Array(values) => {
            values.into_iter().map(|value| moved(value, components, definitions)).collect()
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}
