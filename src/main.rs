//! The `recliner` command.

fn main() {}
