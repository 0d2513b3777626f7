//! Sets of photos in every kind of input, and all that reads them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use foveate_benches::contest::{self, Contestant, Figure, Turn, compete};
use foveate_benches::{Result, host, photos};

use crate::Args;
use crate::server::Server;
use crate::table::{Table, three};

/// Images whose pixels are compared.
const CHECKED: usize = 8;

/// Largest difference of the mean sample: decoders differ by tenths, another picture by tens.
const SAME_PICTURES: f64 = 1.0;

/// The photos as they are, and twice as many thumbnails of them.
const SETS: [(&str, usize); 2] = [("large", 1), ("small", 2)];

/// Bytes to read in one turn of reading alone, or once all that there are.
const READ_BYTES: u64 = 200_000_000;

/// The kinds of input, and where they are in a set's folder.
const INPUTS: [(&str, &str); 5] = [
    ("folder", "folder/"),
    ("tar", "shards/*.tar"),
    ("tar.gz", "shards-gz/*.tar.gz"),
    ("zip", "photos.zip"),
    ("parquet", "photos.parquet"),
];
const OBJECTS: [(&str, &str); 2] = [("s3 prefix", "folder/"), ("s3 tar", "shards/*.tar")];

/// Python's readers: workers, and the kinds of input.
const PYTHON: [(&str, usize, &[&str]); 6] = [
    ("Pillow", 0, &["folder"]),
    ("Pillow", 2, &["folder"]),
    ("pyarrow", 0, &["parquet"]),
    ("WebDataset", 0, &["tar", "tar.gz"]),
    ("WebDataset", 2, &["tar"]),
    ("Ray", 2, &["folder", "tar"]),
];

/// Photos in every kind of input.
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) folder: PathBuf,
    images: usize,
    /// Of all images.
    bytes: u64,
}

impl Set {
    fn new(data: &Path, name: &'static str, images: usize) -> Result<Self> {
        let mut set = Self { name, folder: data.join(name), images, bytes: 0 };
        let files = set.files("folder")?;
        set.bytes = files.iter().map(|(_, len)| len).sum();
        match files.len() == images {
            true => Ok(set),
            false => Err(format!("{} photos in {}, not {images}", files.len(), set.folder.display()).into()),
        }
    }

    /// The names and lengths of the files in one of its folders, in order.
    fn files(&self, folder: &str) -> Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.folder.join(folder))? {
            let entry = entry?;
            files.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len()));
        }
        files.sort();
        Ok(files)
    }

    /// Writes the addresses and lengths of the objects in one of its folders to `list`.
    pub(crate) fn write_objects(&self, folder: &str, list: &Path) -> Result<()> {
        let line = |(name, len): (String, u64)| format!("s3://{}/{folder}/{name} {len}\n", self.name);
        Ok(std::fs::write(list, self.files(folder)?.into_iter().map(line).collect::<String>())?)
    }

    fn path(&self, place: &str) -> String {
        self.folder.join(place).display().to_string()
    }
}

/// Makes the sets in `data`, unless they are there.
pub(crate) fn make(args: &Args, data: &Path) -> Result<Vec<Set>> {
    let files = photos::list(&photos::usual())?;
    let make = |&(name, times): &(&'static str, usize)| {
        let images = args.images * times;
        let mut command = contest::python(&args.python, "make_sources.py", &[]);
        command.arg(data).args([name, &images.to_string()]).args(&files);
        match command.status()?.success() {
            true => Set::new(data, name, images),
            false => Err(format!("{} cannot make the photos: it needs Pillow and pyarrow", args.python).into()),
        }
    };
    SETS.iter().map(make).collect()
}

/// A reader at one task.
struct Task<'a> {
    reader: Rc<RefCell<Contestant>>,
    name: &'static str,
    workers: usize,
    set: &'a Set,
    input: &'static str,
    /// Whether it decodes and resizes what it reads.
    decodes: bool,
    address: String,
    /// The mean of the samples that it saw.
    mean: Cell<f64>,
}

impl Task<'_> {
    fn turn(&self) -> std::result::Result<Turn, String> {
        let request = match self.decodes {
            true => format!("pixels {}", self.address),
            false => format!("read {} {}", self.address, self.passes()),
        };
        let answer = self.reader.borrow_mut().ask(&request)?;
        let [wall, cpu, images, seen] = answer[..] else { return Err("a turn is four numbers".to_owned()) };
        if images != self.set.images as f64 {
            return Err(format!("it read {images} of {} images", self.set.images));
        }
        if !self.decodes && seen != self.set.bytes as f64 {
            return Err(format!("it read {seen} of {} bytes", self.set.bytes));
        }
        self.mean.set(seen);
        Ok(Turn { wall: wall / images, cpu: cpu / images })
    }

    /// A store's latency needs no repetition to be measured.
    fn passes(&self) -> u64 {
        let is_local = !self.address.starts_with("s3:");
        if is_local { (READ_BYTES / self.set.bytes.max(1)).clamp(1, 100) } else { 1 }
    }

    /// The pixels of the first images.
    fn pixels(&self, folder: &Path) -> Result<Vec<u8>> {
        let file = folder.join("pixels");
        self.reader.borrow_mut().ask(&format!("check {} {CHECKED} {}", self.address, file.display()))?;
        Ok(std::fs::read(file)?)
    }
}

