//! Runs every property test, and every test that interrupts a process at a random moment, with a
//! random seed and with many more cases: not required before a change lands.

use std::{
    hash::{BuildHasher as _, RandomState},
    process::Command,
};

/// The number of cases of each property test; expensive ones take a share of them.
const CASES: &str = "2000";

/// Filters for the tests outside the library crates that take a seed.
const OUTSIDE_THE_LIBRARIES: [&str; 2] = ["killed_at_any_moment", "without_a_pause"];

/// Set `RECLINER_TEST_SEED` to repeat a run.
#[test]
#[ignore = "takes long: cargo test --release --test random -- --ignored --nocapture"]
fn all_property_tests_hold_with_random_seeds() {
    let set = std::env::var("RECLINER_TEST_SEED").ok();
    let seed = set.unwrap_or_else(|| RandomState::new().hash_one(()).to_string());
    let again = format!(
        "RECLINER_TEST_SEED={seed} PROPTEST_RNG_SEED={seed} PROPTEST_CASES={CASES} \
         cargo test --release"
    );
    println!("{again} NAME repeats one of these tests");
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--locked", "--release"]).args(arguments);
        cargo.env("RECLINER_TEST_SEED", &seed).env("PROPTEST_RNG_SEED", &seed);
        cargo.env("PROPTEST_CASES", CASES);
        cargo.status().expect("cargo runs").success()
    };
    let inside = cargo(&["--workspace", "--lib", "--no-fail-fast"]);
    let outside = [&["--test", "it", "--"][..], &OUTSIDE_THE_LIBRARIES].concat();
    assert!(cargo(&outside) && inside, "{again} NAME repeats what failed");
}
