use super::*;
use crate::batch::Batches;
use crate::log::testing::*;
use crate::segment::AppendedBatch;

/// Rewrite the segments `old` as new ones with these base offsets, keeping every second record's batch.
fn rewrite(log: &Log, old: &[Arc<Segment>], new_bases: &[i64]) -> Result<bool> {
    let mut new: Vec<Segment> = Vec::new();
    for segment in old {
        let mut scan = segment.scan(0)?;
        while let Some(found) = scan.next_batch()? {
            let base_offset = found.header().base_offset();
            if new_bases.contains(&base_offset) {
                new.push(log.create_cleaned(base_offset, 0)?);
            }
            if base_offset % 2 == 0 {
                let bytes = segment.read_batch(&found)?;
                let last = new.last().unwrap();
                last.append(&[&bytes], &[AppendedBatch::of(&found.header())])?;
            }
        }
    }
    log.replace_segments(new, old, 0)
}

fn filled() -> Fixture {
    let fixture = Fixture::new(small());
    for _ in 0..40 {
        fixture.append(1).unwrap();
    }
    fixture.log.flush().unwrap();
    fixture
}

#[test]
fn readers_of_the_old_keep_reading_and_the_files_go_later() {
    let fixture = filled();
    let old: Vec<_> = fixture.log.segment_handles().unwrap().into_iter().take(3).collect();
    let slice = fixture.log.read(old[1].base_offset(), 300, 40, true).unwrap();
    assert!(rewrite(&fixture.log, &old, &[0]).unwrap());
    let end = bases(&fixture.log)[1];
    assert_eq!(slice.read().unwrap().len() as u64, slice.size_bytes());
    // Not opened before the replacement: the old segment still finds its own file, not the one that took its name.
    let reread = old[0].read_batch(&old[0].find_batch(1).unwrap().unwrap()).unwrap();
    assert_eq!(Batches::new(&reread).next().unwrap().unwrap().base_offset(), 1);
    let expected: Vec<i64> = (0..40).filter(|offset| *offset >= end || offset % 2 == 0).collect();
    assert_eq!(offsets(&fixture.log), expected);
    assert!(names(&fixture.fs).iter().any(|name| name.ends_with(".snapshot.deleted")));
    assert!(fixture.log.remove_deleted(i64::MAX).unwrap() > 6);
    assert!(!names(&fixture.fs).iter().any(|name| name.contains("deleted") || name.contains("swap")));
    fixture.log.close().unwrap();
    assert_eq!(offsets(&open(&fixture.fs, small(), unclean(0)).unwrap()), expected);
    // They were replaced already.
    let log = open(&fixture.fs, small(), clean()).unwrap();
    assert!(!rewrite(&log, &old, &[0]).unwrap());
    assert_eq!(offsets(&log), expected);
    assert!(!names(&fixture.fs).iter().any(|name| name.contains("cleaned")));
}

#[test]
fn a_crash_at_every_point_leaves_the_old_or_the_new() {
    for new_bases in [&[0_i64][..], &[0, 6, 20]] {
        for keeps_names in [false, true] {
            let (mut olds, mut news) = (0, 0);
            for crash_at in 0.. {
                let fixture = filled();
                let before = offsets(&fixture.log);
                let old: Vec<_> = fixture.log.segment_handles().unwrap().into_iter().take(4).collect();
                let end = bases(&fixture.log)[4];
                let after: Vec<i64> =
                    before.iter().copied().filter(|offset| *offset >= end || offset % 2 == 0).collect();
                fixture.fs.crash_after(fixture.fs.change_count() + crash_at);
                let is_over = rewrite(&fixture.log, &old, new_bases).is_ok();
                let fs = fixture.fs.crash(0, keeps_names);
                // And once more while the left-overs are cleaned up.
                for second in (0..40).step_by(3) {
                    let again = fs.crash(0, true);
                    again.crash_after(again.change_count() + second);
                    drop(open(&again, small(), unclean(40)));
                    let log = open(&again.crash(0, keeps_names), small(), unclean(40)).unwrap();
                    let found = offsets(&log);
                    let context = format!("{new_bases:?} crash at {crash_at}, then {second}: {found:?}");
                    assert!(found == before || found == after, "{context}");
                    assert!(!is_over || found == after, "{context}");
                    assert_eq!(log.log_end_offset(), 40, "{context}");
                    *if found == before { &mut olds } else { &mut news } += 1;
                }
                if is_over {
                    break;
                }
            }
            assert!(olds > 50 && news > 50, "{olds} {news}");
        }
    }
}

#[test]
fn a_cleaned_file_that_somebody_took_away_costs_nothing() {
    let fixture = filled();
    let before = offsets(&fixture.log);
    let old: Vec<_> = fixture.log.segment_handles().unwrap().into_iter().take(2).collect();
    let cleaned = fixture.log.create_cleaned(0, 0).unwrap();
    fixture.fs.remove(&std::path::Path::new(PATH).join("00000000000000000000.log.cleaned")).unwrap();
    assert!(matches!(fixture.log.replace_segments(vec![cleaned], &old, 0), Err(Error::Io { .. })));
    assert_eq!(offsets(&open(&fixture.fs, small(), unclean(40)).unwrap()), before);
}
