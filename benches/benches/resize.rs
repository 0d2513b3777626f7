//! The cost of resizing a photo: every compiled resizer, and Pillow and OpenCV-Python, which take turns in one run.
//!
//! `cargo bench -p foveate-benches --features native --bench resize -- [--photos P] [--images 16] [--rounds 5]
//! [--python python3] [--csv FILE]`
//!
//! The photos are decoded beforehand. Every contestant is a process with one thread. Figures are milliseconds per
//! image, of that thread's processor time and of wall time, as medians over the rounds. Ours write into reused memory,
//! Python's into a new image. The samples are compared with Pillow's (its own filters and the `hf` recipe) or
//! OpenCV-Python's, if installed: the mean absolute difference shows how close filters of the same name are.

// A bench prints its table.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use foveate::backends::resizers;
use foveate::core::{Backend, ImageView, ImageViewMut, PixelBuf, PixelLimits, Size};
use foveate::decode::DecodeHint;
use foveate::embed::Backends;
use foveate::resize::{Filter, Geometry, ResizePlan, Resizer};
use foveate_benches::contest::{self, Contestant, Figure, Turn, compete, serve, timed};
use foveate_benches::{Result, host, photos, thread_processor_time};

const PYTHON: [&str; 2] = ["Pillow", "OpenCV-Python"];

/// The cases, each with the library whose samples are the reference.
const CASES: [(&str, &str); 8] = [
    ("hf", "Pillow"),
    ("squash", "OpenCV-Python"),
    ("bilinear", "Pillow"),
    ("bicubic", "Pillow"),
    ("lanczos", "Pillow"),
    ("box", "Pillow"),
    ("area", "OpenCV-Python"),
    ("cubic", "OpenCV-Python"),
];
const OUTPUT: Size = Size::square(224);

/// Largest mean difference in levels: filters without antialiasing differ by about 4, another picture by tens.
const SAME_PICTURE: f64 = 10.0;

/// The geometry of a case's name on a contestant's command line.
fn geometry(case: &str) -> Option<Geometry> {
    let filter = match case {
        "hf" => return Some(Geometry::ShortestEdgeCrop { edge: 256, crop: OUTPUT, filter: Filter::Bicubic }),
        "squash" => Filter::OpenCvLinear,
        "bilinear" => Filter::Bilinear,
        "bicubic" => Filter::Bicubic,
        "lanczos" => Filter::Lanczos3,
        "box" => Filter::Box,
        "area" => Filter::OpenCvArea,
        "cubic" => Filter::OpenCvCubic,
        _ => return None,
    };
    Some(Geometry::Stretch { output: OUTPUT, filter })
}

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
        let mut args = Self { photos, images: 16, rounds: 5, python, csv: None, child: None };
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

/// A decoded photo.
struct Photo {
    size: Size,
    samples: Vec<u8>,
}

/// Runs this process as a resizer: `time PHOTOS CASE` and `check PHOTOS CASE FILE`.
fn contend(name: &str) -> Result<()> {
    let registry = resizers();
    let backend = registry.get(name)?;
    let mut resizer = match backend.open() {
        Ok(resizer) => resizer,
        Err(error) => {
            contest::decline(&error.to_string());
            return Ok(());
        }
    };
    let version = host::library(backend.health().library.as_deref());
    let (mut loaded, mut out) = (None, vec![0; OUTPUT.pixels() as usize * 3]);
    serve(&version, |words| {
        let [command, list, case, rest @ ..] = words else { return Err("what?".into()) };
        let photos = match &loaded {
            Some(photos) => photos,
            None => loaded.insert(load(Path::new(list))?),
        };
        let geometry = geometry(case).ok_or("what?")?;
        let work: Vec<(&Photo, ResizePlan)> = photos.iter().map(|photo| (photo, geometry.plan(photo.size))).collect();
        match (*command, rest) {
            ("time", []) => timed(thread_processor_time, || {
                work.iter().try_for_each(|(photo, plan)| resize(resizer.as_mut(), photo, plan, &mut out))
            }),
            ("check", [file]) => {
                let mut file = File::create(file)?;
                for (photo, plan) in &work {
                    resize(resizer.as_mut(), photo, plan, &mut out)?;
                    file.write_all(&out)?;
                }
                Ok(vec![work.len() as f64])
            }
            _ => Err("what?".into()),
        }
    })
}

fn load(list: &Path) -> Result<Vec<Photo>> {
    let photo = |line: &str| -> Result<Photo> {
        let [width, height, file] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { return Err("what?".into()) };
        Ok(Photo { size: Size::new(width.parse()?, height.parse()?), samples: std::fs::read(file)? })
    };
    std::fs::read_to_string(list)?.lines().map(photo).collect()
}

fn resize(resizer: &mut dyn Resizer, photo: &Photo, plan: &ResizePlan, out: &mut [u8]) -> Result<()> {
    let src = ImageView::new(&photo.samples, photo.size).ok_or("samples that do not fit the size")?;
    let dst = ImageViewMut::new(out, OUTPUT).ok_or("an output that does not fit the size")?;
    Ok(resizer.resize(src, plan, dst)?)
}

