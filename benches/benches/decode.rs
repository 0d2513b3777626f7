//! The cost of decoding a photo: every compiled decoder, and Pillow, OpenCV-Python, PyTurboJPEG and simplejpeg, which
//! take turns in one run.
//!
//! `cargo bench -p foveate-benches --features native --bench decode -- [--photos P] [--images 24] [--rounds 5]
//! [--python python3] [--csv FILE]`
//!
//! Three sets: large photos (`P`: a folder or a pattern), the same as progressive files, and as thumbnails of 256
//! pixels. `py/make_photos.py` makes the last two; it needs Pillow, and without it those sets are skipped with a
//! message. Two modes: exact, and reduced, which may shrink to a shorter side of 256. Every contestant is a process
//! with one thread and the files in memory. Figures are milliseconds per image, of that thread's processor time and of
//! wall time, as medians over the rounds. Each contestant decodes into its library's usual memory: ours into a reused
//! buffer, Python's into a new array, and Pillow's into its own memory, which `asarray` copies. The pixels are
//! compared: in exact mode sample by sample, in reduced mode, whose sizes may differ, by their mean.

// A bench prints its table.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use foveate::backends::decoders;
use foveate::core::{Backend, PixelBuf, PixelLimits};
use foveate::decode::{DecodeHint, Decoder, DecoderOptions};
use foveate_benches::contest::{self, Contestant, Turn, compete, serve, timed};
use foveate_benches::{Result, host, photos, thread_processor_time};

const PYTHON: [&str; 5] = ["Pillow", "Pillow-asarray", "OpenCV", "PyTurboJPEG", "simplejpeg"];

/// The smallest shorter side of a reduced image.
const MIN_SIDE: u32 = 256;

/// Images whose pixels are compared.
const CHECKED: usize = 4;

/// Largest difference of the mean sample: decoders differ by 0.1 to 0.3, another picture by tens.
const SAME_PICTURE: f64 = 1.0;

struct Args {
    photos: PathBuf,
    images: usize,
    rounds: usize,
    python: String,
    csv: Option<PathBuf>,
    /// Set if this process is a contestant.
    child: Option<String>,
}

impl Args {
    fn parse() -> Result<Self> {
        let (photos, python) = (photos::usual(), "python3".to_owned());
        let mut args = Self { photos, images: 24, rounds: 5, python, csv: None, child: None };
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            match word.as_str() {
                "--photos" => args.photos = value.into(),
                "--images" => args.images = value.parse()?,
                "--rounds" => args.rounds = value.parse()?,
                "--python" => args.python = value,
                "--csv" => args.csv = Some(value.into()),
                "--child" => args.child = Some(value),
                _ => return Err(format!("there is no option {word}").into()),
            }
        }
        Ok(args)
    }
}

fn main() -> Result<()> {
    let args = Args::parse()?;
    match &args.child {
        Some(name) => contend(name),
        None => compare(&args),
    }
}

/// Runs this process as a decoder: `time LIST MIN_SIDE` and `check LIST MIN_SIDE IMAGES FILE`.
fn contend(name: &str) -> Result<()> {
    let registry = decoders();
    let backend = registry.get(name)?;
    let mut decoder = match backend.open(&DecoderOptions::default()) {
        Ok(decoder) => decoder,
        Err(error) => {
            contest::decline(&error.to_string());
            return Ok(());
        }
    };
    let version = host::library(backend.health().library.as_deref());
    let (mut loaded, mut out) = (None, PixelBuf::new(PixelLimits::DEFAULT));
    serve(&version, |words| {
        let [command, list, min_side, rest @ ..] = words else { return Err("what?".into()) };
        let min_side: u32 = min_side.parse()?;
        if min_side > 0 && !decoder.capability().scaled {
            return Err("it decodes at native size alone".into());
        }
        let files = match &loaded {
            Some((path, files)) if path == list => files,
            _ => &loaded.insert(((*list).to_owned(), read(Path::new(list))?)).1,
        };
        let hint = DecodeHint { min_side: (min_side > 0).then_some(min_side), ..DecodeHint::default() };
        match (*command, rest) {
            ("time", []) => timed(thread_processor_time, || all(decoder.as_mut(), files, hint, &mut out)),
            ("check", [images, file]) => {
                let (mut file, images) = (File::create(file)?, images.parse()?);
                for encoded in files.iter().take(images) {
                    decoder.decode(encoded, hint, &mut out)?;
                    file.write_all(out.as_slice())?;
                }
                Ok(vec![images as f64])
            }
            _ => Err("what?".into()),
        }
    })
}

