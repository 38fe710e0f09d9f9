//! Max-min fair shares: no member gets more than it wants, and none gets more at the expense of
//! another who has less and wants more. Pure.

/// The minimum that one member must have, and the maximum that it could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Claim {
    fn at(self, level: u64) -> u64 {
        level.clamp(self.least, self.most.max(self.least))
    }
}

/// Divides a total. Indivisible single units go to members in order, beginning at `turn`. The result exceeds the
/// total only if the minimums do.
pub(super) fn divide(total: u64, claims: &[Claim], turn: u64) -> Vec<u64> {
    let sum = |level: u64| claims.iter().map(|claim| u128::from(claim.at(level))).sum::<u128>();
    // The highest level at which all parts together still fit.
    let (mut fits, mut above) = (0, total.saturating_add(1));
    while above - fits > 1 {
        let level = fits + (above - fits) / 2;
        if sum(level) <= u128::from(total) { fits = level } else { above = level }
    }
    let mut left = u128::from(total).saturating_sub(sum(fits));
    let mut parts: Vec<u64> = claims.iter().map(|claim| claim.at(fits)).collect();
    let count = claims.len().max(1);
    let first = usize::try_from(turn % (count as u64)).unwrap_or(0);
    for at in (0..claims.len()).map(|at| (first + at) % count) {
        let (Some(claim), Some(part)) = (claims.get(at), parts.get_mut(at)) else { continue };
        let more = claim.at(fits.saturating_add(1)) - *part;
        if u128::from(more) <= left {
            *part += more;
            left -= u128::from(more);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claims(of: &[(u64, u64)]) -> Vec<Claim> {
        of.iter().map(|&(least, most)| Claim { least, most }).collect()
    }

    #[test]
    fn claims_are_granted_in_full_or_in_equal_parts() {
        for (total, wanted, turn, parts) in [
            (10, vec![(0, 20), (0, 20)], 0, vec![5, 5]),
            (10, vec![(0, 2), (0, 20)], 0, vec![2, 8]),
            (10, vec![(0, 2), (0, 3)], 0, vec![2, 3]),
            (10, vec![(6, 20), (0, 20)], 0, vec![6, 4]),
            (10, vec![(6, 0), (0, 20)], 0, vec![6, 4]),
            (2, vec![(0, 9), (0, 9), (0, 9)], 0, vec![1, 1, 0]),
            (2, vec![(0, 9), (0, 9), (0, 9)], 1, vec![0, 1, 1]),
            (2, vec![(0, 9), (0, 9), (0, 9)], 2, vec![1, 0, 1]),
            (2, vec![(0, 9), (0, 0), (0, 9)], 1, vec![1, 0, 1]),
            (0, vec![(0, 9)], 0, vec![0]),
            (1, vec![(3, 9), (0, 9)], 0, vec![3, 0]),
            (u64::MAX, vec![(0, u64::MAX), (0, u64::MAX)], 0, vec![u64::MAX / 2 + 1, u64::MAX / 2]),
            (5, vec![], 3, vec![]),
        ] {
            assert_eq!(divide(total, &claims(&wanted), turn), parts, "{total} {wanted:?} {turn}");
        }
    }

    proptest! {
        #[test]
        fn all_free_units_are_granted_and_no_smaller_share_is_cut(
            total in 0..40_u64,
            wanted in proptest::collection::vec((0..8_u64, 0..20_u64), 1..6),
            turn in 0..9_u64,
        ) {
            let claims = claims(&wanted);
            let parts = divide(total, &claims, turn);
            let least: u64 = claims.iter().map(|it| it.least).sum();
            let most: u64 = claims.iter().map(|it| it.most.max(it.least)).sum();
            prop_assert_eq!(parts.iter().sum::<u64>(), total.clamp(least, most));
            for (claim, part) in claims.iter().zip(&parts) {
                prop_assert!((claim.least..=claim.most.max(claim.least)).contains(part));
                // A member that could use more has at most one less than others, unless the others have
                // only their minimum.
                let others = claims.iter().zip(&parts);
                let richer = others.filter(|(other, has)| **has > *part + 1 && **has > other.least).count();
                prop_assert!(*part >= claim.most || richer == 0, "{:?}", parts);
            }
        }
    }
}