/// Decodes the photos into files. Returns the path of their list, which has one line per photo, and their number.
fn decode(args: &Args, folder: &Path) -> Result<(PathBuf, usize)> {
    let mut decoder = Backends::compiled().open_decoders(None, &Default::default())?;
    let mut pixels = PixelBuf::new(PixelLimits::DEFAULT);
    let mut lines = Vec::new();
    for photo in photos::list(&args.photos)?.iter().take(args.images) {
        decoder.decode(&std::fs::read(photo)?, DecodeHint::default(), &mut pixels)?;
        let file = folder.join(format!("{}.rgb", lines.len()));
        std::fs::write(&file, pixels.as_slice())?;
        lines.push(format!("{} {} {}", pixels.size().width, pixels.size().height, file.display()));
    }
    let list = folder.join("photos.txt");
    std::fs::write(&list, lines.join("\n"))?;
    Ok((list, lines.len()))
}

type Missing = Vec<(String, String)>;

fn contestants(args: &Args) -> Result<(Vec<Contestant>, Missing)> {
    let (mut contestants, mut missing) = (Vec::new(), Vec::new());
    let registry = resizers();
    let own = |name| -> Result<(&str, Command)> { Ok((name, contest::own(name, &[])?)) };
    let ours = registry.iter().map(|backend| own(backend.name()));
    let script = |name: &&'static str| {
        let library = name.trim_end_matches("-Python").to_owned();
        Ok((*name, contest::python(&args.python, "resize.py", &[library])))
    };
    for contestant in ours.chain(PYTHON.iter().map(script)) {
        let (name, command) = contestant?;
        match Contestant::start(name, command) {
            Ok(contestant) => contestants.push(contestant),
            Err(reason) => missing.push((name.to_owned(), reason)),
        }
    }
    Ok((contestants, missing))
}

fn compare(args: &Args) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (list, images) = decode(args, folder.path())?;
    let (mut contestants, missing) = contestants(args)?;
    let name = photos::short_name(&args.photos);
    println!("{images} of {name} to {OUTPUT}, {}, medians of {} rounds", host::processor(), args.rounds);
    println!("case     resizer       |  cpu ms  wall ms | mean difference");
    let mut csv = String::from(
        "host,cores,photos,images,rounds,case,resizer,version,status,cpu_ms_median,cpu_ms_min,cpu_ms_max,\
         wall_ms_median,wall_ms_min,wall_ms_max,reference,mean_difference\n",
    );
    for (case, reference) in CASES {
        let figures = cell(&mut contestants, args.rounds, (&list, images), (case, reference), folder.path());
        let names = contestants.iter().map(|contestant| (contestant.name.as_str(), contestant.version.as_str()));
        let absent = missing.iter().map(|(name, reason)| ((name.as_str(), ""), Err(reason.clone())));
        for ((resizer, version), figure) in names.zip(figures).chain(absent) {
            let common = format!("{},{},{name},{images},{}", host::processor(), host::cores(), args.rounds);
            csv += &report(&common, (case, reference), (resizer, version), &figure);
        }
    }
    if let Some(path) = &args.csv {
        std::fs::write(path, csv)?;
    }
    Ok(())
}

/// Milliseconds per image, and the mean difference to the reference's samples, if there is a reference.
type Cell = std::result::Result<(Figure, Option<f64>), String>;

fn cell(
    contestants: &mut [Contestant],
    rounds: usize,
    (list, images): (&Path, usize),
    (case, reference): (&str, &str),
    folder: &Path,
) -> Vec<Cell> {
    let list = list.display();
    let figures = compete(contestants, rounds, |contestant| {
        let answer = contestant.ask(&format!("time {list} {case}"))?;
        let per_image = |seconds: f64| seconds * 1e3 / images as f64;
        let [wall, cpu] = answer[..] else { return Err("two numbers are a turn".to_owned()) };
        Ok(Turn { wall: per_image(wall), cpu: per_image(cpu) })
    });
    let file = folder.join("samples");
    let samples = |contestant: &mut Contestant| -> std::result::Result<Vec<u8>, String> {
        contestant.ask(&format!("check {list} {case} {}", file.display()))?;
        std::fs::read(&file).map_err(|error| error.to_string())
    };
    let golden = contestants.iter_mut().find(|contestant| contestant.name == reference);
    let golden = golden.and_then(|contestant| samples(contestant).ok());
    let judged = contestants.iter_mut().zip(figures).map(|(contestant, figure)| {
        let (figure, found) = (figure?, samples(contestant)?);
        let Some(golden) = &golden else { return Ok((figure, None)) };
        if found.len() != golden.len() {
            return Err(format!("it makes {} samples, not {}", found.len(), golden.len()));
        }
        let sum: u64 = found.iter().zip(golden).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
        let difference = sum as f64 / found.len() as f64;
        if difference > SAME_PICTURE {
            return Err(format!("it makes another picture: {difference:.2} off"));
        }
        Ok((figure, Some(difference)))
    });
    judged.collect()
}

/// Prints a row of the table. Returns the row for the CSV.
fn report(common: &str, (case, reference): (&str, &str), (name, version): (&str, &str), figure: &Cell) -> String {
    let (status, numbers) = match figure {
        Ok((Figure { wall, cpu }, difference)) => {
            let difference = difference.map_or_else(|| "no reference".to_owned(), |value| format!("{value:.4}"));
            println!("{case:<8} {name:<13} | {:>7.3} {:>8.3} | {difference}", cpu.median, wall.median);
            let times = [cpu.median, cpu.min, cpu.max, wall.median, wall.min, wall.max];
            let times = times.map(|value| format!("{value:.4}")).join(",");
            ("ok".to_owned(), format!("{times},{reference},{difference}"))
        }
        Err(reason) => {
            println!("{case:<8} {name:<13} | n/a ({reason})");
            (format!("n/a ({reason})").replace(',', ";"), ",".repeat(7))
        }
    };
    let version = version.replace(',', "");
    format!("{common},{case},{name},{version},{status},{numbers}\n")
}
