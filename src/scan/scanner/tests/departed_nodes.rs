//! Copies that the shard map places on a node that is no longer a member of the cluster.

use super::*;

/// The cluster with only these nodes as members.
#[derive(Debug)]
struct Remaining {
    cluster: Cluster,
    members: watch::Receiver<Result<Vec<&'static str>, ReadError>>,
}

impl Source for Remaining {
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation> {
        let ask_members = matches!(stage, Stage::Nodes);
        let mut answers = self.cluster.answers(stage);
        if ask_members {
            let members = self.members.borrow().clone();
            let has_left = |node: &str| members.as_ref().is_ok_and(|names| !names.contains(&node));
            answers.retain(|it| !matches!(it, Observation::Node(node) if has_left(&node.node)));
            answers[0] = Observation::Members(members.map(|names| {
                let expected: Vec<String> = names.into_iter().map(ToOwned::to_owned).collect();
                Members { connected: expected.clone(), expected }
            }));
        }
        answers.push(Observation::StageEnded);
        stream::iter(answers).boxed()
    }
}

fn states(snapshot: &Snapshot, node: &str) -> Vec<TargetState> {
    let targets = snapshot.targets().filter(|it| it.kind() == TargetKind::Db && it.node() == node);
    targets.filter(|it| it.range().is_some()).map(|it| it.state()).collect()
}

#[test]
fn copy_on_a_former_member_has_unknown_state() {
    let (members, members_rx) = watch::channel(Ok(vec![NODES[0]]));
    let source = Remaining { cluster: Cluster::default(), members: members_rx };
    let mut harness = Harness::starting(Cluster::default(), vec![], Some(Arc::new(source)));
    let snapshot = harness.sweep(1);
    assert_eq!(states(&snapshot, NODES[0]), [TargetState::Ok]);
    assert_eq!(states(&snapshot, NODES[1]), [TargetState::Unknown]);
    members.send_modify(|members| *members = Ok(NODES.to_vec()));
    let snapshot = harness.sweep(2);
    assert_eq!(states(&snapshot, NODES[1]), [TargetState::Ok], "it came back with its files");
}

#[test]
fn no_copy_is_missing_if_reading_members_is_forbidden() {
    let forbidden = ReadError { right: Some("members"), ..unread("forbidden") };
    let (_members, members_rx) = watch::channel(Err(forbidden));
    let source = Remaining { cluster: Cluster::default(), members: members_rx };
    let mut harness = Harness::starting(Cluster::default(), vec![], Some(Arc::new(source)));
    let snapshot = harness.sweep(1);
    for node in NODES {
        assert_eq!(states(&snapshot, node), [TargetState::Ok], "{node}");
    }
}
