//! What a path is: a log directory, a partition directory or a file.
use super::listing::list;
use super::partition::Partition;
use super::{Finding, Severity, VerifyReport};
use crate::scan::partition_of;
use crate::{lock, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Files of a log directory itself.
const LOG_DIRECTORY_FILES: [&str; 8] = [
    "meta.properties",
    "bootstrap.checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".lock",
    ".kafka_cleanshutdown",
];

/// Adds what is to be checked under `path`.
pub(super) fn collect(path: &Path, report: &mut VerifyReport, partitions: &mut Vec<Partition>) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
    if metadata.is_file() {
        if !is_log_file(path) {
            let what = "not named as a .log or .checkpoint file, or one that waits to be deleted";
            return Err(Error::Invalid(format!("{}: {what}", path.display())));
        }
        let holds = path.parent().is_some_and(|parent| lock::is_held(parent) || is_held_above(parent));
        report.is_live |= holds;
        partitions.push(Partition::of_file(path, metadata.len()));
        return Ok(());
    }
    let names = list(path)?;
    if is_partition(path, &names) {
        report.is_live |= is_held_above(path);
        partitions.push(Partition::of_directory(path, report)?);
        return Ok(());
    }
    log_directory(path, &names, report, partitions)
}

/// `00000000000000000000.log`, `.log.deleted`, `.checkpoint` and the like.
fn is_log_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').skip(1).any(|part| ["log", "checkpoint"].contains(&part))
}

fn is_held_above(path: &Path) -> bool {
    let absolute = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    absolute.parent().is_some_and(lock::is_held)
}

fn is_partition(path: &Path, names: &[String]) -> bool {
    if names.iter().any(|name| name == "meta.properties") {
        return false;
    }
    let is_named = path.file_name().and_then(|name| name.to_str()).and_then(partition_of).is_some();
    has_log_files(names) || (is_named && names.is_empty())
}

pub(crate) fn has_log_files(names: &[String]) -> bool {
    names.iter().any(|name| {
        [".log", ".index", ".timeindex"].iter().any(|suffix| {
            name.strip_suffix(suffix)
                .is_some_and(|stem| stem.len() == 20 && stem.bytes().all(|b| b.is_ascii_digit()))
        }) || ["partition.metadata", "leader-epoch-checkpoint"].contains(&name.as_str())
    })
}

fn log_directory(
    path: &Path,
    names: &[String],
    report: &mut VerifyReport,
    partitions: &mut Vec<Partition>,
) -> Result<()> {
    if lock::is_held(path) {
        report.is_live = true;
        let finding = Finding::new(Severity::Note, "live", path, "a running node holds this directory");
        report.findings.push(finding.effect("the ends of active segments are still being written"));
    }
    let is_known = |name: &String| LOG_DIRECTORY_FILES.contains(&name.as_str());
    let is_log_directory = names.iter().any(is_known);
    let mut found = usize::from(is_log_directory);
    for name in names {
        let child = path.join(name);
        let is_directory = fs::metadata(&child).is_ok_and(|metadata| metadata.is_dir());
        if is_directory && partition_of(name).is_some() {
            // Other programs name directories so too, such as /etc/dbus-1.
            if !is_log_directory && list(&child).is_ok_and(|names| !has_log_files(&names)) {
                let what = "named as a partition's directory, without files of a log";
                report.findings.push(Finding::new(Severity::Note, "unknown-file", &child, what));
                continue;
            }
            found += 1;
            match Partition::of_directory(&child, report) {
                Ok(partition) => partitions.push(partition),
                Err(error) => {
                    let finding = Finding::new(Severity::Error, "unreadable", &child, error.to_string());
                    report.findings.push(finding);
                }
            }
        } else if is_directory {
            leftover_directory(&child, name, report);
        } else if name == "bootstrap.checkpoint" {
            let size = fs::metadata(&child).map_or(0, |metadata| metadata.len());
            partitions.push(Partition::of_file(&child, size));
        }
    }
    if found == 0 {
        return Err(Error::Invalid(format!(
            "{}: neither a log directory nor a partition directory: {}",
            path.display(),
            entries_text(names)
        )));
    }
    check_meta_properties(&path.join("meta.properties"), report);
    Ok(())
}

/// What is in a directory, for an error.
fn entries_text(names: &[String]) -> String {
    const SHOWN_MAX: usize = 3;
    let shown = names.get(..SHOWN_MAX).unwrap_or(names).join(", ");
    match names.len() {
        0 => "it is empty".to_owned(),
        count if count > SHOWN_MAX => format!("it has {count} entries, such as {shown}"),
        _ => format!("it has {shown}"),
    }
}

fn leftover_directory(path: &Path, name: &str, report: &mut VerifyReport) {
    for (suffix, what) in [
        ("-delete", "a deleted partition that waits to be removed"),
        ("-future", "a partition that is being moved to this directory"),
        ("-stray", "a partition that the metadata does not know"),
    ] {
        if name.ends_with(suffix) {
            report.findings.push(Finding::new(Severity::Note, "leftover", path, what));
        }
    }
}

fn check_meta_properties(path: &PathBuf, report: &mut VerifyReport) {
    let effect = "a node does not start with this directory";
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let what = "no meta.properties".to_owned();
            report
                .findings
                .push(Finding::new(Severity::Warning, "meta-properties", path, what).effect(effect));
            return;
        }
        Err(error) => {
            report.findings.push(Finding::new(Severity::Error, "unreadable", path, error.to_string()));
            return;
        }
    };
    let value = |key: &str| {
        text.lines()
            .filter(|line| !line.trim_start().starts_with(['#', '!']))
            .filter_map(|line| line.split_once(['=', ':']))
            .find(|(name, _)| name.trim() == key)
            .map(|(_, value)| value.trim().to_owned())
    };
    let mut wrong = Vec::new();
    match value("version").as_deref() {
        Some("0" | "1") => {}
        Some(other) => wrong.push(format!("version {other} is unknown")),
        None => wrong.push("no version".to_owned()),
    }
    if value("cluster.id").is_none_or(|id| id.is_empty()) {
        wrong.push("no cluster.id".to_owned());
    }
    let node = value("node.id").or_else(|| value("broker.id"));
    if node.as_deref().is_none_or(|id| id.parse::<i32>().is_err()) {
        wrong.push("no node.id that is a number".to_owned());
    }
    for what in wrong {
        report.findings.push(Finding::new(Severity::Error, "meta-properties", path, what).effect(effect));
    }
}
