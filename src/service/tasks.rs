//! The tasks of a process, and how one hears that one of them ended.

use crate::tasks::joined;
use std::future::Future;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::JoinSet,
};

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
    /// A runtime of one thread keeps its tasks: a command that looks once waits for them anyway,
    /// and the paused clock of tests stands still while another thread works.
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
        let ended = self.0.join_next().await?;
        Some(joined(ended).unwrap_or("a cancelled task"))
    }
}
