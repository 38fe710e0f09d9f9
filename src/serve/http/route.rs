//! A route: its path, its handler, and its description in the OpenAPI document.
//!
//! Each subject lists its routes next to their handlers; the router and the document are both made
//! from these lists.

use super::{
    answer::Answer,
    concurrency_limit::{Limits, QuestionLimits},
    error::ApiError,
    guard,
    query::ValidQuery,
    schemas::{HTML, JSON, Schemas, TEXT},
    state::AppState,
    turn::Turn,
};
use crate::{serve::report::Success, text::listed};
use axum::{
    body::Bytes,
    extract::{Request, State},
    http::{Method, Uri},
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, get, post},
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// A path of the server with one method; every GET route supports HEAD too.
pub(super) struct Route {
    pub(super) handler: MethodRouter<AppState>,
    pub(super) operation: Operation,
}

/// The format of a route's errors.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// The API's envelope.
    Api,
    /// CouchDB's error format.
    CouchDb,
    /// A line of text.
    Text,
    /// A page.
    Html,
}

/// The parameters and responses of a route, as the OpenAPI document describes them.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) path: &'static str,
    pub(super) method: &'static str,
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    /// What the route does and returns beyond its summary, for readers of the document and of the
    /// book.
    pub(super) detail: Option<&'static str>,
    pub(super) parameters: fn(&mut Schemas) -> Vec<Value>,
    pub(super) body: Option<Body>,
    /// The description of a response with status 200.
    pub(super) answer: &'static str,
    /// The content types of the response, each with its schema.
    pub(super) answers: fn(&mut Schemas) -> Vec<(&'static str, Value)>,
    pub(super) kind: Kind,
    /// All other statuses, each with its meaning.
    pub(super) errors: &'static [(u16, &'static str)],
    /// Whether the route needs no login, even if the service has users.
    pub(super) is_open: bool,
}

/// The JSON body of a POST request.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) schema: fn(&mut Schemas) -> Value,
    pub(super) example: Value,
}

pub(super) const BAD: (u16, &str) = (400, "A parameter is unknown, or its value is invalid.");
pub(super) const ABSENT: (u16, &str) = (404, "No target matches this name or id.");
pub(super) const NO_DATABASE: (u16, &str) = (404, "No database has this name.");
pub(super) const NO_JOURNAL: (u16, &str) = (404, "This recliner keeps no journal.");
pub(super) const ABSENT_OR_NO_JOURNAL: (u16, &str) =
    (404, "No target matches this name or id, or this recliner keeps no journal.");
pub(super) const BUSY: (u16, &str) = (
    503,
    "recliner is stopping, cannot read its data, or has too many unread responses. Try again.",
);
pub(super) const NOT_TRIED: (u16, &str) = (
    503,
    "The order was not carried out, or did not finish in time. With `Retry-After`, it had no effect: send it again.",
);
pub(super) const FORBIDDEN: (u16, &str) =
    (403, "Such orders are disabled, or the request may come from another site's page.");
pub(super) const WRONG_TYPE: (u16, &str) = (415, "The body is not of type application/json.");

/// The error statuses of every order.
const ORDER: &[(u16, &str)] = &[
    (400, "The body is invalid."),
    FORBIDDEN,
    (404, "What the order names does not exist."),
    LATE_BODY,
    (409, "The order matches several targets, or one that may not start; `data` has the details."),
    WRONG_TYPE,
    (500, "The order was tried and failed."),
    NOT_TRIED,
];

pub(super) const FOREIGN: (u16, &str) = (403, "The request may come from another site's page.");
pub(super) const LATE_BODY: (u16, &str) =
    (408, "The body did not arrive within 10 seconds, or within one second under load.");

impl Route {
    /// A GET route of the API; the types of its query and of its data are those of the handler.
    pub(super) fn read<Q, A, F>(
        path: &'static str,
        id: &'static str,
        handler: fn(AppState, Q) -> F,
        summary: &'static str,
    ) -> Self
    where
        Q: JsonSchema + DeserializeOwned + Send + 'static,
        A: JsonSchema + 'static,
        F: Future<Output = Result<Answer<A>, ApiError>> + Send + 'static,
    {
        let handler = get(move |State(state), ValidQuery(query)| handler(state, query));
        Self::api::<Q, A>(path, id, handler, summary)
    }

    /// A GET route of the API whose handler needs more of the request than its query.
    pub(super) fn api<Q: JsonSchema, A: JsonSchema>(
        path: &'static str,
        id: &'static str,
        handler: MethodRouter<AppState>,
        summary: &'static str,
    ) -> Self {
        Self::plain(path, id, handler, summary, &[BAD, BUSY]).described(|operation| Operation {
            tag: "read",
            parameters: Schemas::parameters::<Q>,
            answer: "The requested data.",
            answers: |schemas| vec![(JSON, schemas.written::<Success<A>>())],
            kind: Kind::Api,
            ..operation
        })
    }

