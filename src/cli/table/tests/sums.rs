//! Tables on the terminal show the same totals as the API and the pages.

use super::{
    advice, databases, disks, explained, nodes, queues, runs, targets as targets_of, tidy, usage,
};
use crate::{
    advice::AdviceView,
    cli::tidy::answer::TidyAnswer,
    model::{
        channel::Channels,
        records::{Run, RunScope},
    },
    plan::{Conditions, Plan, Queues},
    serve::{
        http::tests::sums::crowded,
        report::{
            Advice, AttributeBy, Databases, Explained, NewestJobs, Planned, RunLine, Space, Usage,
            Wanted, WantedDatabases, WholeViews, find,
        },
    },
    text::size::{format_size, format_size_short},
};
use std::sync::Arc;
use wall_clock::Moment;

const WIDTH: u16 = 200;

/// A plan for a cluster with every kind of target.
pub(in crate::cli) fn plan() -> Plan {
    let snapshot = crowded();
    let now = snapshot.generated_at();
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(&snapshot, now);
    queues.make_plan(&snapshot, &Conditions::default(), &Arc::default(), now)
}

/// The cells of the row that begins with this word, without the signs that mark bounds.
fn row(table: &str, first: &str) -> Vec<String> {
    let line = table.lines().find(|line| line.split(' ').next() == Some(first));
    let line = line.unwrap_or_else(|| panic!("no row {first}: {table}"));
    line.split("  ")
        .map(|cell| cell.trim_start_matches(['≥', '≈', ' ']).trim().to_owned())
        .filter(|cell| !cell.is_empty())
        .collect()
}

fn size(bytes: u64) -> String {
    format_size(bytes).to_string()
}

#[test]
fn terminal_tables_show_the_same_sums_as_the_api() {
    let plan = plan();
    let space = Space::of(&plan, &AdviceView::default());
    let [all, reclaimable] = [space.file_bytes, space.reclaimable_bytes].map(Option::unwrap);
    let scanned = nodes(&plan, WIDTH);
    // Unused files are in another table.
    let directories = disks(&plan, WIDTH);
    let mib = |number: u64| number << 20;
    let (unused, recent) = (mib(22), mib(890));
    assert_eq!(row(&directories, "couchdb@a")[2..5], [7, 5, 900].map(|it| size(mib(it))));
    assert_eq!(mib(7 + 5 + 900) - recent, unused);
    let total = row(&scanned, "total");
    assert_eq!(total[2..], [size(all - 3 * unused), size(reclaimable)], "{scanned}");
    assert_eq!(scanned.contains('≥'), space.unmeasured > 0, "{scanned}");

    let (wanted, now) =
        (WantedDatabases { limit: 9, ..WantedDatabases::default() }, Moment::default());
    let found = Databases::of(&plan, &wanted, &NewestJobs::default(), now);
    let used = Usage::of(&plan.snapshot, AttributeBy::Database, 9);
    let [listed, attributed] = [databases(&found, None, WIDTH), usage(&used, WIDTH)];
    assert_eq!(found.databases.len(), 2);
    for line in &found.databases {
        let expected = [size(line.file_bytes), size(line.reclaimable_bytes)];
        let of_list = row(&listed, &line.db);
        assert_eq!([&of_list[1], &of_list[4]], [&expected[0], &expected[1]], "{listed}");
        let of_usage = row(&attributed, &line.db);
        assert_eq!([&of_usage[1], &of_usage[3]], [&expected[0], &expected[1]], "{attributed}");
    }

    let waiting = row(&queues(&plan, WIDTH), "total");
    assert_eq!(waiting[1], space.waiting.to_string());

    let answer = TidyAnswer::new(&plan, &plan.tidy_outlook(None), &[], None);
    let tidied = tidy::begin(&answer, false, WIDTH);
    let short = format_size_short(all - 3 * unused);
    assert!(tidied.contains(&format!("{short} on disk")), "{short}: {tidied}");
}

