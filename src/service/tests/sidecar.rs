//! A sidecar with real files, and a service that uses its parts over real sockets.

use super::*;
use crate::{
    model::{facts::Confidence, settings::ServedNodes, target::TargetKind},
    scan,
    sources::inventory::{
        CopyAt, IndexAnswer, MapEntry, MapRead, Members, NodeAnswer, Observation, PeersSource,
        Source, Sources, Stage, ViewAnswer,
    },
    table::NodeSmoosh,
};
use couchdb_names::Range;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use std::{collections::BTreeSet, fs};
use tempfile::TempDir;

const NODE: &str = "couchdb@a";
const SHARD: &str = "shards/00000000-ffffffff/orders.1795222434";

fn real(name: &str) -> Vec<u8> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/couchdb-files/tests/data").join(name);
    fs::read(path).unwrap()
}

fn signature() -> String {
    let all: serde_json::Value = serde_json::from_slice(&real("expected.json")).unwrap();
    all["view_multi.view"]["parsed"]["signature"].as_str().unwrap().to_owned()
}

fn tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let put = |path: String, bytes: &[u8]| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    put(format!("{SHARD}.couch"), &real("updates.couch"));
    let view = format!(".{SHARD}_design/mrview/{}.view", signature());
    put(view, &real("view_multi.view"));
    put(".delete/0123456789abcdef0123456789abcdef".to_owned(), &[7; 1000]);
    root
}

/// A cluster of one node and one database, with CouchDB's estimate of its view.
#[derive(Debug)]
struct ClusterSource(Sources);

impl Source for ClusterSource {
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation> {
        let range = Range { from: 0, to: u32::MAX };
        let node = || NODE.to_owned();
        let observations = match stage {
            Stage::Disk => return self.0.read(stage),
            Stage::Splits => vec![Observation::Reshard(Ok(Default::default()))],
            Stage::Nodes => vec![
                Observation::Members(Ok(Members {
                    expected: vec![node()],
                    connected: vec![node()],
                })),
                Observation::Reshard(Ok(Default::default())),
                Observation::Node(NodeAnswer {
                    node: node(),
                    up: Ok(()),
                    build: None,
                    own_address: Default::default(),
                    smoosh: NodeSmoosh::NoDirectAddress,
                }),
            ],
            Stage::Map { .. } => vec![
                Observation::MapPage(vec![MapEntry {
                    db: "orders".to_owned(),
                    suffix: ".1795222434".to_owned(),
                    copies: BTreeSet::from([CopyAt { range, node: node() }]),
                    ..MapEntry::default()
                }]),
                Observation::MapEnd(Ok(MapRead::Whole)),
            ],
            Stage::Files { .. } => {
                vec![Observation::Files { node: node(), names: Ok([SHARD].into_iter().collect()) }]
            }
            Stage::Views { .. } => vec![Observation::Views {
                searches: Vec::new(),
                db: "orders".to_owned(),
                suffix: ".1795222434".to_owned(),
                views: Ok(vec![ViewAnswer {
                    designs: vec!["_design/x".to_owned()],
                    language: "javascript".to_owned(),
                    built_by: None,
                    functions: vec![],
                    index: Ok(IndexAnswer {
                        copies: Vec::new(),
                        signature: signature().parse().unwrap(),
                        facts: crate::model::facts::Facts::default(),
                        collators: vec![],
                        copy: None,
                    }),
                    unaddressable: false,
                }]),
                signatures: None,
            }],
            Stage::Strays { .. }
            | Stage::Shards { .. }
            | Stage::Poll { .. }
            | Stage::Away { .. } => vec![],
        };
        let end = stream::once(std::future::ready(Observation::StageEnded));
        stream::iter(observations).chain(end).boxed()
    }
}

