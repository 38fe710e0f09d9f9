//! What Prometheus makes of recliner: rules, alerts and runbooks, held against what recliner
//! exports and against Prometheus's own tools.

mod alerting;
mod cases;
pub(crate) mod catalogue;
mod dashboards;
pub(crate) mod demo;
pub(crate) mod promql;
pub(crate) mod rules;
mod runbooks;
pub(crate) mod servers;
mod storms;
pub(crate) mod tools;
