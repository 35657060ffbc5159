//! Random histories against a model that keeps all records in a list.
use super::*;
use crate::fs::MemoryFileSystem;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Step {
    /// Producer (none, idempotent, two transactional ones), codec, and per record a key (or none) and whether it has a value.
    Append(usize, usize, Vec<(usize, bool)>),
    /// End the transaction of one of the two.
    End(usize, bool),
    Roll,
    /// Keys the map takes, and how much time has passed.
    Clean(u64, i64),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0..=KEYS.len(), prop::bool::weighted(0.7));
    prop_oneof![
        6 => (0..4_usize, 0..5_usize, prop::collection::vec(record, 1..5))
            .prop_map(|(producer, codec, records)| Step::Append(producer, codec, records)),
        2 => (2..4_usize, any::<bool>()).prop_map(|(producer, commits)| Step::End(producer, commits)),
        1 => Just(Step::Roll),
        2 => (1..8_u64, 0..RETENTION_MS * 2).prop_map(|(keys, passed)| Step::Clean(keys, passed)),
        1 => Just(Step::Reopen),
    ]
}

struct Record {
    row: Row,
    batch: usize,
}

/// All that was appended and is expected to be there yet.
#[derive(Default)]
struct Model {
    records: Vec<Record>,
    /// By number of the batch: the time its tombstones may go, and the transaction it belongs to.
    horizons: HashMap<usize, i64>,
    transactions: HashMap<usize, usize>,
    aborted: Vec<bool>,
    batches: usize,
}

impl Model {
    fn is_aborted(&self, batch: usize) -> bool {
        self.transactions.get(&batch).is_some_and(|number| self.aborted[*number])
    }

    /// `[first_dirty, mapped_end)` went into the map; segments up to `copied_end` were copied.
    fn clean(&mut self, first_dirty: i64, mapped_end: i64, copied_end: i64, now_ms: i64) {
        let mut latest = HashMap::new();
        for Record { row: (offset, key, ..), batch } in &self.records {
            if let (Some(key), true) =
                (key, (first_dirty..mapped_end).contains(offset) && !self.is_aborted(*batch))
            {
                latest.insert(key.clone(), *offset);
            }
        }
        let keeps = |model: &Self, record: &Record| {
            let (offset, key, value, _) = &record.row;
            let is_due = model.horizons.get(&record.batch).is_some_and(|horizon| *horizon <= now_ms);
            let is_latest =
                key.as_ref().is_some_and(|key| latest.get(key).is_none_or(|latest| offset >= latest));
            *offset >= copied_end
                || !model.is_aborted(record.batch)
                    && (*offset >= mapped_end || is_latest && (value.is_some() || !is_due))
        };
        let records = std::mem::take(&mut self.records);
        self.records = records.into_iter().filter(|record| keeps(self, record)).collect();
        for Record { row: (offset, _, value, _), batch } in &self.records {
            if *offset < copied_end && value.is_none() {
                self.horizons.entry(*batch).or_insert(now_ms + RETENTION_MS);
            }
        }
    }
}

struct Run {
    fixture: Fixture,
    model: Model,
    /// By producer: next sequence, and the number of its open transaction.
    sequences: [i32; 4],
    open: [Option<usize>; 4],
    first_dirty: i64,
    now_ms: i64,
}

impl Run {
    fn append(&mut self, producer: usize, codec: usize, records: &[(usize, bool)]) {
        let count = records.len() as i32;
        let mut options = BatchOptions { codec: Codec::ALL[codec], ..BatchOptions::default() };
        if producer > 0 {
            options.producer_id = producer as i64;
            options.producer_epoch = 0;
            options.base_sequence = self.sequences[producer];
            options.is_transactional = producer > 1;
            self.sequences[producer] += count;
        }
        let pairs: Vec<Pair> = records
            .iter()
            .map(|(key, has_value)| (KEYS.get(*key).copied(), has_value.then_some("value")))
            .collect();
        let number = self.model.batches;
        self.model.batches += 1;
        if producer > 1 {
            let aborted = &mut self.model.aborted;
            let transaction = *self.open[producer].get_or_insert_with(|| {
                aborted.push(false);
                aborted.len() - 1
            });
            self.model.transactions.insert(number, transaction);
        }
        let offset = self.fixture.log.log_end_offset();
        self.fixture.append_bytes(&batch(options, self.now_ms, &pairs), 0).unwrap();
        for (index, (key, value)) in pairs.iter().enumerate() {
            let own = |text: &Option<&str>| text.map(|text| text.as_bytes().to_vec());
            let row = (offset + index as i64, own(key), own(value), self.now_ms + index as i64);
            self.model.records.push(Record { row, batch: number });
        }
    }