/// All readers at all tasks, in turns.
pub(crate) fn compare(args: &Args, sets: &[Set], server: Option<&Server>) -> Result<Table> {
    let mut table = Table::new(&[
        "set",
        "images",
        "bytes_per_image",
        "input",
        "work",
        "reader",
        "workers",
        "version",
        "rounds",
        "status",
        "images_per_second_median",
        "images_per_second_min",
        "images_per_second_max",
        "cpu_ms_per_image_median",
        "cpu_ms_per_image_min",
        "cpu_ms_per_image_max",
        "mean_difference",
    ]);
    println!("{}, {} cores, medians of {} rounds", host::processor(), host::cores(), args.rounds);
    println!("set    input      work    reader         |  images/s  cpu ms/image | mean difference");
    let mut tasks = ours(sets, server)?;
    for (name, workers, inputs) in PYTHON {
        match python(args, sets, name, workers, inputs) {
            Ok(python) => tasks.extend(python),
            Err(reason) => println!("{name} is left out: {reason}"),
        }
    }
    let figures = compete(&mut tasks, args.rounds, |task| task.turn());
    let differences = differences(&tasks);
    for ((task, figure), difference) in tasks.iter().zip(figures).zip(differences) {
        let result = figure.and_then(|figure| Ok((figure, difference?)));
        report(args, task, &result, &mut table);
    }
    Ok(table)
}

fn ours<'a>(sets: &'a [Set], server: Option<&Server>) -> Result<Vec<Task<'a>>> {
    let endpoint = server.map_or_else(|| "http://localhost:9".to_owned(), Server::endpoint);
    let reader = Contestant::start("foveate", contest::own("ours", &[endpoint])?)?;
    let reader = Rc::new(RefCell::new(reader));
    let mut tasks = Vec::new();
    for set in sets {
        let local = INPUTS.map(|(input, place)| (input, set.path(place)));
        let objects = OBJECTS.map(|(input, place)| (input, format!("s3://{}/{place}", set.name)));
        for (input, address) in local.into_iter().chain(server.into_iter().flat_map(|_| objects.clone())) {
            for decodes in [false, true] {
                let (reader, address, mean) = (Rc::clone(&reader), address.clone(), Cell::default());
                tasks.push(Task {
                    reader,
                    name: "foveate",
                    workers: host::cores(),
                    set,
                    input,
                    decodes,
                    address,
                    mean,
                });
            }
        }
    }
    Ok(tasks)
}

fn python<'a>(
    args: &Args,
    sets: &'a [Set],
    name: &'static str,
    workers: usize,
    inputs: &[&str],
) -> std::result::Result<Vec<Task<'a>>, String> {
    let command = contest::python(&args.python, "sources.py", &[name.to_owned(), workers.to_string()]);
    let reader = Rc::new(RefCell::new(Contestant::start(name, command)?));
    let mut tasks = Vec::new();
    for set in sets {
        for (input, place) in INPUTS.into_iter().filter(|(input, _)| inputs.contains(input)) {
            let (reader, address, mean) = (Rc::clone(&reader), set.path(place), Cell::default());
            tasks.push(Task { reader, name, workers, set, input, decodes: true, address, mean });
        }
    }
    Ok(tasks)
}

type Differences = Vec<std::result::Result<Option<f64>, String>>;

/// The mean difference of the decoded samples of the first images from the first reader's of the same set, or that it
/// makes other pictures.
fn differences(tasks: &[Task<'_>]) -> Differences {
    let Ok(folder) = tempfile::tempdir() else { return tasks.iter().map(|_| Err("no folder".to_owned())).collect() };
    let mut first: BTreeMap<&str, (Vec<u8>, f64)> = BTreeMap::new();
    let difference = |task: &Task<'_>| {
        if !task.decodes {
            return Ok(None);
        }
        let pixels = task.pixels(folder.path()).map_err(|error| error.to_string())?;
        let (expected, mean) = first.entry(task.set.name).or_insert_with(|| (pixels.clone(), task.mean.get()));
        let difference = mean_difference(&pixels, expected);
        // NaN must fail this comparison.
        match difference <= SAME_PICTURES && (task.mean.get() - *mean).abs() <= SAME_PICTURES {
            true => Ok(Some(difference)),
            false => Err(format!("it makes other pictures: {difference:.2} off")),
        }
    };
    tasks.iter().map(difference).collect()
}

fn mean_difference(pixels: &[u8], expected: &[u8]) -> f64 {
    if pixels.len() != expected.len() {
        return f64::NAN;
    }
    let sum: u64 = pixels.iter().zip(expected).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / pixels.len() as f64
}

fn report(
    args: &Args,
    task: &Task<'_>,
    result: &std::result::Result<(Figure, Option<f64>), String>,
    table: &mut Table,
) {
    let work = if task.decodes { "pixels" } else { "read" };
    print!("{:<6} {:<10} {work:<7} {:<12} {} | ", task.set.name, task.input, task.name, task.workers);
    let (status, numbers) = match result {
        Ok((Figure { wall, cpu }, difference)) => {
            let difference = difference.map_or_else(String::new, |difference| format!("{difference:.4}"));
            println!("{:>9.0} {:>13.3} | {difference}", 1.0 / wall.median, cpu.median * 1e3);
            let numbers = [&three(wall, |wall| 1.0 / wall)[..], &three(cpu, |cpu| cpu * 1e3), &[difference]].concat();
            ("ok".to_owned(), numbers)
        }
        Err(reason) => {
            println!("n/a ({reason})");
            (format!("n/a ({reason})"), vec![String::new(); 7])
        }
    };
    let Task { set, input, name, workers, reader, .. } = task;
    let per_image = set.bytes / set.images as u64;
    let words = [set.name, &set.images.to_string(), &per_image.to_string(), input, work, name].map(str::to_owned);
    let (version, rounds) = (reader.borrow().version.clone(), args.rounds.to_string());
    table.push(words.into_iter().chain([workers.to_string(), version, rounds, status]).chain(numbers));
}
