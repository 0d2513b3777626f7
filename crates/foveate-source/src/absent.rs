//! Columns without values: a misspelt field of a tar's JSON is found only by reading.

use crate::Item;
use crate::stream::after;

/// Watches the first container's members for values of the columns.
pub(crate) struct Absent {
    /// The columns without a value so far, by their numbers.
    columns: Vec<usize>,
    /// The container's record, once a member came.
    record: Option<u64>,
    members: u64,
    tell: Box<dyn FnMut(&str) + Send>,
}

impl Absent {
    pub(crate) fn new(columns: usize, tell: impl FnMut(&str) + Send + 'static) -> Self {
        Self { columns: (0..columns).collect(), record: None, members: 0, tell: Box::new(tell) }
    }

    /// Looks at the next item, or at the end. `false` if there is nothing more to learn.
    pub(crate) fn see(&mut self, item: Option<&Item>, names: &[String]) -> bool {
        let record = item.map(|item| after(item.place).0);
        if self.record.is_some() && record != self.record {
            let names: Vec<_> = self.columns.iter().map(|&column| names[column].as_str()).collect();
            let (names, members) = (names.join(", "), self.members);
            (self.tell)(&format!("none of the first container's {members} images has a value for {names}"));
            return false;
        }
        let Some(item) = item.filter(|item| !item.columns.is_empty()) else { return true };
        self.record = record;
        self.members += 1;
        self.columns.retain(|&column| item.columns[column].is_none());
        !self.columns.is_empty()
    }

    /// Begins anew, because the source goes to another place.
    pub(crate) fn restart(&mut self) {
        (self.record, self.members) = (None, 0);
    }
}
