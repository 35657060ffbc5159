//! What is kept of damaged logs, and what is said of the rest.
use super::*;
use crate::builder::{BatchBuilder, BatchOptions};
use crate::log::{Log, LogConfig, OpenOptions};
use crate::verify::tests::{files, written};
use crate::verify::{verify, VerifyOptions};
use std::fs;

fn salvaged(source: &Path, output: &Path, options: SalvageOptions) -> SalvageReport {
    let report = salvage(source, output, options, &VerifyProgress::default()).unwrap();
    let check =
        verify(&[output.join("topic-0")], VerifyOptions::default(), &VerifyProgress::default()).unwrap();
    assert!(check.is_sound(), "{:?}", check.findings);
    report
}

fn damage(path: &Path, change: impl Fn(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_sound_log_is_copied_byte_for_byte() {
    let scratch = written("salvage-sound", 30);
    let (source, output) = (scratch.0.join("topic-0"), scratch.0.join("new"));
    let report = salvaged(&source, &output, SalvageOptions::default());
    assert!(report.is_complete());
    assert_eq!(report.partitions[0].batches, 30);
    for file in files(&source, ".log") {
        assert_eq!(
            fs::read(&file).unwrap(),
            fs::read(output.join("topic-0").join(file.file_name().unwrap())).unwrap()
        );
    }
    let epochs = "leader-epoch-checkpoint";
    assert_eq!(
        fs::read(source.join(epochs)).unwrap(),
        fs::read(output.join("topic-0").join(epochs)).unwrap()
    );
}

#[test]
fn batches_behind_every_kind_of_damage_are_kept() {
    for (name, change) in [
        ("bit", (|bytes: &mut Vec<u8>| bytes[100] ^= 1) as fn(&mut Vec<u8>)),
        ("length", |bytes| bytes[8..12].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff])),
        ("negative length", |bytes| bytes[8] = 0x80),
        ("short length", |bytes| bytes[8..12].copy_from_slice(&[0, 0, 0, 70])),
        ("zeros", |bytes| bytes[..61].fill(0)),
        ("a hole", |bytes| drop(bytes.drain(20..40))),
        ("garbage", |bytes| drop(bytes.splice(0..0, [0xa5; 77]))),
    ] {
        let scratch = written(&format!("salvage-{}", name.replace(' ', "-")), 30);
        let (source, output) = (scratch.0.join("topic-0"), scratch.0.join("new"));
        damage(&files(&source, ".log")[1], change);
        let report = salvaged(&source, &output, SalvageOptions::default());
        let partition = &report.partitions[0];
        let kept = if name == "garbage" { 30 } else { 29 };
        assert_eq!((partition.batches, partition.next_offset), (kept, 300), "{name}: {partition:?}");
        let [loss] = partition.losses.as_slice() else { panic!("{name}: {:?}", partition.losses) };
        match (loss.first_offset, loss.last_offset) {
            (Some(first), Some(last)) => assert_eq!(last - first, 9, "{name}"),
            other => assert!(name == "garbage" && other == (None, None), "{name}: {other:?}"),
        }
    }
}

#[test]
fn a_torn_end_is_told() {
    let scratch = written("salvage-torn", 30);
    let (source, output) = (scratch.0.join("topic-0"), scratch.0.join("new"));
    damage(files(&source, ".log").last().unwrap(), |bytes| bytes.truncate(bytes.len() - 1));
    let report = salvaged(&source, &output, SalvageOptions::default());
    let partition = &report.partitions[0];
    assert_eq!((partition.batches, partition.next_offset), (29, 290));
    assert_eq!((partition.losses[0].first_offset, partition.losses[0].last_offset), (Some(290), None));
}

#[test]
fn a_hole_between_segments_is_put_inside_one() {
    let scratch = written("salvage-hole", 30);
    let (source, output) = (scratch.0.join("topic-0"), scratch.0.join("new"));
    damage(&files(&source, ".log")[0], |bytes| bytes.fill(0xff));
    damage(&files(&source, ".log")[2], |bytes| bytes.truncate(bytes.len() / 2));
    let report = salvaged(&source, &output, SalvageOptions::default());
    let partition = &report.partitions[0];
    assert_eq!((partition.losses.len(), partition.next_offset), (2, 300));
    assert_eq!(partition.losses[0].first_offset, Some(0));
    assert!(partition.losses.iter().all(|loss| loss.last_offset.is_some()));
}

#[test]
fn records_before_the_damage_are_kept_when_asked() {
    let scratch = written("salvage-partial", 30);
    let (source, output) = (scratch.0.join("topic-0"), scratch.0.join("new"));
    // The length of the sixth record of the first batch.
    damage(&files(&source, ".log")[0], |bytes| {
        let first = 61 + 5 * (usize::from(bytes[61]) / 2 + 1);
        bytes[first] = 0x81;
    });
    let options = SalvageOptions { partial_batches: true, ..SalvageOptions::default() };
    let report = salvaged(&source, &output, options);
    let loss = &report.partitions[0].losses[0];
    assert_eq!((loss.kept_records, loss.first_offset, loss.last_offset), (5, Some(5), Some(9)));
}

