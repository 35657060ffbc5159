//! The text of a checkpoint file, and the log start offsets that one of them holds.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// More lines than any directory has partitions.
const CHECKPOINT_BYTES_MAX: u64 = 256 << 20;

/// The log start offsets that DeleteRecords left, by directory: read once for all partitions of a log directory.
#[derive(Debug, Default)]
pub(super) struct LogStarts(BTreeMap<PathBuf, Option<BTreeMap<String, i64>>>);

impl LogStarts {
    /// What `log-start-offset-checkpoint` says of a partition's directory: 0 if it does not name the partition, None
    /// without a readable file. Kafka names only partitions whose log begins inside their first segment.
    pub(super) fn of(&mut self, partition: &Path) -> Option<i64> {
        let absolute = std::fs::canonicalize(partition).unwrap_or_else(|_| partition.to_owned());
        let (parent, name) = (absolute.parent()?, absolute.file_name()?.to_string_lossy());
        let read = |path: &Path| Some(parse(&read_text(path)?).ok()?.into_iter().collect());
        let starts = self
            .0
            .entry(parent.to_owned())
            .or_insert_with(|| read(&parent.join("log-start-offset-checkpoint")));
        starts.as_ref().map(|starts| starts.get(name.as_ref()).copied().unwrap_or(0))
    }
}

/// The text of a file of a sensible size.
pub(super) fn read_text(path: &Path) -> Option<String> {
    let size = std::fs::metadata(path).ok()?.len();
    if size > CHECKPOINT_BYTES_MAX {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

/// Lines `topic partition offset` behind a version and a count.
pub(super) fn parse(text: &str) -> Result<Vec<(String, i64)>, String> {
    if text.is_empty() {
        // A node that was killed before its first write leaves the file so.
        return Ok(Vec::new());
    }
    let mut lines = text.lines();
    match lines.next().map(str::trim) {
        Some("0") => {}
        version => return Err(format!("version {:?} is unknown", version.unwrap_or_default())),
    }
    let count: usize = lines
        .next()
        .and_then(|line| line.trim().parse().ok())
        .ok_or_else(|| "the second line is not a count".to_owned())?;
    let mut entries = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let entry = match fields.as_slice() {
            [topic, partition, offset] => partition
                .parse::<i32>()
                .ok()
                .and_then(|partition| Some((format!("{topic}-{partition}"), offset.parse::<i64>().ok()?))),
            _ => None,
        };
        entries.push(entry.ok_or_else(|| format!("line {line:?} is not topic, partition and offset"))?);
    }
    if entries.len() != count {
        return Err(format!("{count} entries announced, {} there", entries.len()));
    }
    Ok(entries)
}
