//! `recliner mcp`: answers an assistant over this process's input and output.

use super::{
    CommandError, Exit,
    args::McpArgs,
    service_client::{ServiceClient, WORK},
};
use crate::serve::http::{AskApi, Assistant, Parameters, Question};
use rmcp::{ServiceExt as _, transport::io::stdio};
use serde_json::Value;

/// Runs until the assistant closes the input.
pub(super) async fn run(args: McpArgs) -> Result<Exit, CommandError> {
    let assistant = Assistant::new(RunningRecliner(args.service.client()?));
    let running = assistant.serve(stdio()).await.map_err(|_| {
        CommandError::failed(
            "the input does not begin with the request initialize of the Model Context Protocol",
        )
    })?;
    running.waiting().await.map_err(CommandError::failed)?;
    Ok(Exit::Done)
}

#[derive(Debug)]
struct RunningRecliner(ServiceClient);

impl AskApi for RunningRecliner {
    async fn ask(&self, Question { path, parameters }: Question) -> Result<Value, String> {
        let answer = match parameters {
            Parameters::Query(pairs) => {
                let pairs = pairs.iter().map(|(name, value)| (&**name, &**value));
                self.0.get(path, &pairs.collect::<Vec<_>>()).await
            }
            Parameters::Body(body) => self.0.post_within(path, &body, WORK).await,
        };
        answer.map_err(|failed: CommandError| failed.why)
    }
}
