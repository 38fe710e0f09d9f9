//! `recliner advise`: what to do about the cluster, and orders to mute some of it.

use super::{
    CommandError, Exit,
    address::{UNKNOWN_URL, address},
    args::{AdviseArgs, SourceArgs},
    orders::give_to,
    print_error, printable,
    read_once::{self, ClusterReading},
    service_client::ServiceClient,
    table,
};
use crate::{
    advice::{AdviceInputs, AdviceView, Severity, check},
    model::settings::Settings,
    serve::report::{
        Advice, AttributeBy, Usage,
        orders::{MuteOrder, OrderRequest, UnmuteOrder},
    },
    text::Label,
};
use wall_clock::Clock;

pub(super) async fn run(args: AdviseArgs) -> Result<Exit, CommandError> {
    if args.mute.is_some() || args.unmute.is_some() {
        return mute(&args).await;
    }
    if let Some(by) = &args.by {
        return usage(&args, by).await;
    }
    let ask = async |client: &ServiceClient| {
        let advice: Advice = client.get("/api/v1/advice", &[]).await?;
        Ok(addressed(advice, client.name()))
    };
    let read = async |source: &SourceArgs| {
        let (reading, settings) = read_cluster(source, true).await?;
        for why in reading.node_settings.problems.values() {
            print_error(&printable(&format!("cannot read a node's configuration: {why}")));
        }
        let exit = reading.exit();
        // Only the user knows which recliner watches this cluster.
        Ok((addressed(advice_of(reading, &settings), UNKNOWN_URL), exit))
    };
    let answered = args.from.answer(ask, read).await?;
    let exit = answered.print(args.from.format, table::advice, &unknown(&answered.answer))?;
    Ok(match &args.fail_on {
        Some(severity) if has_severity(&answered.answer, severity) => Exit::Found,
        _ => exit,
    })
}

/// What is missing after the cluster was read directly, and how to complete the printed commands.
fn unknown(advice: &Advice) -> String {
    let remedies = advice.open().flat_map(|line| &line.remedy);
    let needs_url = remedies.filter_map(|it| it.text.as_ref()).any(|it| it.contains(UNKNOWN_URL));
    let url = if needs_url {
        format!(". {UNKNOWN_URL} is the address of a running recliner")
    } else {
        String::new()
    };
    format!("growth, age and mutes of advice are unknown{url}")
}

fn addressed(mut advice: Advice, url: &str) -> Advice {
    advice.advice.iter_mut().for_each(|line| address(&mut line.remedy, url));
    advice
}

/// Prints which databases or design documents use the disks.
async fn usage(args: &AdviseArgs, by: &str) -> Result<Exit, CommandError> {
    let ask = async |client: &ServiceClient| client.get("/api/v1/usage", &[("by", by)]).await;
    let read = async |source: &SourceArgs| {
        let (reading, _) = read_cluster(source, false).await?;
        let by = AttributeBy::from_label(by).unwrap_or(AttributeBy::Database);
        Ok((Usage::of(&reading.plan.snapshot, by, Usage::DEFAULT_LIMIT), reading.exit()))
    };
    args.from.answer(ask, read).await?.print_plain(args.from.format, table::usage)
}

/// Whether there is advice of this severity or worse that nobody muted.
fn has_severity(advice: &Advice, least: &str) -> bool {
    let worse = Severity::labels().into_iter().skip_while(|label| *label != least);
    worse.into_iter().any(|label| advice.open().any(|line| line.severity == label))
}

/// Reads the cluster; also returns the settings.
async fn read_cluster(
    source: &SourceArgs,
    and_node_settings: bool,
) -> Result<(ClusterReading, Settings), CommandError> {
    let settings = source.load()?;
    let reading = read_once::read_cluster(&settings, and_node_settings).await?;
    read_once::print_read_errors(&reading.status);
    check_not_empty(&reading, &settings)?;
    Ok((reading, settings))
}

