use crate::SearchError;
use crate::codes::BLOCK;
use crate::found::{Neighbors, Stats};
use crate::search::Search;
use crate::top::Top;
use crate::vectors::RowsOf;

/// Most queries, and most rows, that are compared in f64. Codes pay off with more of both.
pub(crate) const FEW: (usize, usize) = (256, 64);

impl Search<'_> {
    /// Finds the nearest `rows` by their scores alone, for few queries or few rows.
    pub(crate) fn scan(
        &self,
        queries: RowsOf<'_, '_>,
        others: RowsOf<'_, '_>,
        k: usize,
    ) -> Result<Neighbors, SearchError> {
        let asked = queries.rows;
        let mut block = BLOCK;
        let blocks = if asked.len() <= FEW.0 {
            // In one pass over the rows, which the threads share.
            block = asked.len().max(1);
            let chunks: Vec<&[u32]> = others.rows.chunks(BLOCK).collect();
            let of_threads = self.each(
                chunks.len(),
                0.0..1.0,
                || Top::new(asked.len(), k),
                |number, top| {
                    for &row in chunks[number] {
                        for (place, &query) in asked.iter().enumerate() {
                            top.push(place, queries.vectors.score(query, others.vectors, row), row);
                        }
                    }
                },
            )?;
            let mut best = Top::new(asked.len(), k);
            for top in of_threads {
                for place in 0..asked.len() {
                    top.of(place).for_each(|(row, score)| best.push(place, score, row));
                }
            }
            vec![best]
        } else {
            // The threads share the blocks of queries.
            let chunks: Vec<&[u32]> = asked.chunks(BLOCK).collect();
            self.map(chunks.len(), 0.0..1.0, |number| {
                let mut top = Top::new(chunks[number].len(), k);
                for (place, &query) in chunks[number].iter().enumerate() {
                    for &row in others.rows {
                        top.push(place, queries.vectors.score(query, others.vectors, row), row);
                    }
                }
                top
            })?
        };
        let mut places = vec![u32::MAX; queries.vectors.len()];
        asked.iter().zip(0..).for_each(|(&query, place)| places[query as usize] = place);
        let pairs = others.rows.len() as u64 * asked.len() as u64;
        let stats = Stats { pairs, scored: pairs, width: others.vectors.dim() };
        Ok(Neighbors { blocks, block, places, stats })
    }
}