    fn end(&mut self, producer: usize, commits: bool) {
        let Some(transaction) = self.open[producer].take() else { return };
        let options = BatchOptions {
            producer_id: producer as i64,
            producer_epoch: 0,
            is_transactional: true,
            is_control: true,
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options).unwrap();
        let key = [0, 0, 0, u8::from(commits)];
        builder.append(self.now_ms, Some(&key), Some(&[0, 0, 0, 0, 0, 3]), &[]).unwrap();
        let bytes = builder.finish().unwrap();
        self.fixture.log.append_as_leader(&bytes, 1, 0, Origin::Coordinator).unwrap();
        self.model.aborted[transaction] = !commits;
    }

    fn clean(&mut self, keys: u64, passed_ms: i64) {
        self.now_ms += passed_ms;
        let log = &self.fixture.log;
        log.update_high_watermark(log.log_end_offset());
        let bases: Vec<i64> = log.segments().unwrap().iter().map(|segment| segment.base_offset).collect();
        let report = log
            .clean(&CleanOptions {
                first_dirty_offset: self.first_dirty,
                dedupe_buffer_bytes: 24 * keys,
                load_factor: 1.0,
                ..options(self.now_ms)
            })
            .unwrap();
        assert_eq!(report.outcome, CleanOutcome::Completed);
        let mapped_end = report.next_dirty_offset;
        assert!(mapped_end >= self.first_dirty);
        if report.map_bytes_read > 0 {
            let copied_end = bases.iter().copied().find(|base| *base >= mapped_end).unwrap();
            self.model.clean(self.first_dirty, mapped_end, copied_end, self.now_ms);
        }
        self.first_dirty = mapped_end;
    }

    fn check(&self, fs: &MemoryFileSystem) {
        let log = &self.fixture.log;
        let expected: Vec<&Row> = self.model.records.iter().map(|record| &record.row).collect();
        let found = rows(log);
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        // What is left of aborted transactions that ended is in the index for read_committed.
        let aborted = log.aborted_transactions(0, log.log_end_offset()).unwrap();
        for record in &self.model.records {
            let number = self.model.transactions.get(&record.batch);
            let is_aborted = number.is_some_and(|number| self.model.aborted[*number]);
            let is_listed =
                aborted.iter().any(|txn| (txn.first_offset..txn.last_offset).contains(&record.row.0));
            assert!(!is_aborted || is_listed, "aborted record {:?} is not in {aborted:?}", record.row);
        }
        // Producers can go on also when all is known from the log alone.
        for name in fs.list(Path::new(PATH)).unwrap() {
            if name.ends_with(".snapshot") {
                fs.remove(&Path::new(PATH).join(name)).unwrap();
            }
        }
        let before = producers(log);
        let again = open(fs, compact(config()), unclean(0)).unwrap();
        assert_eq!(again.log_end_offset(), log.log_end_offset());
        assert_eq!(producers(&again), before);
        assert_eq!(rows(&again), found);
    }
}

fn producers(log: &Log) -> BTreeMap<i64, (i16, i32, Option<i64>)> {
    let state = |entry: &crate::producer_state::ProducerEntry| {
        (entry.producer_epoch, entry.last_sequence(), entry.current_txn_first_offset)
    };
    log.active_producers().iter().map(|entry| (entry.producer_id, state(entry))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_equal_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let mut run = Run {
            fixture: Fixture::new(config()),
            model: Model::default(),
            sequences: [0; 4],
            open: [None; 4],
            first_dirty: 0,
            now_ms: 1000,
        };
        for step in steps {
            match step {
                Step::Append(producer, codec, records) => run.append(producer, codec, &records),
                Step::End(producer, commits) => run.end(producer, commits),
                Step::Roll => {
                    run.fixture.log.roll(0).unwrap_or_default();
                }
                Step::Clean(keys, passed_ms) => run.clean(keys, passed_ms),
                Step::Reopen => {
                    run.fixture.log.close().unwrap();
                    run.fixture.log = open(&run.fixture.fs, config(), super::super::super::testing::clean()).unwrap();
                }
            }
        }
        let all = run.model.records.len();
        run.clean(1000, 0);
        prop_assert!(run.model.records.len() <= all);
        run.fixture.log.flush().unwrap();
        let fs = run.fixture.fs.clone();
        run.check(&fs);
    }
}
