//! Backends of one's own in the whole pipeline: a decoder, an encoder and a sink that foveate has never heard of, found
//! by name like those it brings along. The rest (reading, threads, order, resizing, failures, resuming) is foveate's.

mod bmp;
mod colours;
mod lines;

use std::error::Error;
use std::sync::Arc;

use foveate::dinov2::OpenOptions;
use foveate::embed::{Backends, EmbedOptions};
use foveate::pipeline::{Cancel, Progress};
use foveate::source::Input;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("foveate-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    bmp::write(&folder.join("1-red.bmp"), 300, 200, [255, 0, 0])?;
    bmp::write(&folder.join("2-teal.bmp"), 224, 500, [0, 128, 128])?;
    std::fs::write(folder.join("3-broken.bmp"), b"BM and then nothing")?;

    // What this build of foveate contains (a resizer, as Cargo.toml says), and then one's own.
    let mut backends = Backends::compiled();
    bmp::register(&mut backends.decoders)?;
    colours::register(&mut backends.encoders)?;
    lines::register(&mut backends.sinks)?;

    // The model's folder says how images are prepared; our encoder has no use for its weights.
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models/tiny");
    let output = folder.join("colours.txt"); // `.txt` is the extension that our sink claims
    let options = EmbedOptions {
        decoder: Some("toy-bmp".to_owned()),
        encoder: Some("colours".to_owned()),
        ..EmbedOptions::new(vec![Input::Path(folder.clone())], model, &output)
    };
    let listing = options.list(|_found| ())?;
    let job = options.prepare(Box::new(listing), &Arc::new(backends), &OpenOptions::from_env())?;
    let report = job.run(&Cancel::default(), &Progress::default())?;

    let text = std::fs::read_to_string(&output)?;
    print!("{text}");
    assert_eq!((report.rows, report.failures), (2, 1), "two images, and one that is broken");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("1-red.bmp: 1.000 0.000 0.000"), "{text}");
    assert!(lines[1].ends_with("2-teal.bmp: 0.000 0.502 0.502"), "{text}");
    let failures = std::fs::read_to_string(folder.join("colours.failures.csv"))?;
    assert!(failures.contains("3-broken.bmp,decode,"), "{failures}");
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
