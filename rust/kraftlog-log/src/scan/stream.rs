//! Many partitions as one stream of Arrow batches, decoded by one thread or by several.
use super::options::{Pass, ScanOptions, ScanSource};
use super::parallel::ParallelScan;
use super::partition::PartitionScan;
use super::report::Report;
use crate::Result;
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::sync::Arc;

/// The records of sources one after the other, each by rising offset.
#[derive(Debug)]
pub struct Scan {
    report: Arc<Report>,
    rows: Rows,
}

#[derive(Debug)]
enum Rows {
    Serial { sources: VecDeque<ScanSource>, options: Arc<ScanOptions>, current: Option<Box<PartitionScan>> },
    Parallel(ParallelScan),
}

impl Scan {
    /// A scan; directories are looked at when their turn comes. With more than one thread, that many decode pieces of
    /// a few MiB ahead, and the Arrow batches that wait are bounded in number.
    pub fn new(sources: Vec<ScanSource>, options: Arc<ScanOptions>) -> Self {
        let report: Arc<Report> = Arc::default();
        let rows = if options.threads > 1 {
            Rows::Parallel(ParallelScan::new(sources, Pass { options, report: Arc::clone(&report) }))
        } else {
            Rows::Serial { sources: sources.into(), options, current: None }
        };
        Self { report, rows }
    }

    /// What was read so far.
    pub fn report(&self) -> &Arc<Report> {
        &self.report
    }

    /// The next Arrow batch, which has at least one row; after an error there is none.
    ///
    /// # Errors
    /// As [`PartitionScan::next_batch`] and [`PartitionScan::open`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match &mut self.rows {
            Rows::Parallel(scan) => scan.next_batch(),
            Rows::Serial { sources, options, current } => {
                let found = next_of(sources, options, current, &self.report);
                if found.is_err() {
                    sources.clear();
                    *current = None;
                }
                found
            }
        }
    }
}

fn next_of(
    sources: &mut VecDeque<ScanSource>,
    options: &Arc<ScanOptions>,
    current: &mut Option<Box<PartitionScan>>,
    report: &Arc<Report>,
) -> Result<Option<RecordBatch>> {
    loop {
        if let Some(scan) = current {
            if let Some(batch) = scan.next_batch()? {
                return Ok(Some(batch));
            }
            *current = None;
        }
        let Some(source) = sources.pop_front() else { return Ok(None) };
        let scan = PartitionScan::open(&source, Arc::clone(options), Arc::clone(report))?;
        *current = Some(Box::new(scan));
    }
}
