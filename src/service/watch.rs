//! What sees a cluster: client, scanner and planner.

use super::StartError;
use crate::{
    clock::Clock,
    couch::{self, Client, ConnectError, Metrics, Transport},
    inventory::{HttpSettings, HttpSource, Source},
    plan::Rules,
    planner, scanner,
    settings::{Nodes, ScanViews, Settings},
};
use std::{collections::BTreeSet, future::Future, sync::Arc};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::watch as latest,
    task::JoinSet,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The tasks of a process; each answers with its name when it ends.
#[derive(Debug, Default)]
pub struct Tasks(JoinSet<&'static str>);

impl Tasks {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a task.
    pub fn spawn(&mut self, task: impl Future<Output = &'static str> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Runs a task on a thread of its own.
    ///
    /// For those that own tables of a million rows: what they do to them holds up no other
    /// task, and all that memory is had and given back by one thread. An allocator keeps
    /// apart what each thread had, so that tables rewritten by whichever thread is free
    /// would come to lie in several places, each as large as the whole.
    ///
    /// A runtime of one thread, as tests on paused time have, keeps its tasks: its clock
    /// stands still while another thread works.
    pub fn spawn_alone(&mut self, task: impl Future<Output = &'static str> + Send + 'static) {
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            self.0.spawn(task);
        } else {
            self.0.spawn_blocking(move || runtime.block_on(task));
        }
    }

    /// The name of the next task that ends; `None` when none is left. A panic goes on in
    /// whoever waits.
    pub async fn next_ended(&mut self) -> Option<&'static str> {
        match self.0.join_next().await? {
            Ok(name) => Some(name),
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Some("a cancelled task"),
            },
        }
    }
}

/// Client, scanner and planner of one cluster.
#[derive(Debug)]
pub struct Watch {
    /// What is seen.
    pub scanner: scanner::Handle,
    /// What follows from it.
    pub planner: planner::Handle,
    /// How CouchDB is asked.
    pub client: Client,
    clock: Clock,
    metrics: Metrics,
    stop: CancellationToken,
    /// Whoever gives up the watch ends its tasks.
    _ends: DropGuard,
    /// Ends the task of the client in use.
    client_stop: CancellationToken,
    source: latest::Sender<Arc<dyn Source>>,
    scan: latest::Sender<Arc<scanner::Settings>>,
    plan: latest::Sender<Arc<planner::Settings>>,
}

impl Watch {
    /// Starts the three.
    ///
    /// # Errors
    /// When the client cannot be set up.
    pub fn start(
        settings: &Settings,
        transport: Transport,
        clock: Clock,
        registry: &prometheus::Registry,
        tasks: &mut Tasks,
        stop: &CancellationToken,
    ) -> Result<Self, StartError> {
        let metrics = Metrics::register(registry)?;
        let couchdb = settings.couchdb.clone();
        let (client, client_task) = Client::connect(couchdb, transport, metrics.clone())?;
        let client_stop = stop.child_token();
        spawn_client(client_task, client_stop.clone(), stop.clone(), tasks);
        let (source, source_rx) = latest::channel(source_of(&client, settings, clock));
        let (scan, scan_rx) = latest::channel(Arc::new(scan_settings(settings)));
        let (plan, plan_rx) = latest::channel(Arc::new(plan_settings(settings)));
        let (scanner_task, scanner) = scanner::Task::new(clock, source_rx, scan_rx);
        let inputs = planner::Inputs::facts_only(scanner.snapshots.clone());
        let (planner_task, planner) = planner::Task::new(clock, inputs, plan_rx);
        let ended = stop.clone();
        tasks.spawn_alone(async move {
            scanner_task.run(ended).await;
            "scanner"
        });
        let ended = stop.clone();
        tasks.spawn_alone(async move {
            planner_task.run(ended).await;
            "planner"
        });
        let (stop, ends) = (stop.clone(), stop.clone().drop_guard());
        Ok(Self {
            scanner,
            planner,
            client,
            clock,
            metrics,
            stop,
            _ends: ends,
            client_stop,
            source,
            scan,
            plan,
        })
    }

    /// Takes over other settings. Where CouchDB is reached differently, a new client takes
    /// the old one's place, and proves its login before it asks anything.
    ///
    /// # Errors
    /// When the new client cannot be set up; then nothing changed.
    pub fn reconfigure(
        &mut self,
        old: &Settings,
        new: &Settings,
        tasks: &mut Tasks,
    ) -> Result<(), ConnectError> {
        if old.couchdb != new.couchdb {
            let couchdb = new.couchdb.clone();
            let transport = Transport::http(&couchdb)?;
            let (client, task) = Client::connect(couchdb, transport, self.metrics.clone())?;
            self.client_stop.cancel();
            self.client_stop = self.stop.child_token();
            spawn_client(task, self.client_stop.clone(), self.stop.clone(), tasks);
            self.client = client;
        }
        self.source.send_replace(source_of(&self.client, new, self.clock));
        self.scan.send_replace(Arc::new(scan_settings(new)));
        self.plan.send_replace(Arc::new(plan_settings(new)));
        Ok(())
    }
}

/// A client's task that ends because another client took its place is no death.
fn spawn_client(
    task: couch::Task,
    replaced: CancellationToken,
    stop: CancellationToken,
    tasks: &mut Tasks,
) {
    tasks.spawn(async move {
        task.run(replaced.clone()).await;
        if replaced.is_cancelled() {
            stop.cancelled().await;
        }
        "couchdb client"
    });
}

fn source_of(client: &Client, settings: &Settings, clock: Clock) -> Arc<dyn Source> {
    let http = HttpSettings {
        requests_in_flight: settings.couchdb.requests_in_flight,
        languages: settings.warmer.languages.clone(),
        named: named(settings),
    };
    Arc::new(HttpSource::new(client.clone(), clock, http))
}

/// Databases that some channel names in full.
fn named(settings: &Settings) -> Vec<String> {
    let included = settings.channels.list.iter().flat_map(|channel| channel.databases.texts().0);
    let whole = included.filter(|text| !text.contains(['*', '?', '[', ']', '{', '}', '\\', '!']));
    whole.cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

fn scan_settings(settings: &Settings) -> scanner::Settings {
    scanner::Settings {
        interval: settings.scan.interval,
        poll: settings.poll,
        share: match &settings.nodes {
            Nodes::All => scanner::Share::All,
            Nodes::Named(names) => scanner::Share::Nodes(names.iter().cloned().collect()),
        },
        views: settings.cluster_targets && settings.scan.views == ScanViews::Auto,
        top: settings.scan.top,
    }
}

fn plan_settings(settings: &Settings) -> planner::Settings {
    planner::Settings {
        channels: Arc::new(settings.channels.clone()),
        rules: Rules {
            mode: settings.mode,
            limits: settings.limits,
            headroom: settings.headroom.clone(),
            views: settings.views.enforce,
            fresh_for: settings.scan.fresh_for,
        },
    }
}
