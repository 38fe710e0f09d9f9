//! The size of one file as an advised compaction left it, compared with results by hand.

use super::*;

const MIB: u64 = 1 << 20;
const NOW: Moment = Moment::from_unix(1_795_222_800);

fn facts(file: u64, active: u64, seq: u64) -> Facts {
    Facts {
        docs: OptionalU64::new(1_000),
        deleted_docs: OptionalU64::new(0),
        update_seq: OptionalU64::new(seq),
        compacted_seq: OptionalU64::new(7),
        ..Facts::read(file * MIB, active * MIB, NOW)
    }
}

#[test]
fn hypothetical_file_grows_from_the_size_its_compaction_left() {
    let (kind, none) = (TargetKind::Db, Correction::NONE);
    let record = AdvisedTarget::of(kind, none, &facts(1_000, 100, 50), NOW).unwrap();
    let left = record.left_bytes / MIB;
    assert!((100..103).contains(&left), "{left}");
    // Columns: the real file and its live bytes; the file and the waste as they would be.
    for (file, active, expected, wasted) in [
        (1_000, 100, left, 0),
        (1_050, 100, left + 50, 50),
        (1_050, 150, left + 50, 0),
        (1_500, 200, left + 500, 400),
        // Somebody wrote little and deleted much.
        (1_000, 40, left, 60),
        // Only a real compaction makes a file this small: it is no smaller than what is left.
        (120, 100, left, 0),
    ] {
        let real = facts(file, active, 60);
        let supposed = record.facts(kind, none, &real).unwrap();
        let (size, waste) =
            (supposed.file_bytes.get().unwrap(), none.reclaimable_bytes(kind, &supposed).unwrap());
        let near = |found: u64, mib: u64| found.abs_diff(mib * MIB) < 3 * MIB;
        assert!(near(size, expected), "{file}, {active}: {size}, not {expected} MiB");
        assert!(near(waste, wasted), "{file}, {active}: {waste}, not {wasted} MiB");
        assert_eq!(supposed.compacted_seq.get(), Some(50));
    }
}

#[test]
fn targets_of_unknown_size_are_not_compacted() {
    for (file, active) in [(None, Some(5)), (Some(5), None)] {
        let real = Facts { file_bytes: file.into(), active_bytes: active.into(), ..facts(9, 9, 9) };
        assert_eq!(AdvisedTarget::of(TargetKind::Db, Correction::NONE, &real, NOW), None);
    }
}
