//! `recliner top`: shows a running recliner on a terminal and keeps the screen up to date.
//!
//! One task owns the state of the screen ([`model`]), draws it ([`view`]) on the terminal
//! ([`terminal`]), and applies keys and updates to it. [`mod@follow`] asks the service; [`rows`]
//! turns its answers into lists ([`list`]); an [`order`] is sent only after its confirmation. State
//! and drawing are pure, so that tests press keys and read screens without a terminal.

mod answers;
#[cfg(test)]
#[path = "top/tests/fixture.rs"]
mod fixture;
mod follow;
mod key;
mod list;
mod model;
mod order;
mod rows;
mod terminal;
mod view;

use super::{
    CommandError, Exit, args::ReachArgs, orders, printable, service_client::ServiceClient,
};
use crate::{
    serve::report::{Explained, Explanations},
    tasks::unwrap_join,
};
use answers::Answers;
use crossterm::event::EventStream;
use follow::Follower;
use futures::StreamExt as _;
use model::{Model, Request, Update};
use order::Order;
use std::{
    io::{self, IsTerminal as _},
    sync::Arc,
    time::Duration,
};
use terminal::Canvas;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, mpsc},
    task::JoinSet,
    time::{self, MissedTickBehavior},
};
use wall_clock::Clock;

/// Maximum number of updates that wait to be shown.
const NEWS: usize = 16;

/// How often ages on the screen are refreshed.
const TICK: Duration = Duration::from_secs(1);

/// Maximum number of targets to explain for one name.
const EXPLAINED: &str = "1000";

pub(super) async fn run(args: ReachArgs) -> Result<Exit, CommandError> {
    if !io::stdout().is_terminal() {
        return Err(CommandError::usage(
            "top needs a terminal on standard output; recliner plan, recliner explain and recliner events print the same as text or JSON",
        ));
    }
    let client = Arc::new(args.client().await?);
    // Errors up to here are printed before the alternate screen would hide them.
    let answers = Answers::read(&client, None).await?;
    let mut signals = Signals::new().map_err(broken)?;
    let model = Model::new(printable(client.name()), answers, Clock::System.now());
    let colours = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let mut canvas = Canvas::open().map_err(broken)?;
    follow(&mut canvas, &mut signals, client, model, view::Theme { colours }).await
}

fn broken(why: io::Error) -> CommandError {
    CommandError::failed(format!("cannot use the terminal: {why}"))
}

/// Signals before which the terminal must be restored.
#[derive(Debug)]
struct Signals {
    ends: [Signal; 4],
    pauses: Signal,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    End,
    Pause,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let ends = [
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::quit())?,
        ];
        let pauses = signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?;
        Ok(Self { ends, pauses })
    }

    async fn next(&mut self) -> Asked {
        let [term, int, hup, quit] = &mut self.ends;
        tokio::select! {
            _ = term.recv() => Asked::End,
            _ = int.recv() => Asked::End,
            _ = hup.recv() => Asked::End,
            _ = quit.recv() => Asked::End,
            _ = self.pauses.recv() => Asked::Pause,
        }
    }
}

/// Shows the service until a key or a signal ends the program.
async fn follow(
    canvas: &mut Canvas,
    signals: &mut Signals,
    client: Arc<ServiceClient>,
    mut model: Model,
    theme: view::Theme,
) -> Result<Exit, CommandError> {
    let (news, mut arrived) = mpsc::channel(NEWS);
    let follower = Follower { client, news, happened: Arc::new(Notify::new()) };
    let mut tasks = JoinSet::new();
    tasks.spawn(follower.clone().follow_state(model.answers.slow.clone()));
    tasks.spawn(follower.clone().follow_events());
    let mut keys = EventStream::new();
    let mut tick = time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        model.now = Clock::System.now();
        canvas.draw(|area, buffer| view::render(&model, theme, area, buffer)).map_err(broken)?;
        tokio::select! {
            event = keys.next() => {
                let Some(event) = event else { return Ok(Exit::Done) };
                let request = terminal::key_of(&event.map_err(broken)?);
                match request.and_then(|key| model.press(key)) {
                    None => {}
                    Some(Request::Quit) => return Ok(Exit::Done),
                    Some(Request::Pause) => canvas.pause().map_err(broken)?,
                    Some(request) => {
                        tasks.spawn(carry_out(follower.clone(), request));
                    }
                }
            }
            Some(update) = arrived.recv() => model.apply(update),
            Some(ended) = tasks.join_next() => {
                // A panic in the task is resumed here; otherwise the task carried out a request.
                unwrap_join(ended).unwrap_or_default();
            }
            _ = tick.tick() => {}
            asked = signals.next() => match asked {
                Asked::End => return Ok(Exit::Done),
                Asked::Pause => canvas.pause().map_err(broken)?,
            },
        }
    }
}

/// Carries out a request and sends the result back as an update.
async fn carry_out(follower: Follower, request: Request) {
    let Follower { client, news, happened } = follower;
    let update = match request {
        Request::Quit | Request::Pause => return,
        Request::Explain(asked) => {
            let found = explain(&client, &asked).await;
            Update::Explained { asked, found }
        }
        Request::Weigh(asked) => {
            let found = explain(&client, &asked).await;
            Update::Weighed { asked, found }
        }
        Request::Send(order) => {
            let answer = send(&client, &order).await.map_err(order_failure);
            happened.notify_one();
            Update::Ordered { order, answer }
        }
    };
    // Sending fails only when the program is ending.
    let _ended = news.send(update).await;
}

async fn explain(client: &ServiceClient, target: &str) -> Result<Vec<Explained>, String> {
    let query = [("target", target), ("limit", EXPLAINED)];
    let answer: Result<Explanations, CommandError> = client.get("/api/v1/explain", &query).await;
    answer.map(|answer| answer.targets).map_err(|failure| failure.why)
}

/// Sends an order; returns the text of its answer.
async fn send(client: &ServiceClient, order: &Order) -> Result<String, CommandError> {
    let request = order.request();
    let answer = orders::send(client, &request).await?;
    Ok(orders::what_it_did(&request, &answer))
}

/// Why an order was not carried out; in advise mode, with the request that a person could send.
fn order_failure(failure: CommandError) -> String {
    let request = failure.conflict.as_deref().and_then(|it| it.requests().first());
    request.map_or_else(
        || failure.why.clone(),
        |request| format!("{}\n\n{}", failure.why, printable(request)),
    )
}
