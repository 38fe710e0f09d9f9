//! The process itself: its build, mode, configuration and certificates.

use super::Scrape;
use crate::{model::channel::Mode, text::Label};
use couchdb_client::CertificateEnds;
use metrics_text::{Writer, families};

families! {
    BUILD_INFO: Gauge None "recliner_build_info" ["version", "revision", "date"]
        "Always 1, labelled with the version, source revision and date of that revision of this recliner.";
    MODE: Gauge None "recliner_mode" ["mode"]
        "1 for the mode in force, 0 for the other: advise only reports, enforce starts compactions.";
    CHANNEL_MODE: Gauge None "recliner_channel_mode" ["channel", "mode"]
        "1 for the mode in force for the channel, 0 for the other.";
    CONFIG_LAST_RELOAD_SUCCESSFUL: Gauge None "recliner_config_last_reload_successful" []
        "1 if the last attempt to load the configuration succeeded, 0 if it failed.";
    CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP: Gauge Seconds
        "recliner_config_last_reload_success_timestamp_seconds" []
        "Unix time of the last successful load of the configuration, in seconds.";
    CONFIG_SETTINGS_PENDING_RESTART: Gauge None "recliner_config_settings_pending_restart" []
        "Number of settings that were changed by a reload and take effect only after a restart.";
    CERTIFICATE_EXPIRY_TIMESTAMP: Gauge Seconds
        "recliner_certificate_expiry_timestamp_seconds" ["use"]
        "Unix time at which the certificate expires, in seconds; absent where none is used.";
    OTLP_LAST_SUCCESS: Gauge Seconds "recliner_otlp_last_success_timestamp_seconds" []
        "Unix time at which all metrics were last pushed over OTLP, in seconds.";
    OTLP_FAILURES: Counter None "recliner_otlp_failures_total" []
        "Pushes over OTLP that the receiver did not take completely.";
}

pub(super) fn write(writer: &mut Writer, scrape: &Scrape) {
    let Scrape { plan, config, about, .. } = scrape;
    writer.family(&BUILD_INFO).sample(&[about.version, about.revision, about.date], 1_u64);
    writer.write(&MODE, Mode::each().map(|mode| ([mode.label()], mode == config.mode)));
    let mut samples = writer.family(&CHANNEL_MODE);
    for channel in &plan.channels.list {
        let in_force = channel.mode.more_cautious(config.mode);
        for mode in Mode::each() {
            samples.sample(&[&channel.name, mode.label()], mode == in_force);
        }
    }
    writer.family(&CONFIG_LAST_RELOAD_SUCCESSFUL).sample(&[], config.reload_successful);
    writer.family(&CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP).sample(&[], config.loaded_at);
    let pending = config.needs_restart.len() as u64;
    writer.family(&CONFIG_SETTINGS_PENDING_RESTART).sample(&[], pending);
    certificates(writer, scrape.web_certificates, scrape.couchdb_certificates);
}

fn certificates(writer: &mut Writer, web: CertificateEnds, couchdb: CertificateEnds) {
    let ends = [
        (["web"], web.own),
        (["web_clients"], web.authorities),
        (["couchdb"], couchdb.own),
        (["couchdb_ca"], couchdb.authorities),
    ];
    writer.write_each(&ends, &[(&CERTIFICATE_EXPIRY_TIMESTAMP, |end| end)]);
}
