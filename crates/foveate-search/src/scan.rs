use crate::codes::BLOCK;
use crate::found::{Neighbors, Stats};
use crate::search::Search;
use crate::top::Top;
use crate::{SearchError, Vectors};

/// Most queries that are compared with all rows in f64. Codes of all rows pay off with more.
pub(crate) const FEW: usize = 256;

impl Search<'_> {
    /// Finds the nearest `rows` of a few queries by their scores alone, in one pass.
    pub(crate) fn scan(
        &self,
        (queries, asked): (&Vectors<'_>, &[u32]),
        (vectors, rows): (&Vectors<'_>, &[u32]),
        k: usize,
    ) -> Result<Neighbors, SearchError> {
        let blocks: Vec<&[u32]> = rows.chunks(BLOCK).collect();
        let new = || Top::new(asked.len(), k);
        let of_threads = self.each(blocks.len(), 0.0..1.0, new, |number, top| {
            for &row in blocks[number] {
                for (place, &query) in asked.iter().enumerate() {
                    top.push(place, queries.score(query, vectors, row), row);
                }
            }
        })?;
        let mut best = new();
        for top in of_threads {
            for place in 0..asked.len() {
                top.of(place).for_each(|(row, score)| best.push(place, score, row));
            }
        }
        let mut places = vec![u32::MAX; queries.len()];
        asked.iter().zip(0..).for_each(|(&query, place)| places[query as usize] = place);
        let pairs = rows.len() as u64 * asked.len() as u64;
        let stats = Stats { pairs, scored: pairs, width: vectors.dim() };
        Ok(Neighbors { blocks: vec![best], block: asked.len().max(1), places, stats })
    }
}
