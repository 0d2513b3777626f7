//! Counts of the changes that an update found.

use super::{ComparedBy, InputState, KnownInputs, Update, key};

/// Inputs by what an update found of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Inputs that are as they were.
    pub kept: u64,
    /// Those of them whose time or tag is another one now.
    pub touched: u64,
    /// Those of them that could not be read, and keep what the output has of them.
    pub unreadable: u64,
    /// Inputs that were compared with what the output recorded of them by their time and length.
    pub by_time: u64,
    /// Inputs that were compared by the entity tag that a store or a web server gives.
    pub by_tag: u64,
    /// Inputs that were compared by the hash of their content.
    pub by_content: u64,
    /// Inputs that the output did not have.
    pub added: u64,
    /// Inputs that changed, and those that are tried again.
    pub changed: u64,
    /// Inputs of the output that are not listed any more.
    pub gone: u64,
    /// True if the output does not have these any more.
    pub pruned: bool,
}

impl Changes {
    /// Returns true if the output stays as it is.
    pub fn is_empty(&self) -> bool {
        self.added + self.changed + self.touched == 0 && (self.gone == 0 || !self.pruned)
    }
}

/// An update's change to an input that it does not keep as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputChange {
    /// It is embedded for the first time.
    Added,
    /// It is embedded again.
    Changed,
    /// It leaves the output.
    Removed,
    /// It cannot be read, and the output keeps what it has of it.
    Unreadable,
}

impl InputChange {
    /// The word in a file of changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Unreadable => "unreadable",
        }
    }
}

impl KnownInputs {
    /// Decides what the update does with an input; `None` if it keeps it as it is, or has not seen it.
    pub fn change(&self, id: &str) -> Option<InputChange> {
        let input = self.inputs.get(&key(id))?;
        let prunes = matches!(self.update, Update::Changes { prune: true, .. });
        match input.state {
            InputState::Wanted { is_new: true, .. } => Some(InputChange::Added),
            InputState::Wanted { .. } => Some(InputChange::Changed),
            InputState::Gone if prunes => Some(InputChange::Removed),
            InputState::Unreadable { .. } => Some(InputChange::Unreadable),
            InputState::Gone | InputState::Kept { .. } | InputState::Failed => None,
        }
    }

    /// Counts what the listing showed so far.
    pub fn changes(&self) -> Changes {
        let pruned = matches!(self.update, Update::Changes { prune: true, .. });
        let mut changes = Changes { pruned, ..Changes::default() };
        for input in self.inputs.values() {
            match input.compared_by {
                Some(ComparedBy::Time) => changes.by_time += 1,
                Some(ComparedBy::Tag) => changes.by_tag += 1,
                Some(ComparedBy::Content) => changes.by_content += 1,
                None => {}
            }
            changes.touched += u64::from(input.is_touched);
            changes.unreadable += u64::from(matches!(input.state, InputState::Unreadable { .. }));
            match (input.state, self.update) {
                (InputState::Wanted { is_new: true, .. }, _) => changes.added += 1,
                (InputState::Wanted { .. }, _) => changes.changed += 1,
                (InputState::Gone, Update::Changes { .. }) => changes.gone += 1,
                _ => changes.kept += 1,
            }
        }
        changes
    }
}
