use crate::codes::BLOCK;
use crate::found::{Neighbors, Stats};
use crate::search::Search;
use crate::top::Top;
use crate::{SearchError, Vectors};

/// Most queries, and most rows, that are compared in f64. Codes pay off with more of both.
pub(crate) const FEW: (usize, usize) = (256, 64);

impl Search<'_> {
    /// Finds the nearest `rows` by their scores alone, for few queries or few rows.
    pub(crate) fn scan(
        &self,
        (queries, asked): (&Vectors<'_>, &[u32]),
        (vectors, rows): (&Vectors<'_>, &[u32]),
        k: usize,
    ) -> Result<Neighbors, SearchError> {
        let (size, blocks) = match asked.len() <= FEW.0 {
            true => (asked.len().max(1), vec![self.scan_rows((queries, asked), (vectors, rows), k)?]),
            false => (BLOCK, self.scan_queries((queries, asked), (vectors, rows), k)?),
        };
        let mut places = vec![u32::MAX; queries.len()];
        asked.iter().zip(0..).for_each(|(&query, place)| places[query as usize] = place);
        let pairs = rows.len() as u64 * asked.len() as u64;
        let stats = Stats { pairs, scored: pairs, width: vectors.dim() };
        Ok(Neighbors { blocks, block: size, places, stats })
    }

    /// In one pass over the rows, which the threads share.
    fn scan_rows(
        &self,
        (queries, asked): (&Vectors<'_>, &[u32]),
        (vectors, rows): (&Vectors<'_>, &[u32]),
        k: usize,
    ) -> Result<Top, SearchError> {
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
        Ok(best)
    }

    /// In blocks of queries.
    fn scan_queries(
        &self,
        (queries, asked): (&Vectors<'_>, &[u32]),
        (vectors, rows): (&Vectors<'_>, &[u32]),
        k: usize,
    ) -> Result<Vec<Top>, SearchError> {
        let blocks: Vec<&[u32]> = asked.chunks(BLOCK).collect();
        self.map(blocks.len(), 0.0..1.0, |number| {
            let mut top = Top::new(blocks[number].len(), k);
            for (place, &query) in blocks[number].iter().enumerate() {
                rows.iter().for_each(|&row| top.push(place, queries.score(query, vectors, row), row));
            }
            top
        })
    }
}
