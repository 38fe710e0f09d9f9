//! Assistants, with the protocol's own client: over a service's `/mcp`, and through `recliner mcp`.

use super::{PASSWORD, Site, document::Described, recliner, service::Running, world, written};
use rmcp::{
    RoleClient, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResult, ClientRequest, CustomRequest, ErrorCode,
        ReadResourceRequestParams, ResourceContents,
    },
    service::{RunningService, ServiceError},
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::process::{Child, Command};

type Client = RunningService<RoleClient, ()>;

async fn over_http(address: &str) -> Client {
    let config = StreamableHttpClientTransportConfig::with_uri(format!("http://{address}/mcp"));
    let http = super::service::http_client();
    ().serve(StreamableHttpClientTransport::with_client(http, config)).await.expect("it answers")
}

async fn over_pipes(words: &[&str]) -> (Client, Child) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    command.arg("mcp").args(words).env_clear().kill_on_drop(true);
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let pipes = process.stdout.take().zip(process.stdin.take()).expect("both are pipes");
    (().serve(pipes).await.expect("it answers"), process)
}

fn texts(result: &CallToolResult) -> Vec<&str> {
    result.content.iter().map(|block| &*block.as_text().expect("it is text").text).collect()
}

async fn call(client: &Client, name: &str, arguments: &Value) -> CallToolResult {
    let arguments = arguments.as_object().expect("an object").clone();
    let request = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
    client.call_tool(request).await.expect("it answers")
}

/// Every tool with arguments, and the route whose schema its answer has.
fn questions() -> [(&'static str, Value, (&'static str, &'static str)); 8] {
    let design = json!({ "_id": "_design/new", "views": { "v": { "map": "function (d) { emit(d._id); }" } } });
    [
        ("overview", json!({}), ("get", "/api/v1/status")),
        ("databases", json!({ "limit": 2, "sort": "file_bytes" }), ("get", "/api/v1/databases")),
        ("explain", json!({ "target": "orders/2024+x" }), ("get", "/api/v1/explain")),
        ("advise", json!({}), ("get", "/api/v1/advice")),
        ("changes", json!({ "since": "1h" }), ("get", "/api/v1/changes")),
        ("what_if", json!({ "days": 1 }), ("post", "/api/v1/what-if")),
        ("history", json!({ "result": "freed" }), ("get", "/api/v1/history")),
        (
            "preflight",
            json!({ "db": "orders/2024+x", "design": design }),
            ("post", "/api/v1/preflight"),
        ),
    ]
}

#[tokio::test]
async fn assistants_get_the_same_answers_as_the_api() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&site, dir.path(), &["--web.enable-mcp"]).await;
    let service = Described::of(&running.address).await;
    let url = format!("http://{}", running.address);
    let (piped, mut process) = over_pipes(&["--recliner.url", &url]).await;
    for mut client in [over_http(&running.address).await, piped] {
        let tools = client.list_all_tools().await.expect("it lists them");
        let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, questions().map(|(name, ..)| name));
        for (tool, (name, arguments, (method, path))) in tools.iter().zip(questions()) {
            assert_eq!(tool.annotations.as_ref().and_then(|it| it.read_only_hint), Some(true));
            let operation = &service.document["paths"][path][method];
            if let Some(parameters) = operation["parameters"].as_array() {
                let mut described: Vec<&str> = tool.input_schema["properties"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(|it| &**it)
                    .collect();
                let mut wanted: Vec<&str> =
                    parameters.iter().map(|it| it["name"].as_str().unwrap()).collect();
                described.sort_unstable();
                wanted.sort_unstable();
                assert_eq!(described, wanted, "{name}");
            }
            let result = call(&client, name, &arguments).await;
            let texts = texts(&result);
            // The service has not yet watched for ten minutes.
            if name == "what_if" {
                assert_eq!(result.is_error, Some(true));
                assert!(texts[0].contains("ten minutes"), "{texts:?}");
                continue;
            }
            assert_ne!(result.is_error, Some(true), "{name}: {texts:?}");
            assert!(texts[0].contains("not instructions"), "{texts:?}");
            let data: Value = serde_json::from_str(texts[1]).expect("valid JSON");
            service.validate((method, path, 200), &json!({ "status": "success", "data": data }));
        }
        for (name, arguments, says) in [
            ("compact", json!({}), "there is no tool \"compact\"; there are overview"),
            ("databases", json!({ "sort": "waste" }), "is not one of"),
            ("databases", json!({ "wast": 1 }), "wast"),
            ("explain", json!({ "target": { "db": "a" } }), "a plain value or a list"),
        ] {
            let result = call(&client, name, &arguments).await;
            assert_eq!(result.is_error, Some(true), "{name}");
            assert!(texts(&result)[0].contains(says), "{:?}", texts(&result));
        }
        for (method, parameters, code) in [
            (
                "tools/call",
                json!({ "name": "overview", "arguments": "x" }),
                ErrorCode::INVALID_PARAMS,
            ),
            ("resources/read", json!({}), ErrorCode::INVALID_PARAMS),
            ("tools/guess", json!({}), ErrorCode::METHOD_NOT_FOUND),
        ] {
            let request = CustomRequest::new(method, Some(parameters));
            let refused = client.send_request(ClientRequest::CustomRequest(request)).await;
            let Err(ServiceError::McpError(refused)) = refused else { panic!("{refused:?}") };
            assert_eq!(refused.code, code, "{method}");
        }
        let pages = client.list_all_resources().await.expect("it lists them");
        let page = pages.iter().find(|it| it.name == "Glossary").expect("the book has one");
        let read = client.read_resource(ReadResourceRequestParams::new(page.uri.clone())).await;
        let contents = read.expect("it is there").contents;
        let [ResourceContents::TextResourceContents { text, .. }] = &*contents else {
            panic!("{contents:?}")
        };
        assert!(text.starts_with("# Glossary"), "{text}");
        client.close().await.expect("it ends");
    }
    assert!(process.wait().await.expect("it ends").success());
    running.stop().await;
}

#[tokio::test]
async fn assistants_need_the_flag_and_a_user() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let hash = bcrypt::hash_with_salt(PASSWORD, 4, [7; 16]).unwrap();
    let hash = hash.format_for_version(bcrypt::Version::TwoY);
    let web = written(dir.path(), "web.yml", &format!("basic_auth_users: {{ann: {hash}}}\n"));
    let http = super::service::http_client();
    let hello = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } },
    });
    for (flags, user, origin, status) in [
        (&[][..], None, None, 403),
        (&["--web.enable-mcp"][..], None, None, 200),
        (&["--web.enable-mcp"][..], None, Some("http://elsewhere.example"), 403),
        (&["--web.enable-mcp", "--web.config.file", &web][..], None, None, 401),
        (&["--web.enable-mcp", "--web.config.file", &web][..], Some("ann"), None, 200),
    ] {
        let mut running = Running::start(&site, dir.path(), flags).await;
        let mut request = http
            .post(format!("http://{}/mcp", running.address))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(hello.to_string());
        if let Some(user) = user {
            request = request.basic_auth(user, Some(PASSWORD));
        }
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let answer = request.send().await.expect("it answers");
        assert_eq!(answer.status().as_u16(), status, "{flags:?} {user:?} {origin:?}");
        running.stop().await;
    }
    recliner(&["mcp", "--recliner.url", "not a url"], &[]).await.refuses(64, &["is not a URL"]);
}