    /// A POST route of the API with a body of this type.
    fn post<B: JsonSchema, A: JsonSchema>(
        path: &'static str,
        id: &'static str,
        handler: MethodRouter<AppState>,
        summary: &'static str,
        example: Value,
    ) -> Self {
        let body = Some(Body { schema: Schemas::read::<B>, example });
        let parameters = |_: &mut Schemas| Vec::new();
        Self::api::<B, A>(path, id, handler, summary).described(|operation| Operation {
            method: "post",
            parameters,
            body,
            ..operation
        })
    }

    /// A question too large for a URL, of at most `max` bytes, that no page of another site asks: its handler gets
    /// the body in its turn.
    pub(super) fn question<B, A, F>(
        (path, id): (&'static str, &'static str),
        (limits, max): (fn(&Limits) -> &QuestionLimits, usize),
        handler: fn(AppState, Turn, Bytes) -> F,
        summary: &'static str,
        example: Value,
    ) -> Self
    where
        B: JsonSchema,
        A: JsonSchema + Serialize + 'static,
        F: Future<Output = Result<A, ApiError>> + Send + 'static,
    {
        let handler = post(async move |State(state): State<AppState>, request: Request| {
            guard::check_question(&request).map_err(ApiError::from)?;
            let place = limits(&state.limits).place().await?;
            let body = place.body(request, max).await?;
            let turn = place.turn().await?;
            Ok::<_, ApiError>(Answer::of(&handler(state, turn, body).await?))
        });
        Self::post::<B, A>(path, id, handler, summary, example)
    }

    /// An operator's order.
    pub(super) fn order<B: JsonSchema, A: JsonSchema>(
        path: &'static str,
        id: &'static str,
        handler: MethodRouter<AppState>,
        summary: &'static str,
        example: Value,
    ) -> Self {
        let answer = "The order was carried out, or is in progress.";
        Self::post::<B, A>(path, id, handler, summary, example).described(|operation| Operation {
            tag: "order",
            answer,
            errors: ORDER,
            ..operation
        })
    }

    /// A route that responds with a line of text.
    pub(super) fn plain(
        path: &'static str,
        id: &'static str,
        handler: MethodRouter<AppState>,
        summary: &'static str,
        errors: &'static [(u16, &'static str)],
    ) -> Self {
        let operation = Operation {
            path,
            method: "get",
            id,
            tag: "probe",
            summary,
            detail: None,
            parameters: |_| Vec::new(),
            body: None,
            answer: "Success.",
            answers: |_| vec![(TEXT, json!({ "type": "string" }))],
            kind: Kind::Text,
            errors,
            is_open: false,
        };
        Self { handler, operation }
    }

    /// A route that responds with a page or an image.
    pub(super) fn page(
        path: &'static str,
        id: &'static str,
        handler: MethodRouter<AppState>,
        summary: &'static str,
        errors: &'static [(u16, &'static str)],
    ) -> Self {
        Self::plain(path, id, handler, summary, errors).described(|operation| Operation {
            answer: "The page.",
            answers: |_| vec![(HTML, json!({ "type": "string" }))],
            ..operation
        })
    }

    /// The same route with a changed description.
    pub(super) fn described(self, change: impl FnOnce(Operation) -> Operation) -> Self {
        Self { operation: change(self.operation), ..self }
    }

    /// Sets what the route does and returns beyond its summary.
    pub(super) fn detail(self, detail: &'static str) -> Self {
        self.described(|operation| Operation { detail: Some(detail), ..operation })
    }

    /// Sets all statuses except 200, each with its meaning.
    pub(super) fn errors(self, errors: &'static [(u16, &'static str)]) -> Self {
        self.described(|operation| Operation { errors, ..operation })
    }
}

/// The routes of the API, as part of a sentence.
pub(super) fn known_routes(routes: &[Operation]) -> String {
    let (mut reads, mut questions, mut orders) = (Vec::new(), Vec::new(), Vec::new());
    for route in routes {
        let Some(name) = route.path.strip_prefix("/api/v1/") else { continue };
        let list = match (route.tag, route.method) {
            ("order", _) => &mut orders,
            (_, "post") => &mut questions,
            _ => &mut reads,
        };
        list.push(name.to_owned());
    }
    let [reads, questions, orders] = [reads, questions, orders].map(|names| listed(&names));
    format!("/api/v1/{reads}, the POST questions {questions}, and the POST orders {orders}")
}

/// The response to an unknown path of the API.
pub(super) fn no_route(uri: &Uri, known: &str) -> Response {
    ApiError::absent(format!("there is no {}; there are {known}", uri.path())).into_response()
}

/// The response to a wrong method: reads accept GET and HEAD, orders POST.
pub(super) async fn wrong_method(method: Method) -> Response {
    let why = if method == Method::GET || method == Method::HEAD {
        "this route needs POST, with a JSON body".to_owned()
    } else {
        format!("{method} is not supported here: use GET or HEAD")
    };
    ApiError::wrong_method(why).into_response()
}