/// Fails if the directory has no shard file: it is most likely the wrong directory.
fn check_not_empty(reading: &ClusterReading, settings: &Settings) -> Result<(), CommandError> {
    let is_alone = settings.couchdb.urls.is_empty();
    let directory = settings.files.data_dir.as_ref().filter(|_| is_alone);
    match directory.filter(|_| reading.plan.snapshot.row_count() == 0) {
        Some(directory) if reading.status.errors.is_empty() => Err(CommandError::failed(format!(
            "no shard files were found in {}; name the directory that CouchDB calls database_dir, which contains shards/",
            directory.display()
        ))),
        Some(_) | None => Ok(()),
    }
}

fn advice_of(reading: ClusterReading, settings: &Settings) -> Advice {
    let now = Clock::System.now();
    let ClusterReading { plan, status, node_settings, .. } = reading;
    let inputs = AdviceInputs::of_one_reading(plan, status, node_settings, settings);
    let view = AdviceView::found(check(&inputs, now), now);
    Advice::of(&view, &inputs.plan, now)
}

async fn mute(args: &AdviseArgs) -> Result<Exit, CommandError> {
    let client = args.from.recliner()?.ok_or_else(|| {
        CommandError::usage("only a running recliner can mute advice; name it with --recliner.url")
    })?;
    let words = args.mute.as_ref().or(args.unmute.as_ref()).cloned().unwrap_or_default();
    let mut words = words.into_iter();
    let (code, subject) = (words.next().unwrap_or_default(), words.next());
    let order = if args.mute.is_some() {
        let (span, why) = (args.mute_for.clone(), args.why.clone());
        OrderRequest::Mute(MuteOrder { code, subject, span, why })
    } else {
        OrderRequest::Unmute(UnmuteOrder { code, subject })
    };
    give_to(&client, args.from.format, &order).await
}

#[cfg(test)]
mod tests {
    use super::{super::service_client::DEFAULT_URL, *};
    use crate::advice::test_cluster::{NOW, Shard, TestCluster};

    /// Every text to paste in the advice about waste and about files of unknown databases.
    fn texts(url: &str) -> Vec<String> {
        let shard = Shard::new("orders", "a", 0, 900 << 20);
        let (waste, orphan) = (shard.clone().with_active(1 << 20), Shard { db: "old", ..shard });
        let inputs = TestCluster::with_shards(&[waste, orphan.orphan()]).inputs();
        let view = AdviceView::found(check(&inputs, NOW), NOW);
        let advice = addressed(Advice::of(&view, &inputs.plan, NOW), url);
        advice.advice.into_iter().flat_map(|line| line.remedy).filter_map(|it| it.text).collect()
    }

    #[test]
    fn commands_name_the_recliner_that_answered() {
        let default = texts(DEFAULT_URL);
        assert!(default.iter().all(|text| !text.contains("--recliner.url")), "{default:?}");
        let starts = |texts: &[String], start: &str| texts.iter().any(|it| it.starts_with(start));
        let other = texts("http://other:1");
        assert!(starts(&other, "recliner plan --recliner.url http://other:1"), "{other:?}");
        assert!(starts(&other, "recliner explain --recliner.url http://other:1 db:"), "{other:?}");
        let direct = texts(UNKNOWN_URL);
        assert!(starts(&direct, "recliner what-if --recliner.url \"$RECLINER_URL\""), "{direct:?}");
        assert_eq!(default.len(), other.len());
    }

    #[test]
    fn variable_is_explained_only_where_a_command_needs_it() {
        let shard = |range| Shard::new("orders", "a", range, 900 << 20);
        let said = |shards: &[Shard]| {
            let inputs = TestCluster::with_shards(shards).inputs();
            let view = AdviceView::found(check(&inputs, NOW), NOW);
            unknown(&addressed(Advice::of(&view, &inputs.plan, NOW), UNKNOWN_URL))
        };
        assert_eq!(said(&[shard(0)]), "growth, age and mutes of advice are unknown");
        let wasteful = said(&[shard(0).with_active(1 << 20)]);
        assert!(wasteful.ends_with(". $RECLINER_URL is the address of a running recliner"));
    }
}
