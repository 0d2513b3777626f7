//! Times a search: `measure VECTORS.npy neighbors K`, `measure VECTORS.npy pairs SCORE`, or `measure VECTORS.npy
//! nearest COUNT`, the ten nearest rows of some queries, with f32 rows as numpy stores them. Prints one JSON object;
//! `measure … OUT` also writes the pairs that were found, as `row,other,score`.
// It prints what it measured.
#![allow(clippy::print_stdout)]

use std::fs;
use std::io::{BufWriter, Read, Write};
use std::time::Instant;

use foveate_search::{Components, Metric, Search, Vectors};
use memmap2::Mmap;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, what, number, out @ ..] = args.as_slice() else {
        return Err("measure VECTORS.npy neighbors|nearest|pairs NUMBER [OUT]".into());
    };
    let (components, first, dim) = map(path)?;
    let data = &components[first..];
    // Queries lie between two rows each.
    let asked: Vec<f32> = match what.as_str() {
        "nearest" => {
            let count = number.parse::<usize>()?;
            let rows = data.len() / dim;
            let ends = (0..count).map(|query| [query * rows / count, (query * 7 + 3) % rows].map(|row| row * dim));
            ends.flat_map(|[a, b]| (0..dim).map(move |at| (a + at, b + at))).map(|(a, b)| data[a] + data[b]).collect()
        }
        _ => Vec::new(),
    };
    let start = Instant::now();
    let vectors = Vectors::new(data, dim, Metric::Cosine)?;
    let search = Search::default();
    let mut found = Vec::new();
    let stats = match what.as_str() {
        "neighbors" | "nearest" => {
            let neighbors = match asked.is_empty() {
                true => search.neighbors(&vectors, number.parse()?)?,
                false => search.nearest(&Vectors::new(&asked, dim, Metric::Cosine)?, &vectors, 10)?,
            };
            let of = |row: usize| neighbors.of(row).map(move |(other, score)| (row as u32, other, score));
            found.extend((0..neighbors.len()).flat_map(of));
            neighbors.stats()
        }
        _ => {
            let pairs = search.pairs(&vectors, number.parse()?)?;
            found.extend(pairs.pairs.iter().map(|pair| (pair.row, pair.other, pair.score)));
            pairs.stats
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    if let Some(out) = out.first() {
        let mut out = BufWriter::new(fs::File::create(out)?);
        for (row, other, score) in &found {
            writeln!(out, "{row},{other},{score}")?;
        }
        out.flush()?;
    }
    println!(
        "{{\"rows\": {}, \"found\": {}, \"seconds\": {seconds:.2}, \"pairs\": {}, \"scored\": {}, \"width\": {}, \
         \"peak_gb\": {:.2}}}",
        vectors.len(),
        found.len(),
        stats.pairs,
        stats.scored,
        stats.width,
        peak().unwrap_or(f64::NAN)
    );
    Ok(())
}

/// Gigabytes that the process had in memory at most, the vectors included.
fn peak() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes: f64 = status.split_once("VmHWM:")?.1.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024.0 / 1e9)
}

/// Maps a file of numpy, version 1, `<f4`, C order. Returns its numbers with those of the header, the first number of
/// the rows, and the dimension.
fn map(path: &str) -> Result<(Components, usize, usize), Failure> {
    let mut file = fs::File::open(path)?;
    let mut start = [0; 10];
    file.read_exact(&mut start)?;
    let mut header = vec![0; usize::from(u16::from_le_bytes([start[8], start[9]]))];
    file.read_exact(&mut header)?;
    let header = String::from_utf8_lossy(&header);
    let shape = header.split_once("'shape': (").and_then(|(_, rest)| rest.split_once(')')).ok_or("no shape")?.0;
    let (rows, dim) = shape.split_once(',').ok_or("not two dimensions")?;
    let rows: usize = rows.trim().parse()?;
    let dim: usize = dim.trim().parse()?;
    if !header.contains("'<f4'") || header.contains("'fortran_order': True") {
        return Err("not f32 in C order".into());
    }
    // SAFETY: nothing changes the file while it is measured.
    #[allow(unsafe_code)]
    let components = Components::File(unsafe { Mmap::map(&file)? });
    let first = components.len().checked_sub(rows * dim).ok_or("the file is not whole")?;
    Ok((components, first, dim))
}
