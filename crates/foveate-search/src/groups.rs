use std::collections::{BTreeMap, HashSet};

use crate::{Pair, Search, SearchError};

/// Pairs between two looks at whether to stop.
const PAIRS: usize = 1 << 12;

/// Condition for rows to be a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    /// A chain of pairs. The ends of a long chain may differ.
    #[default]
    Single,
    /// Every two rows are a pair. Of several ways to group rows, the pairs with the highest scores decide.
    Complete,
}

/// Makes groups of two rows or more. Groups are in the order of their first rows, and rows in order.
pub fn groups(pairs: &[Pair], linkage: Linkage) -> Vec<Vec<u32>> {
    Search::default().groups(pairs, linkage).unwrap_or_default()
}

impl Search<'_> {
    /// Makes groups as [`groups`] does, which takes long for many pairs.
    ///
    /// # Errors
    /// [`SearchError::Cancelled`].
    pub fn groups(&self, pairs: &[Pair], linkage: Linkage) -> Result<Vec<Vec<u32>>, SearchError> {
        let mut by_score: Vec<&Pair> = pairs.iter().collect();
        by_score.sort_by(|a, b| b.score.total_cmp(&a.score).then((a.row, a.other).cmp(&(b.row, b.other))));
        let all: HashSet<(u32, u32)> = match linkage {
            Linkage::Single => HashSet::new(),
            Linkage::Complete => pairs.iter().map(|pair| (pair.row, pair.other)).collect(),
        };
        // Of each row, a row of its group, or itself; of the last one, all members.
        let mut next: BTreeMap<u32, u32> = BTreeMap::new();
        let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, pair) in by_score.into_iter().enumerate() {
            if number % PAIRS == 0 && (self.is_cancelled)() {
                return Err(SearchError::Cancelled);
            }
            let [a, b] = [pair.row, pair.other].map(|row| {
                members.entry(*next.entry(row).or_insert(row)).or_insert_with(|| vec![row]);
                last(&mut next, row)
            });
            let are_pairs = linkage == Linkage::Single
                || members[&a].iter().all(|&a| members[&b].iter().all(|&b| all.contains(&(a.min(b), a.max(b)))));
            if a != b && are_pairs {
                let (large, small) = if members[&a].len() < members[&b].len() { (b, a) } else { (a, b) };
                let moved = members.remove(&small).unwrap_or_default();
                members.entry(large).or_default().extend(moved);
                next.insert(small, large);
            }
        }
        let mut groups: Vec<Vec<u32>> = members.into_values().filter(|rows| rows.len() > 1).collect();
        groups.iter_mut().for_each(|rows| rows.sort_unstable());
        groups.sort_unstable();
        Ok(groups)
    }
}

/// Follows a row to the last one of its group, and shortens the way.
fn last(next: &mut BTreeMap<u32, u32>, row: u32) -> u32 {
    let mut end = row;
    while next[&end] != end {
        end = next[&end];
    }
    let mut at = row;
    while next[&at] != end {
        at = next.insert(at, end).unwrap_or(end);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(row: u32, other: u32, score: f64) -> Pair {
        Pair { row, other, score }
    }

    #[test]
    fn chains_are_one_group_or_several() {
        let pairs = [pair(0, 1, 0.95), pair(1, 2, 0.99), pair(2, 3, 0.96), pair(5, 9, 0.98), pair(3, 4, 0.97)];
        assert_eq!(groups(&pairs, Linkage::Single), [vec![0, 1, 2, 3, 4], vec![5, 9]]);
        assert_eq!(groups(&pairs, Linkage::Complete), [vec![1, 2], vec![3, 4], vec![5, 9]]);
        let all = [pair(0, 1, 0.95), pair(0, 2, 0.9), pair(1, 2, 0.99), pair(2, 3, 0.8)];
        assert_eq!(groups(&all, Linkage::Complete), [vec![0, 1, 2]]);
        assert!(groups(&[], Linkage::Single).is_empty());
    }

    #[test]
    fn many_equal_rows_are_one_group() {
        let pairs: Vec<_> = (1..2000).map(|row| pair(row - 1, row, 1.0)).collect();
        assert_eq!(groups(&pairs, Linkage::Single), [(0..2000).collect::<Vec<_>>()]);
    }
}
