//! Other libraries, which a script measures in turns with ours (`benches/peers.py`).
//!
//! It starts as `SCRIPT EXPERIMENT FOLDER` and prints its contestants' names on one line. FOLDER has the inputs as
//! files `0`, `1` and so on. `check NAME CASE N` writes the RGB samples that input N becomes to FOLDER/out.
//! `time NAME CASE COUNT` answers the milliseconds of each of COUNT inputs, taken in turn. Both answer `n/a REASON` for
//! what cannot be done.
//!
//! For `forward`, the input is a batch of RGB samples and becomes vectors (f32, little-endian). The model is in FOLDER:
//! `model.onnx`, and its name or path in `model.txt`. A name is a library and its precision, such as `PyTorch:bf16`.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;

use super::cells::{Attempt, Effort, PixelDifference};
use crate::stats::median;
use crate::{Lab, LabError};

/// Maximum mean difference from our pixels, in levels, as between our decoders.
const MOST_MEAN_DIFFERENCE: f64 = 8.0;

/// A library with one way to use it.
pub(super) struct PeerLibrary {
    pub(super) name: String,
    case: String,
    process: Rc<RefCell<PeerProcess>>,
    pub(super) pixels: PixelDifference,
    /// Times of each input.
    ms: Vec<Vec<f64>>,
    /// Images per second of each sample.
    pub(super) rates: Vec<f64>,
}

impl PeerLibrary {
    /// Returns the median time of each input that was measured.
    pub(super) fn ms(&self) -> Vec<f64> {
        self.ms.iter().filter_map(|ms| median(ms)).collect()
    }

    pub(super) fn sample(&mut self, images: usize) -> Attempt<()> {
        let ms = self.time(images)?;
        self.rates.push(images as f64 / (ms.iter().sum::<f64>() / 1e3));
        let inputs = self.ms.len().max(1);
        ms.into_iter().enumerate().for_each(|(at, ms)| self.ms[at % inputs].push(ms));
        Ok(())
    }

    /// Returns the milliseconds of `images` inputs.
    pub(super) fn time(&self, images: usize) -> Attempt<Vec<f64>> {
        let answer = self.process.borrow_mut().ask(&format!("time {} {} {images}", self.name, self.case))?;
        let ms: Result<Vec<f64>, _> = answer.split_whitespace().map(str::parse).collect();
        ms.ok().filter(|ms| ms.len() == images).ok_or_else(|| format!("it says '{answer}'"))
    }

    /// Returns what an input becomes.
    pub(super) fn output(&self, input: usize) -> Attempt<Vec<u8>> {
        let mut process = self.process.borrow_mut();
        process.ask(&format!("check {} {} {input}", self.name, self.case))?;
        fs::read(process.folder.join("out")).map_err(|error| error.to_string())
    }

    fn compare(&mut self, reference: &mut impl FnMut(usize) -> Result<Option<Vec<u8>>, LabError>) -> Attempt<()> {
        for input in 0..self.ms.len() {
            let pixels = self.output(input)?;
            if let Some(expected) = reference(input).map_err(|error| error.to_string())? {
                self.pixels.add(&pixels, &expected);
            }
        }
        match self.pixels.mean() {
            mean if mean > MOST_MEAN_DIFFERENCE => {
                Err(format!("its pixels differ from ours by {mean:.0} levels on average"))
            }
            _ => Ok(()),
        }
    }
}

/// Starts the script, if there is one, with these inputs.
pub(super) fn start<B: AsRef<[u8]>>(
    lab: &Lab<'_>,
    effort: &Effort,
    experiment: &str,
    inputs: impl Iterator<Item = B>,
) -> Result<Option<Peers>, LabError> {
    let Some(script) = &effort.peers else { return Ok(None) };
    let folder = lab.scratch.join("peers");
    fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
    let mut count = 0;
    for input in inputs {
        let path = folder.join(count.to_string());
        fs::write(&path, input).map_err(LabError::file(&path))?;
        count += 1;
    }
    let started = PeerProcess::start(script, experiment, folder).and_then(|mut process| Ok((process.line()?, process)));
    let (names, process) = started.map_err(|why| LabError::Setting(format!("{}: {why}", script.display())))?;
    let names = names.split_whitespace().map(str::to_owned).collect();
    Ok(Some(Peers { names, inputs: count, process: Rc::new(RefCell::new(process)) }))
}

/// A script's contestants.
pub(super) struct Peers {
    names: Vec<String>,
    inputs: usize,
    process: Rc<RefCell<PeerProcess>>,
}

impl Peers {
    /// Returns every contestant's name and itself in one case, compared with `reference`, our pixels of an input.
    pub(super) fn in_case(
        &self,
        case: &str,
        mut reference: impl FnMut(usize) -> Result<Option<Vec<u8>>, LabError>,
    ) -> Vec<(String, Attempt<PeerLibrary>)> {
        let mut compared = Vec::new();
        for mut peer in self.all(case) {
            let outcome = peer.compare(&mut reference);
            compared.push((peer.name.clone(), outcome.map(|()| peer)));
        }
        compared
    }

    /// Returns every contestant in one case.
    pub(super) fn all(&self, case: &str) -> impl Iterator<Item = PeerLibrary> {
        self.names.iter().map(|name| PeerLibrary {
            name: name.clone(),
            case: case.to_owned(),
            process: Rc::clone(&self.process),
            pixels: PixelDifference::default(),
            ms: vec![Vec::new(); self.inputs],
            rates: Vec::new(),
        })
    }

    /// Puts a file into the folder of the inputs.
    pub(super) fn put(&self, name: &str, content: &[u8]) -> Result<(), LabError> {
        let path = self.process.borrow().folder.join(name);
        fs::write(&path, content).map_err(LabError::file(&path))
    }
}

/// The running script.
struct PeerProcess {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl PeerProcess {
    fn start(script: &Path, experiment: &str, folder: PathBuf) -> Attempt<Self> {
        let mut command = Command::new(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
        command.arg(script).arg(experiment).arg(&folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start Python: {error}"))?;
        let requests = child.stdin.take().ok_or("it has no input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("it has no output")?);
        Ok(Self { child, requests, answers, folder })
    }

    fn ask(&mut self, request: &str) -> Attempt<String> {
        writeln!(self.requests, "{request}").map_err(|error| error.to_string())?;
        self.line()
    }

    fn line(&mut self) -> Attempt<String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err("it ended".to_owned()),
            Ok(_) => {
                line.trim().strip_prefix("n/a ").map_or(Ok(line.trim().to_owned()), |reason| Err(reason.to_owned()))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
