//! Numbers that look random, and are the same in every run.

/// The number of a step of a seed, from the generator `SplitMix64`.
#[must_use]
pub const fn random_bits(seed: u64, step: u64) -> u64 {
    let state = seed.wrapping_add(step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // From the reference implementation (Vigna 2015), for the seed 1234567.
        let numbers: Vec<u64> = (0..3).map(|step| random_bits(1_234_567, step)).collect();
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, expected);
    }
}
