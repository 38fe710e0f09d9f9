mod daemon;
mod findings;
mod values;

use super::*;

/// A node with the settings in this ini text.
fn node(version: &str, ini: &str) -> NodeConfig {
    NodeConfig::from_ini("n", version, [("local.ini", ini.as_bytes())])
}

fn finding_texts(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}