#[tokio::test]
async fn sidecar_serves_facts_from_files_to_other_processes() {
    let root = tree();
    let flags = Flags {
        couchdb_urls: vec![],
        couchdb_username: None,
        env_password: None,
        data_dir: Some(root.path().to_owned()),
        nodes: vec![NODE.to_owned()],
        ..flags()
    };
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let service = start(loaded(&flags, "scan: {interval: 1h}").unwrap().settings).await.unwrap();
    let url = format!("http://{}", service.address());
    let (mut status, mut plan) =
        (service.monitor().scanner.status.clone(), service.monitor().planner.plan.clone());
    let stop = service.stop_token();
    let mut tasks = JoinSet::new();
    tasks.spawn(service.run(Box::new(|| Err("no reload".to_owned()))));
    let ready = status.wait_for(|status| status.ready);
    drop(time::timeout(PATIENCE, ready).await.expect("the sweep ends").unwrap());
    let planned = plan.wait_for(|plan| plan.snapshot.targets().count() == 2);
    drop(time::timeout(PATIENCE, planned).await.expect("a plan follows").unwrap());

    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
    let text = client.get(format!("{url}/metrics")).send().await.unwrap().text().await.unwrap();
    let has = |line: &str| text.lines().any(|it| it == line);
    let file = real("view_multi.view").len();
    assert!(has(&format!("recliner_node_view_file_bytes{{node=\"{NODE}\"}} {file}")), "{text}");
    assert!(has(&format!("recliner_trash_bytes{{node=\"{NODE}\"}} 1000")), "{text}");
    assert!(has(&format!("recliner_leftover_bytes{{node=\"{NODE}\"}} 0")), "{text}");
    // Values that only CouchDB knows are absent, not zero.
    for absent in ["recliner_node_up", "recliner_source_disagreements", "recliner_jobs_running"] {
        assert!(!text.lines().any(|line| line.starts_with(&format!("{absent}{{"))), "{absent}");
    }
    assert!(!text.contains("\"_cluster\""), "nothing is known about the cluster");

    let address = url.parse().unwrap();
    let peers = PeersSource::new(&[address], None, Clock::System).unwrap().unwrap();
    let asking = peers.clone();
    let sources = Sources { elsewhere: vec![Arc::new(peers)], ..Sources::default() };
    let owner: Arc<dyn Source> = Arc::new(ClusterSource(sources));
    let (_source, source) = latest::channel(owner);
    let settings = scan::ScanSettings {
        interval: Duration::from_millis(1),
        interval_followed: Duration::from_millis(1),
        reread_after: Duration::from_millis(1),
        poll: Duration::from_secs(3_600),
        nodes: ServedNodes::Named(BTreeSet::new()),
        views: true,
        parts: true,
        top: 10,
    };
    let (_scan, scan) = latest::channel(Arc::new(settings));
    let (task, mut handle) = scan::ScanTask::new(Clock::System, source, scan);
    let owner_stop = CancellationToken::new();
    let mut owners = JoinSet::new();
    owners.spawn(task.run(owner_stop.clone()));
    let exact = |bytes: Option<u64>| {
        move |snapshot: &Arc<crate::table::Snapshot>| {
            let mut views =
                snapshot.targets().filter(|it| it.kind() == TargetKind::View && !it.is_part());
            views.any(|view| view.file_bytes() == bytes)
        }
    };
    let exact_sizes = handle.snapshots.wait_for(exact(Some(file as u64)));
    drop(time::timeout(PATIENCE, exact_sizes).await.expect("its parts are known").unwrap());
    // The sidecar X-rays the files on request, and includes the result in its facts.
    let answers = time::timeout(PATIENCE, asking.xrays("orders")).await.unwrap();
    let [(_, Ok(xray))] = &answers[..] else { panic!("{answers:?}") };
    let sizes = file + real("updates.couch").len();
    let sum = xray.sum.as_ref().unwrap();
    assert_eq!((sum.file_bytes, sum.exact), (sizes as u64, true));
    assert_eq!((&*xray.nodes[0].node, xray.nodes[0].files), (NODE, 2));
    assert_eq!(xray.unknown, [""; 0]);
    let seen = handle.snapshots.wait_for(|snapshot| {
        snapshot.targets().any(|it| it.is_part() && it.confidence() == Confidence::Xray)
    });
    drop(time::timeout(PATIENCE, seen).await.expect("the X-ray arrives").unwrap());
    let answers = time::timeout(PATIENCE, asking.xrays("nothing")).await.unwrap();
    let [(_, Err(why))] = &answers[..] else { panic!("{answers:?}") };
    assert!(why.contains("no database is called \"nothing\""), "{why}");
    // The sidecar stops: CouchDB's own values are used again, and CouchDB reports none here.
    stop.cancel();
    let ended = time::timeout(PATIENCE, tasks.join_next()).await;
    assert_eq!(ended.unwrap().unwrap().unwrap(), ServiceEnd::Stopped);
    let unknown = handle.snapshots.wait_for(exact(None));
    drop(time::timeout(PATIENCE, unknown).await.expect("its parts are forgotten").unwrap());
    let errors = handle.status.borrow().errors.clone();
    assert!(errors.keys().any(|(node, reason)| &**node == "_cluster" && *reason == "peer"));
    owner_stop.cancel();
}
