//! Your own backends in the whole pipeline: a decoder, an encoder and a sink that foveate does not know, selected by
//! name like the built-in ones. Foveate provides the rest: reading, threads, order, resizing, failures and resuming.

mod bmp;
mod colours;
mod lines;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use foveate::model::OpenOptions;
use foveate::embed::{Backends, Settings};
use foveate::pipeline::{Cancel, Progress};
use foveate::source::Input;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("foveate-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    write_bmp(&folder.join("1-red.bmp"), 300, 200, [255, 0, 0])?;
    write_bmp(&folder.join("2-teal.bmp"), 224, 500, [0, 128, 128])?;
    std::fs::write(folder.join("3-broken.bmp"), b"BM and then nothing")?;

    // The compiled backends (here a resizer, as Cargo.toml says) and then your own.
    let mut backends = Backends::compiled();
    bmp::register(&mut backends.decoders)?;
    colours::register(&mut backends.encoders)?;
    lines::register(&mut backends.sinks)?;

    // The model's folder says how to prepare images; our encoder does not use its weights.
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models/tiny");
    let output = folder.join("colours.txt"); // `.txt` is the extension that our sink claims
    let mut options = Settings::new(vec![Input::Path(folder.clone())], model, &output);
    options.model.decoder = Some("toy-bmp".to_owned());
    options.model.encoder = Some("colours".to_owned());
    let listing = options.list(|_found| ())?;
    let job = options.prepare(Box::new(listing), &Arc::new(backends), &OpenOptions::from_env())?;
    let report = job.run(&Cancel::default(), &Progress::default())?;

    let text = std::fs::read_to_string(&output)?;
    print!("{text}");
    assert_eq!((report.rows, report.failures), (2, 1), "two images, and one that is broken");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("1-red.bmp: 1.000 0.000 0.000"), "{text}");
    assert!(lines[1].ends_with("2-teal.bmp: 0.000 0.502 0.502"), "{text}");
    let failures = std::fs::read_to_string(folder.join("_colours.txt.failures.csv"))?;
    assert!(failures.contains("3-broken.bmp,decode,"), "{failures}");
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Writes an image of one colour as input for the example.
fn write_bmp(path: &Path, width: u32, height: u32, rgb: [u8; 3]) -> std::io::Result<()> {
    let mut row: Vec<u8> = [rgb[2], rgb[1], rgb[0]].repeat(width as usize);
    row.resize(row.len().next_multiple_of(4), 0);
    let rows = row.repeat(height as usize);
    let mut file = b"BM".to_vec();
    for number in [54 + rows.len() as u32, 0, 54, 40, width, height] {
        file.extend(number.to_le_bytes());
    }
    file.extend([1, 0, 24, 0]);
    file.resize(54, 0);
    file.extend(rows);
    std::fs::write(path, file)
}
