//! `recliner report`: what happened since a time and what needs attention, as a report to send.

use super::{
    CommandError, Exit,
    args::{ReportArgs, ReportFormat},
    output::{print, print_json, print_own},
};
use crate::{
    serve::{self, report::Report},
    text::document::markdown,
};

pub(super) async fn run(args: ReportArgs) -> Result<Exit, CommandError> {
    let ReportArgs { since, service, format } = args;
    let report: Report = service.client()?.get("/api/v1/report", &[("since", &since)]).await?;
    match format {
        ReportFormat::Html => print_own(serve::report_document(&report).as_bytes())?,
        ReportFormat::Md => print(&markdown(&report.title(), &report.blocks()))?,
        ReportFormat::Json => print_json(&report)?,
    }
    Ok(Exit::Done)
}