fn read(list: &Path) -> Result<Vec<Vec<u8>>> {
    std::fs::read_to_string(list)?.lines().map(|path| Ok(std::fs::read(path)?)).collect()
}

fn all(decoder: &mut dyn Decoder, files: &[Vec<u8>], hint: DecodeHint, out: &mut PixelBuf) -> Result<()> {
    for encoded in files {
        decoder.decode(encoded, hint, out)?;
    }
    Ok(())
}

/// A set of photos.
struct Set {
    name: &'static str,
    list: PathBuf,
    images: usize,
}

fn compare(args: &Args) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sets = sets(args, folder.path())?;
    let (mut contestants, missing) = contestants(args)?;
    println!(
        "{} of {}, {}, medians of {} rounds",
        args.images,
        photos::short_name(&args.photos),
        host::processor(),
        args.rounds
    );
    println!("set          mode     decoder        |  cpu ms  wall ms | mean difference");
    let mut csv = String::from(
        "host,cores,photos,images,rounds,set,mode,min_side,decoder,version,status,cpu_ms_median,cpu_ms_min,cpu_ms_max,\
         wall_ms_median,wall_ms_min,wall_ms_max,mean_difference\n",
    );
    for set in &sets {
        for (mode, min_side) in [("exact", 0), ("reduced", MIN_SIDE)] {
            let figures = cell(&mut contestants, args, set, min_side, folder.path());
            let names = contestants.iter().map(|contestant| (contestant.name.as_str(), contestant.version.as_str()));
            let rows = names
                .zip(figures)
                .chain(missing.iter().map(|(name, reason)| ((name.as_str(), ""), Err(reason.clone()))));
            for ((name, version), figure) in rows {
                report(args, set, (mode, min_side), (name, version), &figure, &mut csv);
            }
        }
    }
    if let Some(path) = &args.csv {
        std::fs::write(path, csv)?;
    }
    Ok(())
}

/// The large photos and the sets that are made from them.
fn sets(args: &Args, folder: &Path) -> Result<Vec<Set>> {
    let is_jpeg = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "jpg");
    let files: Vec<PathBuf> = photos::list(&args.photos)?.into_iter().filter(is_jpeg).take(args.images).collect();
    let made = Command::new(&args.python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/py/make_photos.py"))
        .arg(folder)
        .args(&files)
        .status();
    let made = made.is_ok_and(|status| status.success());
    if !made {
        println!("no progressive files and no thumbnails: {} has no Pillow", args.python);
    }
    let set = |name: &'static str, files: Vec<PathBuf>| -> Result<Set> {
        let list = folder.join(format!("{name}.txt"));
        photos::write_list(&files, files.len() as u64, &list)?;
        Ok(Set { name, list, images: files.len() })
    };
    let mut sets = vec![set("baseline", files)?];
    if made {
        for name in ["progressive", "thumbnails"] {
            sets.push(set(name, photos::list(&folder.join(name))?)?);
        }
    }
    Ok(sets)
}

type Missing = Vec<(String, String)>;