#[test]
fn tables_of_targets_show_the_same_numbers_as_the_api() {
    let plan = plan();
    let found = find(&plan, "orders").all();
    let views = WholeViews::of(&plan, &found);
    let targets = found.iter().filter_map(|ix| plan.snapshot.target(*ix));
    let explained_targets: Vec<_> = targets.map(|it| Explained::of(&plan, it, &views)).collect();
    let wanted = WantedDatabases { limit: 9, ..WantedDatabases::default() };
    let listed = Databases::of(&plan, &wanted, &NewestJobs::default(), Moment::default());
    let orders = listed.databases.iter().find(|line| line.db == "orders").unwrap();
    let [on_disk, reclaimable] = [orders.file_bytes, orders.reclaimable_bytes].map(size);
    let table = explained("orders", &explained_targets, None, false, WIDTH);
    let sums = format!("{on_disk} on disk, {reclaimable} reclaimable.");
    assert!(table.contains(&sums), "{sums}: {table}");

    // Each row shows the sizes that the API reports for the target.
    let largest = targets_of(&plan, WIDTH);
    let rows = explained_targets.iter().filter(|it| it.part_of.is_none());
    let mut shown = 0;
    for target in rows.map(|it| &it.target).filter(|it| it.reclaimable_bytes > Some(0)) {
        let sizes = [target.file_bytes, target.reclaimable_bytes].map(|it| size(it.unwrap()));
        let sign = if target.estimated { "≈ " } else { "" };
        let sizes = sizes.map(|size| format!("{sign}{size}"));
        let node = target.node.trim_start_matches("couchdb@");
        let has = |line: &str| {
            let cells: Vec<&str> = line.split("  ").map(str::trim).collect();
            let has = |text: &str| cells.contains(&text);
            sizes.iter().all(|size| has(size)) && (has(node) || target.kind == "view")
        };
        let is_shown = largest.lines().any(has);
        assert_eq!(is_shown, target.state != "orphan", "{}: {largest}", target.id);
        shown += usize::from(is_shown);
    }
    assert_eq!(shown, 7, "{largest}");

    let planned = Planned::of(&plan, Wanted { limit: 99, ..Wanted::default() });
    let table = super::planned(&planned, WIDTH);
    let gain: u64 = planned.starts.iter().filter_map(|start| start.gain_bytes).sum();
    let head = format!("{} would start now; {} reclaimable.", planned.starts.len(), size(gain));
    assert!(table.contains(&head), "{head}: {table}");
    for start in &planned.starts {
        let target = explained_targets.iter().find(|it| it.target.id == start.id);
        assert_eq!(start.gain_bytes, target.unwrap().target.reclaimable_bytes, "{}", start.id);
    }

    let answer =
        Advice::of(&AdviceView::found(Vec::new(), plan.planned_at), &plan, Moment::default());
    let space = Space::of(&plan, &AdviceView::default());
    let says = advice(&answer, WIDTH).replace('\n', " ");
    for bytes in [space.file_bytes, space.reclaimable_bytes, space.unused_bytes] {
        let short = format_size_short(bytes.unwrap());
        assert!(says.contains(&short), "{short}: {says}");
    }

    // A run over the database is predicted to free what its files waste, without what the run leaves out.
    let run =
        Run::beginning(RunScope::Database("orders".into()), true, "ann".into(), plan.planned_at);
    let (line, _) = RunLine::if_ordered(&plan, &run);
    let left_out: Vec<&str> =
        line.left_out.iter().flat_map(|it| &it.examples).map(|it| &*it.id).collect();
    let members = explained_targets.iter().filter(|it| it.part_of.is_none());
    let members = members.map(|it| &it.target);
    let members = members.filter(|it| it.state == "ok" && !left_out.contains(&&*it.id));
    let expected: u64 = members.filter_map(|it| it.reclaimable_bytes).sum();
    assert_eq!(line.reclaimable_bytes, expected, "{line:?}");
    let text = runs(std::slice::from_ref(&line), WIDTH);
    assert!(text.contains(&line.says), "{text}");
}
