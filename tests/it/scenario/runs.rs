//! Runs: a database is compacted before all others, through pauses, restarts and kills.

use super::*;
use recliner::{
    model::records::{
        Futile, Run, RunCommand, RunEnding, RunScope, StateChange, StateStore as _, Suspension,
        SuspensionScope, TargetRecord,
    },
    serve::report::{RunLine, left_out_says, run_progress},
};

impl Rig {
    async fn change_run(&self, command: RunCommand) -> u64 {
        self.watch.job_state.change_run(command).await.expect("the change is stored")
    }

    async fn begin_run(&self, scope: RunScope) -> u64 {
        let run = Run::beginning(scope, false, "ann".into(), self.cluster.wall());
        self.change_run(RunCommand::Begin(run)).await
    }

    /// The run as the API shows it.
    async fn run_line(&mut self, number: u64) -> RunLine {
        let plan = self.planned().await;
        let run = self.watch.job_state.constraints.borrow().runs.0[&number].clone();
        RunLine::of(&plan, number, &run)
    }

    async fn note_run(&mut self, number: u64, what: &str) {
        let line = self.run_line(number).await;
        let left: Vec<String> = line.left_out.iter().map(left_out_says).collect();
        self.note(format!("{what}: {} [{}]", line.says, left.join("; ")));
    }

    async fn pause(&self, number: u64) {
        let pause = Suspension { since: self.cluster.wall(), by: Some("bob".into()), why: None };
        self.change_run(RunCommand::Pause(number, pause)).await;
    }

    /// Stores that the last compaction of a copy left as much as is there now.
    async fn make_futile(&self, db: &str, node: &str) {
        let plan = Arc::clone(&self.watch.planner.plan.borrow());
        let mut targets = plan.snapshot.targets();
        let copy = targets.find(|it| it.db_name().db == db && it.node() == node);
        let copy = copy.expect("the target exists");
        let facts = copy.facts();
        let futile = Futile {
            at: self.cluster.wall(),
            file_bytes: facts.file_bytes.get().expect("it was measured"),
            active_bytes: facts.active_bytes.get(),
            update_seq: facts.update_seq.get(),
            ..Futile::default()
        };
        let record = TargetRecord { futile: Some(futile), ..TargetRecord::default() };
        let change = StateChange::SetTargetRecord(copy.id(), Some(record));
        self.store.store(vec![change]).await.expect("the change is stored");
    }
}

/// A database with 24 copies and a view that would need eight slots on each node, and another with
/// more waste.
fn world() -> Config {
    let design = Design { bytes_per_doc: 200, bloat: 6.0, ..Design::new("by_date") };
    let orders = Database { q: 8, n: 3, designs: vec![design], ..bloated("orders", 800) };
    let slow = Config { compaction_rate: 4_000_000, ..nodes() };
    slow.with(orders).with(Database { q: 8, n: 3, bloat: 6.0, ..bloated("logs", 800) })
}

fn yaml() -> String {
    roomy() + "views: {enforce: all}\nlimits: {wait: 10s, duty: 100%}\n"
}

fn orders() -> RunScope {
    RunScope::Database("orders".into())
}

/// A process that has read everything and starts nothing yet; one copy was compacted in vain.
async fn ready() -> Rig {
    let mut rig = Rig::in_mode(Mode::Enforce, START, world(), &yaml());
    rig.watch.job_state.suspend(SuspensionScope::All, None, None).await.expect("it is stored");
    rig.run_for(2 * MINUTE).await;
    rig.make_futile("orders", A).await;
    rig.kill_for(Duration::ZERO).await;
    rig.run_for(2 * MINUTE).await;
    rig
}

async fn resume(rig: &Rig) {
    rig.watch.job_state.resume(SuspensionScope::All, None).await.expect("it is stored");
}

#[tokio::test(start_paused = true)]
async fn run_compacts_a_database_first_through_pause_restart_and_kill() {
    let mut rig = ready().await;
    let run = rig.begin_run(orders()).await;
    rig.run_for(MINUTE).await;
    rig.note_run(run, "everything is suspended").await;
    resume(&rig).await;
    rig.run_for(2 * MINUTE).await;
    rig.note_run(run, "it goes on").await;
    rig.pause(run).await;
    rig.run_for(MINUTE).await;
    rig.note_run(run, "it is paused").await;
    rig.kill_for(MINUTE).await;
    rig.run_for(MINUTE).await;
    rig.note_run(run, "it is paused after a kill").await;
    let now = rig.cluster.wall();
    rig.change_run(RunCommand::Resume(run, now)).await;
    rig.run_for(Duration::from_secs(40)).await;
    rig.note_run(run, "it was resumed").await;
    rig.kill_with_archive_for(Duration::from_secs(10), 0).await;
    rig.run_for(HOUR).await;
    rig.note_run(run, "after another kill and an hour").await;
    rig.note_outcomes();
    let line = rig.run_line(run).await;
    assert_eq!((line.done, line.members, &*line.state), (23, 23, "done"), "{line:?}");
    let left: Vec<(&str, u64)> =
        line.left_out.iter().map(|group| (&*group.reason, group.members)).collect();
    assert_eq!(left, [("excluded", 1), ("futile", 1)]);
    let records = rig.store.kept().remembered;
    assert!(records.values().all(|record| record.done_in_run.is_none()), "nothing is left of it");
    insta::assert_snapshot!(timeline(&rig.record()));
}

#[tokio::test(start_paused = true)]
async fn cancelled_run_starts_no_more_and_its_running_jobs_end() {
    let mut rig = ready().await;
    // The others would start by themselves.
    rig.reconfigure(&yaml().replace("limits: {", "limits: {cluster: 1, "));
    let run = rig.begin_run(orders()).await;
    resume(&rig).await;
    rig.run_for(45 * Duration::from_secs(1)).await;
    let plan = rig.planned().await;
    let stored = rig.store.kept().runs[&run].clone();
    let how = (RunEnding::Cancelled, rig.cluster.wall());
    let end = run_progress(&plan, run, &stored).end(&stored, how, Some("bob".to_owned()));
    rig.change_run(RunCommand::End(run, end.clone())).await;
    rig.note_run(run, "it was cancelled").await;
    let before = rig.run_line(run).await;
    rig.run_for(20 * MINUTE).await;
    assert_eq!(rig.run_line(run).await, before, "its result stands");
    let again = rig.watch.job_state.change_run(RunCommand::End(run, end)).await;
    let why = again.expect_err("it has ended").to_string();
    assert!(why.contains("no open run has the number 1"), "{why}");
    let next = rig.cluster.world(|world| world.compactions());
    let of = |name: &str| next.iter().filter(|one| one.shard.contains(name)).count();
    assert!(of("/logs.") > 3, "the others go on in their usual order");
    insta::assert_snapshot!(timeline(&rig.record()));
}

#[tokio::test(start_paused = true)]
async fn advise_mode_starts_no_member_of_a_run() {
    let mut rig = Rig::in_mode(Mode::Advise, START, world(), &yaml());
    rig.run_for(2 * MINUTE).await;
    let run = rig.begin_run(orders()).await;
    rig.run_for(10 * MINUTE).await;
    let line = rig.run_line(run).await;
    assert_eq!((line.done, line.members), (0, 24), "{line:?}");
}