#[test]
fn outputs_that_could_harm_are_refused() {
    let scratch = written("salvage-refused", 3);
    let source = scratch.0.join("topic-0");
    let refused = |output: &Path| {
        salvage(&source, output, SalvageOptions::default(), &VerifyProgress::default())
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&source.join("inside")).contains("inside the source"));
    assert!(refused(&source).contains("inside the source"));
    assert!(refused(&scratch.0).contains("not empty"));
    assert!(!source.join("inside").exists());
}

/// Opens what salvage wrote, after a clean stop and after none.
fn open(output: &Path) {
    for clean_shutdown in [true, false] {
        let options = OpenOptions { recovery_point: 0, log_start_offset: 0, clean_shutdown, now_ms: 0 };
        let path = output.join("topic-0");
        let end = Log::open(Arc::new(RealFileSystem), &path, LogConfig::default(), options).unwrap();
        assert_eq!(end.log_end_offset(), 300, "clean shutdown: {clean_shutdown}");
        end.close().unwrap();
    }
}

#[test]
fn a_missing_segment_leaves_no_gap_between_files() {
    let scratch = written("salvage-gap", 30);
    let (source, output) = (scratch.0.join("topic-0"), scratch.0.join("new"));
    fs::remove_file(&files(&source, ".log")[1]).unwrap();
    let report = salvaged(&source, &output, SalvageOptions::default());
    let partition = &report.partitions[0];
    assert_eq!(partition.next_offset, 300);
    assert!(
        partition.remarks.iter().any(|remark| remark.contains("no file holds the offsets")),
        "{partition:?}"
    );
    open(&output);
}

#[test]
fn a_marker_that_no_node_reads_is_a_loss() {
    let scratch = written("salvage-marker", 30);
    let (source, output) = (scratch.0.join("topic-0"), scratch.0.join("new"));
    let marker = |base_offset: i64, key: &[u8], value: &[u8]| {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset,
            partition_leader_epoch: 3,
            producer_id: 9,
            producer_epoch: 0,
            is_transactional: true,
            is_control: true,
            ..BatchOptions::default()
        })
        .unwrap();
        builder.append(1000, Some(key), Some(value), &[]).unwrap();
        builder.finish().unwrap()
    };
    for (name, key, value) in [
        ("a short key", [0, 0].as_slice(), [0; 6].as_slice()),
        ("a negative version", &[0xff, 0xff, 0, 0], &[0; 6]),
        ("another type", &[0, 0, 0, 9], &[0; 6]),
        ("a short value", &[0, 0, 0, 1], &[0; 2]),
    ] {
        let last = files(&source, ".log").pop().unwrap();
        let sound = fs::read(&last).unwrap();
        damage(&last, |bytes| bytes.extend(marker(300, key, value)));
        let report = salvaged(&source, &output, SalvageOptions::default());
        let partition = &report.partitions[0];
        assert_eq!((partition.batches, partition.losses.len()), (30, 1), "{name}: {partition:?}");
        assert!(partition.losses[0].reason.contains("marker"), "{name}: {:?}", partition.losses);
        open(&output);
        fs::remove_dir_all(&output).unwrap();
        fs::write(&last, sound).unwrap();
    }
}

#[test]
fn a_base_offset_with_a_wrong_bit_costs_one_batch() {
    for bit in [0usize, 1, 20, 31, 40, 58, 63] {
        let scratch = written(&format!("salvage-base-{bit}"), 30);
        let (source, output) = (scratch.0.join("topic-0"), scratch.0.join("new"));
        damage(&files(&source, ".log")[1], |bytes| bytes[bit / 8] ^= 0x80 >> (bit % 8));
        let report = salvaged(&source, &output, SalvageOptions::default());
        let partition = &report.partitions[0];
        assert_eq!((partition.batches, partition.losses.len()), (29, 1), "bit {bit}: {partition:?}");
        assert_eq!(partition.losses[0].position, 0);
        open(&output);
    }
}

#[test]
fn a_leader_epoch_that_its_neighbours_contradict_is_corrected() {
    let sound = written("salvage-epoch-sound", 30);
    let expected = fs::read(&files(&sound.0.join("topic-0"), ".log")[1]).unwrap();
    for (name, value) in [("high", [0x40, 0, 0, 0]), ("negative", [0x80, 0, 0, 0])] {
        let scratch = written(&format!("salvage-epoch-{name}"), 30);
        let (source, output) = (scratch.0.join("topic-0"), scratch.0.join("new"));
        damage(&files(&source, ".log")[1], |bytes| bytes[12..16].copy_from_slice(&value));
        let report = salvaged(&source, &output, SalvageOptions::default());
        let partition = &report.partitions[0];
        assert_eq!(
            (partition.batches, partition.losses.len(), partition.remarks.len()),
            (30, 0, 1),
            "{name}"
        );
        let remark = &partition.remarks[0];
        assert!(remark.contains(&i32::from_be_bytes(value).to_string()), "{name}: {remark}");
        let copy = output.join("topic-0");
        assert!(fs::read(&files(&copy, ".log")[1]).unwrap() == expected, "{name}");
        let epochs = "leader-epoch-checkpoint";
        assert_eq!(fs::read(source.join(epochs)).unwrap(), fs::read(copy.join(epochs)).unwrap(), "{name}");
    }
}