fn contestants(args: &Args) -> Result<(Vec<Contestant>, Missing)> {
    let (mut contestants, mut missing) = (Vec::new(), Vec::new());
    let registry = decoders();
    let own = |name| -> Result<(&str, Command)> { Ok((name, contest::own(name, &[])?)) };
    let ours = registry.iter().map(|backend| own(backend.name()));
    let theirs =
        PYTHON.iter().map(|name| Ok((*name, contest::python(&args.python, "decode.py", &[(*name).to_owned()]))));
    for contestant in ours.chain(theirs) {
        let (name, command) = contestant?;
        match Contestant::start(name, command) {
            Ok(contestant) => contestants.push(contestant),
            Err(reason) => missing.push((name.to_owned(), reason)),
        }
    }
    Ok((contestants, missing))
}

/// Milliseconds per image of every contestant, and the distance of its mean sample to the first contestant's.
fn cell(
    contestants: &mut [Contestant],
    args: &Args,
    set: &Set,
    min_side: u32,
    folder: &Path,
) -> Vec<std::result::Result<(contest::Figure, f64), String>> {
    let list = set.list.display();
    let figures = compete(contestants, args.rounds, |contestant| {
        let answer = contestant.ask(&format!("time {list} {min_side}"))?;
        let per_image = |seconds: f64| seconds * 1e3 / set.images as f64;
        let [wall, cpu] = answer[..] else { return Err("two numbers are a turn".to_owned()) };
        Ok(Turn { wall: per_image(wall), cpu: per_image(cpu) })
    });
    let mut reference = None;
    let checked = contestants.iter_mut().zip(figures).map(|(contestant, figure)| {
        let figure = figure?;
        let file = folder.join("pixels");
        contestant.ask(&format!("check {list} {min_side} {CHECKED} {}", file.display()))?;
        let pixels = std::fs::read(&file).map_err(|error| error.to_string())?;
        let reference = reference.get_or_insert_with(|| pixels.clone());
        let difference = difference(&pixels, reference, min_side == 0)?;
        // NaN must fail this comparison.
        if difference <= SAME_PICTURE {
            Ok((figure, difference))
        } else {
            Err(format!("it decodes another picture: {difference:.2} off"))
        }
    });
    checked.collect()
}

/// Mean absolute difference of the samples; for images of different sizes, the difference of the mean samples.
fn difference(pixels: &[u8], reference: &[u8], same_size: bool) -> std::result::Result<f64, String> {
    let mean = |pixels: &[u8]| pixels.iter().map(|&v| f64::from(v)).sum::<f64>() / pixels.len() as f64;
    if pixels.len() == reference.len() {
        let sum: u64 = pixels.iter().zip(reference).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        Ok(sum as f64 / pixels.len() as f64)
    } else if same_size {
        Err(format!("it decodes {} samples, not {}", pixels.len(), reference.len()))
    } else {
        Ok((mean(pixels) - mean(reference)).abs())
    }
}

fn report(
    args: &Args,
    set: &Set,
    (mode, min_side): (&str, u32),
    (name, version): (&str, &str),
    figure: &std::result::Result<(contest::Figure, f64), String>,
    csv: &mut String,
) {
    let (status, numbers) = match figure {
        Ok((contest::Figure { wall, cpu }, difference)) => {
            println!(
                "{:<12} {mode:<8} {name:<14} | {:>7.3} {:>8.3} | {difference:.3}",
                set.name, cpu.median, wall.median
            );
            let values = [cpu.median, cpu.min, cpu.max, wall.median, wall.min, wall.max, *difference];
            ("ok".to_owned(), values.map(|value| format!("{value:.4}")).join(","))
        }
        Err(reason) => {
            println!("{:<12} {mode:<8} {name:<14} | n/a ({reason})", set.name);
            (format!("n/a ({reason})").replace(',', ";"), ",".repeat(6))
        }
    };
    let (host, cores, photos) = (host::processor(), host::cores(), photos::short_name(&args.photos));
    let (images, rounds, set, version) = (set.images, args.rounds, set.name, version.replace(',', ""));
    *csv += &format!(
        "{host},{cores},{photos},{images},{rounds},{set},{mode},{min_side},{name},{version},{status},{numbers}\n"
    );
}
