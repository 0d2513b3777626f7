//! Reading photos where they are, beside what people use: the same photos as folder, tar, zip, Parquet and objects of a
//! store, read by foveate and by Pillow, WebDataset, Ray Data and pyarrow, which take turns in one run.
//!
//! `cargo bench -p foveate-benches --bench sources -- [--images 1000] [--rounds 3] [--python python3] [--data FOLDER]
//! [--only photos|requests|memory] [--csv FOLDER]`
//!
//! - **photos**: images per second of reading alone, and of reading, decoding and resizing. Everybody decodes exactly
//!   and makes the same 224 x 224 pixels, which are compared. `py/make_sources.py` makes the inputs in `--data`, which
//!   keeps them.
//! - **requests**: 280-KB objects and tar shards of the store, beside plain loops of as many parallel requests.
//! - **memory**: resident memory for five million listed objects, and for a tar with a million members.
//!
//! The store is `s3s-fs` (`cargo install s3s-fs --features binary`) behind a proxy that begins each answer 100 ms after
//! its request. Client, proxy and server share the machine's cores. What is missing is reported and left out.

// A bench prints its table.
#![allow(clippy::print_stdout)]

mod memory;
mod ours;
mod photos;
mod plain;
mod requests;
mod server;
mod table;

use std::path::PathBuf;

use foveate_benches::Result;

/// What is measured.
struct Args {
    images: usize,
    rounds: usize,
    python: String,
    data: Option<PathBuf>,
    only: Option<String>,
    csv: Option<PathBuf>,
    /// The name and the arguments of a contestant, if this process is one.
    child: Option<Vec<String>>,
}

impl Args {
    fn parse() -> Result<Self> {
        let python = "python3".to_owned();
        let mut args = Self { images: 1000, rounds: 3, python, data: None, only: None, csv: None, child: None };
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            if word == "--child" {
                args.child = Some(words.collect());
                break;
            }
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            match word.as_str() {
                "--images" => args.images = value.parse()?,
                "--rounds" => args.rounds = value.parse()?,
                "--python" => args.python = value,
                "--data" => args.data = Some(value.into()),
                "--only" => args.only = Some(value),
                "--csv" => args.csv = Some(value.into()),
                _ => return Err(format!("there is no option {word}").into()),
            }
        }
        Ok(args)
    }

    fn wants(&self, section: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == section)
    }
}

fn main() -> Result<()> {
    let args = Args::parse()?;
    if let Some(child) = &args.child {
        return contend(child);
    }
    let made = tempfile::tempdir()?;
    let data = args.data.clone().unwrap_or_else(|| made.path().to_owned());
    if args.wants("photos") || args.wants("requests") {
        let sets = photos::make(&args, &data)?;
        let server = server::Server::start(&data);
        let server = server.inspect_err(|reason| println!("nothing of a store: {reason}")).ok();
        if args.wants("photos") {
            table::save(&args, "sources.csv", &photos::compare(&args, &sets, server.as_ref())?)?;
        }
        if let Some(server) = server.filter(|_| args.wants("requests")) {
            table::save(&args, "read_ahead.csv", &requests::compare(&args, &sets, &server)?)?;
        }
    }
    if args.wants("memory") {
        table::save(&args, "source_memory.csv", &memory::measure()?)?;
    }
    Ok(())
}

fn contend(child: &[String]) -> Result<()> {
    match child {
        [name, endpoint] if name == "ours" => ours::contend(endpoint),
        [name, endpoint] if name == "plain" => plain::contend(endpoint),
        [name, what, count] if name == "memory" => memory::contend(what, count.parse()?),
        _ => Err("there is no such contestant".into()),
    }
}
