//! recliner in Prometheus: rules, alerts and runbooks, checked against recliner's exports and with
//! Prometheus's own tools.

mod alerting;
pub(crate) mod cases;
pub(crate) mod catalogue;
mod dashboards;
pub(crate) mod demo;
pub(crate) mod promql;
pub(crate) mod rules;
mod runbooks;
pub(crate) mod servers;
mod storms;
pub(crate) mod tools;
