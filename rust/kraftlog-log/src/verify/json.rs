//! A report as JSON.
use super::{Finding, PartitionSummary, Step, VerifyReport};
use crate::json::Object;

pub(super) fn report(report: &VerifyReport) -> String {
    let mut object = Object::new();
    object.text("status", if report.is_sound() { "sound" } else { "problems" });
    object.flag("live", report.is_live);
    object.flag("cancelled", report.is_cancelled);
    object.list("partitions", report.partitions.iter().map(partition));
    object.list("findings", report.findings.iter().map(finding));
    object.list("plan", report.plan.iter().map(step));
    object.end()
}

fn partition(summary: &PartitionSummary) -> String {
    let mut object = Object::new();
    object.text("path", &summary.path.to_string_lossy());
    object.number("segments", summary.segments);
    object.number("bytes", summary.bytes);
    object.number("batches", summary.batches);
    object.number("records", summary.records);
    object.number("firstOffset", summary.first_offset);
    object.number("nextOffset", summary.next_offset);
    object.end()
}

fn finding(finding: &Finding) -> String {
    let mut object = Object::new();
    object.text("severity", finding.severity.name());
    object.text("kind", finding.kind);
    object.text("file", &finding.path.to_string_lossy());
    object.optional("position", finding.position);
    object.optional("offset", finding.offset);
    object.optional("lastOffset", finding.last_offset);
    object.text("what", &finding.what);
    object.text("effect", &finding.effect);
    object.end()
}

fn step(step: &Step) -> String {
    let mut object = Object::new();
    object.text("action", step.action.name());
    object.text("path", &step.path.to_string_lossy());
    object.optional("position", step.position);
    object.optional("losesFrom", step.loses.map(|(first, _)| first));
    object.optional("losesTo", step.loses.and_then(|(_, last)| last));
    object.optional("choice", step.choice);
    object.text("why", &step.why);
    object.end()
}
