//! The tasks of a process, and how the end of one is noticed.

use crate::tasks::unwrap_join;
use futures::FutureExt as _;
use std::future::Future;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::JoinSet,
};

/// The tasks of a process, each with its name.
#[derive(Debug, Default)]
pub struct TaskSet(JoinSet<&'static str>);

impl TaskSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a task with this name.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task.map(move |()| name));
    }

    /// Runs a task with this name on its own thread.
    ///
    /// For tasks that own tables of a million rows: their work delays no other task, and one thread
    /// allocates and frees all their memory. Allocators keep memory separate per thread, so tables
    /// rewritten by changing threads would occupy several regions, each as large as the whole.
    ///
    /// A single-threaded runtime keeps such tasks itself: a command that looks once waits for them
    /// anyway, and the paused clock of tests does not advance while another thread works.
    pub fn spawn_on_own_thread(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            self.spawn(name, task);
        } else {
            self.0.spawn_blocking(move || runtime.block_on(task.map(|()| name)));
        }
    }

    /// The name of the next task that ends; `None` if none is left. A panic is resumed in the
    /// caller.
    pub async fn next_ended(&mut self) -> Option<&'static str> {
        let ended = self.0.join_next().await?;
        Some(unwrap_join(ended).unwrap_or("a cancelled task"))
    }
}
