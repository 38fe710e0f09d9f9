//! What is wrong, in sentences: the same for the console, the terminal, and whoever else asks.

use super::Status;
use crate::text::grouped;

impl Status {
    /// What keeps recliner from its work.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(problem) = &self.problem {
            out.push(format!("Nothing can be read: {problem}"));
        }
        if let Some(problem) = &self.journal_problem {
            out.push(format!(
                "The journal cannot be used, so nothing is recorded and nothing starts: {problem}"
            ));
        }
        let down = self.nodes.iter().filter(|node| node.up == Some(false));
        let down: Vec<&str> = down.map(|node| &*node.node).collect();
        match down.as_slice() {
            [] => {}
            [one] => out.push(format!("{one} does not answer.")),
            many => out.push(format!("{} nodes do not answer: {}.", many.len(), many.join(", "))),
        }
        out
    }

    /// What an operator should look at soon.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut out = Vec::new();
        if !self.missing_rights.is_empty() {
            out.push(format!("The login lacks rights: {}", self.missing_rights.join("; ")));
        }
        if !self.ready && self.problem.is_none() {
            let progress = match (self.sweep.done, self.sweep.total) {
                (Some(done), Some(total)) => {
                    let [done, total] = [done, total].map(|files| grouped(files as u64));
                    format!(": {done} of {total} files are read")
                }
                _ => String::new(),
            };
            out.push(format!("The first sweep has not ended yet{progress}. Numbers below are of what was read so far."));
        }
        if !self.config.last_reload_successful {
            out.push("The changed configuration is not in force, because it is not valid; recliner check-config says why.".to_owned());
        }
        if !self.config.needs_restart.is_empty() {
            out.push(format!(
                "A restart is needed for the new value of {}.",
                self.config.needs_restart.join(", ")
            ));
        }
        if let (true, Some(last)) =
            (self.sweep.last_success != self.sweep.last_end, &self.last_error)
        {
            out.push(format!("The last sweep could not read everything. The last error: {last}"));
        }
        out
    }

    /// That nothing is wrong, if that is so.
    #[must_use]
    pub fn all_clear(&self) -> Option<&'static str> {
        let clear = self.ready
            && self.suspensions.is_empty()
            && self.problems().is_empty()
            && self.warnings().is_empty();
        clear.then_some("Nothing is wrong: all nodes answer, and the last sweep read everything.")
    }
}
