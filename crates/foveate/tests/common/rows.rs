//! The rows of an output, in any order and any number of parts.

use std::collections::BTreeMap;
use std::path::Path;

use foveate::backends;
use foveate::sink::StoredRun;

pub(crate) type Row = (Vec<u32>, u32, u32, u64);

/// Every row and every failure of a complete output by id, after a check of its files.
pub(crate) fn rows(output: &Path) -> BTreeMap<String, Result<Row, String>> {
    let mut found = StoredRun::find(output).unwrap();
    assert_eq!(found.len(), 1);
    let mut run = found.remove(0);
    run.check().unwrap();
    let sinks = backends::sinks();
    let reader = sinks.get(&run.manifest.format).unwrap().reader().unwrap();
    let mut rows = BTreeMap::new();
    let stored = run.rows(reader, &mut |row| {
        let bits = row.vector.iter().map(|component| component.to_bits()).collect();
        assert!(rows.insert(row.id.to_owned(), Ok((bits, row.width, row.height, row.xxh3))).is_none(), "{}", row.id);
        Ok(())
    });
    assert_eq!(stored.unwrap(), run.manifest.rows);
    for failure in run.failures().unwrap() {
        let failure = failure.unwrap();
        assert!(rows.insert(failure.id, Err(failure.reason)).is_none());
    }
    // There is none of an output without inputs.
    let recorded = run.inputs().unwrap().into_iter().flat_map(|recorded| recorded.read().unwrap());
    let mut recorded: Vec<_> = recorded.map(|record| record.unwrap().id).collect();
    recorded.sort();
    assert!(recorded.iter().eq(rows.keys()), "{recorded:?}");
    rows
}

/// Panics unless both outputs have the same rows and failures.
#[track_caller]
pub(crate) fn assert_same_rows(left: &Path, right: &Path) {
    let (left, right) = (rows(left), rows(right));
    assert!(left.keys().eq(right.keys()), "{:?} {:?}", left.keys(), right.keys());
    left.iter().for_each(|(id, row)| assert!(*row == right[id], "{id} differs"));
}
