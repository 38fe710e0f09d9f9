//! Which members need a person, and in which order. Pure.

use super::{Member, MemberAnswer, MemberState};
use crate::{advice::Severity, text::Label as _};
use std::{cmp::Reverse, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// A volume that is full within this time is full soon.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// Why a member needs a person, the most urgent first.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attention {
    /// It does not answer, or its answer is not a recliner's.
    Silent,
    /// It refuses the login.
    Refused,
    /// It answers, but cannot read its cluster or use its journal.
    Problem,
    /// Its worst advice is critical.
    CriticalAdvice,
    /// A volume is full within 14 days.
    FullSoon,
    /// Something is suspended.
    Suspended,
    /// Its worst advice is a warning.
    Warning,
    /// It was not asked yet, or does not report its advice.
    Unknown,
    /// Nothing needs a person.
    Nothing,
}

impl Attention {
    /// Whether a person is needed; `false` also if nothing is known.
    pub const fn needs_a_person(self) -> bool {
        !matches!(self, Self::Unknown | Self::Nothing)
    }

    /// The words after a number of members.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Refused => "refusing the login",
            Self::Problem => "with a problem",
            Self::CriticalAdvice => "with critical advice",
            Self::FullSoon => "with a volume that is full within 14 days",
            Self::Suspended => "suspended",
            Self::Warning => "with a warning",
            Self::Unknown => "not known yet",
            Self::Nothing => "fine",
        }
    }

    /// Why a member needs a person.
    pub fn of(member: &Member, now: Moment) -> Self {
        match &member.state {
            MemberState::Unasked => Self::Unknown,
            MemberState::Silent(silence) if silence.is_refused => Self::Refused,
            MemberState::Silent(_) => Self::Silent,
            MemberState::Answered(answer) => Self::of_answer(answer, now),
        }
    }

    fn of_answer(answer: &MemberAnswer, now: Moment) -> Self {
        let worst = answer.overview.advice.as_ref().map(|advice| advice.worst.as_ref());
        let severity = worst.flatten().and_then(|worst| Severity::from_label(&worst.severity));
        let full = answer.overview.full_at.as_deref().and_then(Moment::parse);
        if answer.any_problem().is_some() {
            Self::Problem
        } else if severity == Some(Severity::Critical) {
            Self::CriticalAdvice
        } else if full.is_some_and(|full| full <= now.plus(SOON)) {
            Self::FullSoon
        } else if answer.suspended().is_some_and(|all| !all.is_empty()) {
            Self::Suspended
        } else if severity == Some(Severity::Warning) || !answer.overview.warnings.is_empty() {
            Self::Warning
        } else if worst.is_none() {
            Self::Unknown
        } else {
            Self::Nothing
        }
    }

    /// The members with the reason of each, the most urgent first; then by the date on which a volume is full,
    /// then by waste.
    pub fn sorted<'a>(
        members: impl IntoIterator<Item = &'a Member>,
        now: Moment,
    ) -> Vec<(Self, &'a Member)> {
        let members = members.into_iter();
        let mut sorted: Vec<_> = members.map(|it| (Self::of(it, now), it)).collect();
        sorted.sort_by_cached_key(|(attention, member)| {
            let overview = member.answer().map(|answer| &answer.overview);
            let full = overview.and_then(|it| Moment::parse(it.full_at.as_deref()?));
            let waste = overview.and_then(|it| it.waste_bytes);
            let name = member.name().to_owned();
            (*attention, full.is_none(), full, Reverse(waste), name, member.address.clone())
        });
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Silence;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const NOW: Moment = Moment::from_unix(1_795_222_440);

    fn member(name: &str, state: MemberState) -> Member {
        let address = format!("http://{name}:10984").parse().unwrap();
        Member { address, name: Some(name.to_owned()), has_login: true, state }
    }

    fn silent(is_refused: bool) -> MemberState {
        let why = "no answer".to_owned();
        MemberState::Silent(Silence { since: NOW, is_refused, why })
    }

    fn answered(more: &Value) -> MemberState {
        let mut answer = json!({"version": "1", "mode": "advise", "suspensions": [], "overview": {
            "advice": {"open": 0, "worst": null},
        }});
        let Value::Object(more) = more else { panic!("an object") };
        for (key, value) in more {
            match answer["overview"].get_mut(key) {
                Some(slot) => *slot = value.clone(),
                None if ["problem", "suspensions", "overview"].contains(&&**key) => {
                    answer[key] = value.clone();
                }
                None => answer["overview"][key] = value.clone(),
            }
        }
        MemberState::Answered(Arc::new(serde_json::from_value(answer).unwrap()))
    }

    #[test]
    fn members_are_sorted_by_how_much_attention_they_need() {
        let advice = |severity: &str| json!({"open": 1, "worst": {"severity": severity, "code": "c", "says": "s"}});
        let on = |days: u64| NOW.plus(Duration::from_secs(days * 86_400)).rfc3339();
        let suspended = json!([{"says": "all"}]);
        let rows = [
            ("silent", silent(false), Attention::Silent),
            ("refused", silent(true), Attention::Refused),
            (
                "blind",
                answered(&json!({"problem": "login", "advice": advice("critical")})),
                Attention::Problem,
            ),
            (
                "node-down",
                answered(&json!({"problems": ["couchdb@b does not answer."]})),
                Attention::Problem,
            ),
            (
                "critical-full",
                answered(&json!({"advice": advice("critical"), "full_at": on(2)})),
                Attention::CriticalAdvice,
            ),
            (
                "critical",
                answered(&json!({"advice": advice("critical"), "suspensions": suspended})),
                Attention::CriticalAdvice,
            ),
            (
                "full-earlier",
                answered(&json!({"full_at": on(3), "suspensions": suspended})),
                Attention::FullSoon,
            ),
            ("full-later", answered(&json!({"full_at": on(14)})), Attention::FullSoon),
            (
                "suspended",
                answered(&json!({"advice": advice("warning"), "suspensions": suspended})),
                Attention::Suspended,
            ),
            ("look-soon", answered(&json!({"warnings": ["a URL is silent"]})), Attention::Warning),
            ("warning", answered(&json!({"advice": advice("warning")})), Attention::Warning),
            ("old", answered(&json!({"overview": {}})), Attention::Unknown),
            ("unasked", MemberState::Unasked, Attention::Unknown),
            ("fine-full-once", answered(&json!({"full_at": on(15)})), Attention::Nothing),
            ("fine-much-waste", answered(&json!({"waste_bytes": 9})), Attention::Nothing),
            (
                "fine-waste",
                answered(&json!({"waste_bytes": 1, "advice": advice("info")})),
                Attention::Nothing,
            ),
            ("fine", answered(&json!({})), Attention::Nothing),
        ];
        let members: Vec<Member> =
            rows.iter().rev().map(|(name, state, _)| member(name, state.clone())).collect();
        let sorted = Attention::sorted(&members, NOW);
        let found: Vec<_> = sorted.iter().map(|(why, it)| (it.name(), *why)).collect();
        let expected: Vec<_> = rows.iter().map(|(name, _, why)| (*name, *why)).collect();
        assert_eq!(found, expected);
    }
}
