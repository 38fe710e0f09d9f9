//! Answers: from a running recliner or from one read of the cluster, and printed as a table or as JSON.

use super::{
    CommandError, Exit,
    args::{AnswerArgs, Format, SourceArgs},
    output::{print, print_json},
    service_client::ServiceClient,
    table::{paragraph, width},
};
use serde::Serialize;

pub(super) struct Answered<A> {
    pub(super) answer: A,
    /// The recliner that answered; `None` if the cluster was read directly, which shows nothing of the past.
    pub(super) recliner: Option<String>,
    exit: Exit,
}

/// An answer as JSON. `memory` is true if a running recliner gave it, because only a running one remembers the past.
#[derive(Serialize)]
struct WithMemory<'a, A> {
    #[serde(flatten)]
    answer: &'a A,
    memory: bool,
}

impl AnswerArgs {
    /// Asks the running recliner, or reads the cluster if one is named.
    pub(super) async fn answer<A>(
        &self,
        ask: impl AsyncFnOnce(&ServiceClient) -> Result<A, CommandError>,
        read: impl AsyncFnOnce(&SourceArgs) -> Result<(A, Exit), CommandError>,
    ) -> Result<Answered<A>, CommandError> {
        let Some(client) = self.recliner()? else {
            let (answer, exit) = read(&self.source).await?;
            return Ok(Answered { answer, recliner: None, exit });
        };
        let (answer, recliner) = (ask(&client).await?, Some(client.name().to_owned()));
        Ok(Answered { answer, recliner, exit: Exit::Done })
    }

    /// Like [`answer`](Self::answer), but reads the cluster if both are named; `read` may then also ask that recliner.
    pub(super) async fn answer_beside<A>(
        &self,
        ask: impl AsyncFnOnce(&ServiceClient) -> Result<A, CommandError>,
        read: impl AsyncFnOnce(&SourceArgs, Option<&ServiceClient>) -> Result<(A, Exit), CommandError>,
    ) -> Result<Answered<A>, CommandError> {
        let Some(url) = self.recliner.as_ref().filter(|_| self.source.names_couchdb()) else {
            return self.answer(ask, async |source| read(source, None).await).await;
        };
        let client = self.login.client(url)?;
        let (answer, exit) = read(&self.source, Some(&client)).await?;
        Ok(Answered { answer, recliner: None, exit })
    }
}

impl<A: Serialize> Answered<A> {
    /// Prints the answer; if the cluster was read directly, also a note on what is `unknown` then.
    pub(super) fn print(
        &self,
        format: Format,
        render: impl FnOnce(&A, u16) -> String,
        unknown: &str,
    ) -> Result<Exit, CommandError> {
        let (answer, memory) = (&self.answer, self.recliner.is_some());
        let with_note = |_: &_, width| {
            let note = format!("Read directly, without a running recliner: {unknown}.");
            let note = if memory { String::new() } else { paragraph(&note, width) };
            [render(answer, width), note].join(if memory { "" } else { "\n" })
        };
        format.print(&WithMemory { answer, memory }, with_note)?;
        Ok(self.exit)
    }

    /// Prints the answer without a note.
    pub(super) fn print_plain(
        &self,
        format: Format,
        render: impl FnOnce(&A, u16) -> String,
    ) -> Result<Exit, CommandError> {
        format.print(&self.answer, render)?;
        Ok(self.exit)
    }
}

impl Format {
    pub(super) fn print<A: Serialize + ?Sized>(
        self,
        answer: &A,
        render: impl FnOnce(&A, u16) -> String,
    ) -> Result<(), CommandError> {
        match self {
            Self::Json => print_json(&answer),
            Self::Table => print(&render(answer, width())),
        }
    }
}
