//! Tables on the terminal show the same sums as the API and the pages.

use super::{databases, disks, nodes, queues, usage};
use crate::{
    advice::AdviceView,
    model::channel::Channels,
    plan::{Conditions, Plan, Queues},
    serve::{
        http::tests::sums::crowded,
        report::{AttributeBy, Databases, LastCompactions, Space, Usage, WantedDatabases},
    },
    text::size::format_size,
};
use std::sync::Arc;
use wall_clock::Moment;

const WIDTH: u16 = 200;

fn plan() -> Plan {
    let snapshot = crowded();
    let now = snapshot.generated_at();
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(&snapshot, now);
    queues.make_plan(&snapshot, &Conditions::default(), &Arc::default(), now)
}

/// The cells of the row that begins with this word, without signs of bounds.
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
fn terminal_tables_show_the_sums_of_the_api() {
    let plan = plan();
    let space = Space::of(&plan, &AdviceView::default());
    let [all, reclaimable] = [space.file_bytes, space.reclaimable_bytes].map(Option::unwrap);
    let scanned = nodes(&plan, WIDTH);
    // Unused files have a table of their own.
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
    let found = Databases::of(&plan, &wanted, &LastCompactions::new(), now);
    let used = Usage::of(&plan.snapshot, AttributeBy::Database, 9);
    let [listed, attributed] = [databases(&found, false, WIDTH), usage(&used, WIDTH)];
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
}
