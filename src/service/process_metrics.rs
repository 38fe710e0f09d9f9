//! The metrics of the process itself, named as every exporter names them.

#[cfg(any(test, not(target_os = "linux")))]
use prometheus::Gauge;
use prometheus::core::Collector;
use wall_clock::Moment;

/// Memory, CPU time, open files and the start of the process.
#[cfg(target_os = "linux")]
pub(super) fn collector(_now: Moment) -> prometheus::Result<Box<dyn Collector>> {
    Ok(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
}

/// Only the start time of the process, by which alerting rules recognise a restart: the library
/// reads everything else from Linux's `/proc`.
#[cfg(not(target_os = "linux"))]
pub(super) fn collector(now: Moment) -> prometheus::Result<Box<dyn Collector>> {
    Ok(Box::new(start_time(now)?))
}

/// The gauge of the process's start time, approximated by the start of the service.
#[cfg(any(test, not(target_os = "linux")))]
fn start_time(now: Moment) -> prometheus::Result<Gauge> {
    let help = "Start time of the process since unix epoch in seconds.";
    let gauge = Gauge::new("process_start_time_seconds", help)?;
    #[expect(clippy::cast_precision_loss, reason = "a gauge of Prometheus is a float")]
    gauge.set(now.unix() as f64);
    Ok(gauge)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metric that other systems export has the same name and help as on Linux.
    #[test]
    #[cfg(target_os = "linux")]
    fn start_time_metric_matches_linux() {
        let now = Moment::from_unix(1_795_222_440);
        let families = |collector: &dyn Collector| collector.collect();
        let own = families(&start_time(now).unwrap());
        let [own] = &own[..] else { panic!("expected one family: {own:?}") };
        let linux = families(&*collector(now).unwrap());
        let same = linux.iter().find(|family| family.name() == own.name()).unwrap();
        assert_eq!((own.help(), own.get_field_type()), (same.help(), same.get_field_type()));
        assert!((own.get_metric()[0].get_gauge().get_value() - 1_795_222_440.0).abs() < 0.5);
    }
}
