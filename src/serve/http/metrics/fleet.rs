//! Other recliners, of the fleet that is shown together.

use crate::{
    fleet::{Attention, Fleet, MemberState},
    text::Label as _,
};
use metrics_text::{Writer, families};
use wall_clock::Moment;

families! {
    FLEET_MEMBER_UP: Gauge None "recliner_fleet_member_up" ["member"]
        "1 if the recliner of the fleet answered when it was last asked, 0 if it did not.";
    FLEET_MEMBERS: Gauge None "recliner_fleet_members" ["attention"]
        "Number of recliners of the fleet, by why they need attention.";
}

pub(in crate::serve::http) fn write(writer: &mut Writer, fleet: &Fleet, now: Moment) {
    let up = fleet.members.iter().filter_map(|member| match member.state {
        MemberState::Unasked => None,
        MemberState::Silent(_) => Some(([member.address.as_str()], false)),
        MemberState::Answered(_) => Some(([member.address.as_str()], true)),
    });
    writer.write(&FLEET_MEMBER_UP, up);
    let mut samples = writer.family(&FLEET_MEMBERS);
    for attention in Attention::each().filter(|_| fleet.is_configured) {
        let of = fleet.members.iter().filter(|member| Attention::of(member, now) == attention);
        samples.sample(&[attention.label()], of.count() as u64);
    }
}
