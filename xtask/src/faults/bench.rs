//! Runs the program in folders of its own, disturbed or not.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::inject::{self, CallFault, Injector};
use super::scenario::{AttackedJob, Before, PhotoLife};
use super::trace::{self, FileCall};
use super::tree::FolderTree;
use crate::cargo::empty_folder;

/// Photos that cost little. The fourth input is no image, so that every job has a failure to record.
const PHOTOS: [&str; 7] = [
    "28_1x1.jpg",
    "20_tiny_20x30.jpg",
    "15_clock_gray.jpg",
    "24_exact_224.jpg",
    "22_tall_50x2000.jpg",
    "23_thumb_256.jpg",
    "12_brick_gray_odd.jpg",
];
/// Photos beside them for updates, whose inputs differ.
const MORE: [&str; 4] = ["21_wide_2000x50.jpg", "08_rocket_portrait.jpg", "25_257x255.jpg", "05_chelsea_420_odd.jpg"];
/// Inputs of a job: the photos in turn, so that some come twice.
const INPUTS: usize = 10;
/// A job of milliseconds that takes longer hangs, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program, the injector and the inputs.
pub(super) struct FaultBench {
    pub(super) program: PathBuf,
    pub(super) injector: Injector,
    model: PathBuf,
    list: PathBuf,
    /// The inputs of an output that is updated, and those of the update: one photo is gone, two are new.
    updated: [PathBuf; 2],
    /// The photos of a life, by number.
    each: Vec<PathBuf>,
    /// Holds every job's folder.
    pub(super) scratch: PathBuf,
}

/// A folder of one case, with the outputs' folder in it.
pub(super) struct CaseFolder {
    root: PathBuf,
    pub(super) outputs: PathBuf,
}

/// The end of a run.
#[derive(Debug)]
pub(super) struct EndedRun {
    /// The exit code; `None` if a signal ended the process.
    pub(super) code: Option<i32>,
    pub(super) stderr: String,
}

/// A scenario without a fault.
pub(super) struct Calm {
    pub(super) before: FolderTree,
    pub(super) after: FolderTree,
    pub(super) calls: Vec<FileCall>,
    pub(super) took: Duration,
    /// The final content of a life's output.
    pub(super) outcomes: FolderTree,
}

impl FaultBench {
    pub(super) fn new(root: &Path, program: PathBuf, scratch: PathBuf) -> Result<Self> {
        let fixtures = root.join("tests/fixtures");
        let no_image = scratch.join("no-image.jpg");
        fs::write(&no_image, "not a photo")?;
        let mut inputs: Vec<PathBuf> =
            PHOTOS.iter().cycle().take(INPUTS - 1).map(|name| fixtures.join("goldens/photos").join(name)).collect();
        inputs.insert(3, no_image);
        let list = scratch.join("list.txt");
        let lines: Vec<String> = inputs.iter().map(|path| path.display().to_string()).collect();
        fs::write(&list, lines.join("\n"))?;
        let cut = scratch.join("cut.jpg");
        let whole = fs::read(&inputs[2])?;
        fs::write(&cut, &whole[..whole.len() / 2])?;
        let photos = PHOTOS.iter().chain(&MORE).map(|name| fixtures.join("goldens/photos").join(name));
        let mut each: Vec<PathBuf> = photos.collect();
        each.insert(5, cut);
        let updated = ["before.txt", "after.txt"].map(|name| scratch.join(name));
        for (list, skipped) in updated.iter().zip([10..12, 6..7]) {
            let lines = each.iter().enumerate().filter(|(number, _)| !skipped.contains(number));
            let lines: Vec<String> = lines.map(|(_, path)| path.display().to_string()).collect();
            fs::write(list, lines.join("\n"))?;
        }
        let injector = Injector::build(root, &scratch)?;
        Ok(Self { program, injector, model: fixtures.join("models/tiny"), list, updated, each, scratch })
    }

    /// A job on one thread, so that its calls come in the same order every time, with many parts and commits.
    fn job(&self, place: &CaseFolder, name: &str, list: Option<&Path>, output: &str, args: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        command.args([name, "-q", "--workers", "0"]);
        if name == "embed" {
            command.args(["--threads", "1", "--part-items", "4", "--batch", "2", "--commit-every", "0"]);
            command.arg("--model").arg(&self.model);
        }
        match list {
            Some(list) => command.arg("--from-list").arg(list),
            None => command.current_dir(&place.root).arg("photos"),
        };
        command.arg("-o").arg(place.outputs.join(output)).args(args);
        self.injector.watch(&mut command, &place.outputs);
        command
    }

    /// The scenario's own job.
    pub(super) fn main_job(&self, place: &CaseFolder, scenario: &AttackedJob) -> Command {
        let mut command = self.plain_job(place, scenario);
        if scenario.replaces() {
            command.arg("--overwrite");
        }
        command
    }

    /// The same without `--overwrite`.
    pub(super) fn plain_job(&self, place: &CaseFolder, scenario: &AttackedJob) -> Command {
        if let Before::Merged(input, _) = &scenario.before {
            let mut command = Command::new(&self.program);
            command.arg("merge").arg(place.outputs.join(input)).arg("-o").arg(place.outputs.join(&scenario.output));
            command.args(&scenario.args);
            self.injector.watch(&mut command, &place.outputs);
            return command;
        }
        self.job(place, &scenario.command, self.list(scenario, 1), &scenario.output, &scenario.args)
    }

    /// The list of inputs; `None` for the place's photos.
    fn list(&self, scenario: &AttackedJob, number: usize) -> Option<&Path> {
        if scenario.life().is_some() {
            return None;
        }
        let retries = scenario.args.iter().any(|arg| arg == "--retry-failures");
        Some(if scenario.continues() { &self.updated[if retries { 0 } else { number }] } else { &self.list })
    }

    /// Replaces the photos of a life.
    pub(super) fn lay_out(&self, place: &CaseFolder, photos: &str) -> Result<()> {
        let folder = place.join("photos");
        empty_folder(&folder)?;
        for photo in photos.as_bytes().chunks(2) {
            let [name, number] = [photo[0], photo[1]].map(char::from);
            let subfolder = if name.is_uppercase() { folder.join("disk") } else { folder.clone() };
            let target = number.to_digit(10).map_or(Path::new("absent"), |number| &self.each[number as usize]);
            fs::create_dir_all(&subfolder)?;
            symlink(target, subfolder.join(format!("{name}.jpg")))?;
        }
        Ok(())
    }

    /// The job that runs between a life's attack and the same command again.
    pub(super) fn job_between(&self, place: &CaseFolder, scenario: &AttackedJob) -> Option<Command> {
        let args = scenario.life()?.between.as_ref()?;
        Some(self.job(place, &scenario.command, None, &scenario.output, args))
    }

    /// Checks an output as `inspect --check` does.
    pub(super) fn inspect(&self, place: &CaseFolder, scenario: &AttackedJob) -> Result<EndedRun> {
        let mut command = Command::new(&self.program);
        self.run(place, command.args(["inspect", "--check"]).arg(place.outputs.join(&scenario.output)))
    }

    /// The outcomes of a fresh run of a life's last photos. Checks that `inspect` sees damage to the output itself.
    fn last_outcomes(&self, scenario: &AttackedJob) -> Result<FolderTree> {
        let Some(life) = scenario.life() else { return Ok(FolderTree::default()) };
        let place = CaseFolder::new(&self.scratch, &format!("{}-fresh", scenario.name), &FolderTree::default())?;
        let (photos, args) = &life.rows_of;
        self.lay_out(&place, photos)?;
        self.run(&place, &mut self.job(&place, &scenario.command, None, &scenario.output, args))?.expect_success()?;
        let outcomes = place.tree()?.outcomes(&scenario.output)?;
        self.inspect(&place, scenario)?.expect_success()?;
        let main = place.outputs.join(&scenario.main);
        let mut damaged = fs::read(&main)?;
        *damaged.last_mut().context("an empty output")? ^= 1;
        fs::write(&main, damaged)?;
        ensure!(self.inspect(&place, scenario)?.code == Some(1), "a damaged output passes for a whole one");
        Ok(outcomes)
    }

    /// Runs a scenario without a fault, and checks that what was there before makes no difference.
    pub(super) fn calm(&self, scenario: &AttackedJob) -> Result<Calm> {
        let before = self.before(scenario)?;
        let start = Instant::now();
        let nothing = FolderTree::default();
        let (fresh, calls) = self.whole_run(scenario, if scenario.continues() { &before } else { &nothing })?;
        let took = start.elapsed();
        if scenario.continues() {
            return Ok(Calm { before, after: fresh, calls, took, outcomes: self.last_outcomes(scenario)? });
        }
        let mut expected = fresh;
        if matches!(scenario.before, Before::Kept(..)) {
            let shared = before.common_files(&expected);
            ensure!(shared.is_empty(), "both outputs write {}", shared.join(", "));
            expected = before.and(&expected);
        }
        let (after, calls) = self.whole_run(scenario, &before)?;
        expected.expect(&after, "an undisturbed run leaves something else:")?;
        Ok(Calm { before, after, calls, took, outcomes: nothing })
    }

    /// Remains of earlier jobs.
    fn before(&self, scenario: &AttackedJob) -> Result<FolderTree> {
        let (output, args) = match &scenario.before {
            Before::Lived(PhotoLife { copied_from, .. }) => {
                (copied_from.as_ref().unwrap_or(&scenario.output), &Vec::new())
            }
            Before::Nothing => return Ok(FolderTree::default()),
            Before::Replaced(output, args)
            | Before::Kept(output, args)
            | Before::Updated(output, args)
            | Before::Merged(output, args)
            | Before::Killed(output, args) => (output, args),
        };
        let place = CaseFolder::new(&self.scratch, &format!("{}-before", scenario.name), &FolderTree::default())?;
        let trace = place.root.join("trace");
        if let Some(life) = scenario.life() {
            self.lay_out(&place, &life.photos[0])?;
        }
        let mut job = self.job(&place, &scenario.command, self.list(scenario, 0), output, args);
        inject::record(&mut job, &trace);
        self.run(&place, &mut job)?.expect_success()?;
        if matches!(scenario.before, Before::Killed(..)) {
            let half = trace::read(&trace, &place.outputs)?.len() / 2;
            place.refill(&FolderTree::default())?;
            let mut job = self.job(&place, &scenario.command, self.list(scenario, 0), output, args);
            inject::hit(&mut job, half, CallFault::Kill);
            ensure!(self.run(&place, &mut job)?.code.is_none(), "the earlier job was to be killed");
        }
        match scenario.life().is_some() && *output != scenario.output {
            true => Ok(place.tree()?.with_copy(output, &scenario.output)),
            false => place.tree(),
        }
    }

    fn whole_run(&self, scenario: &AttackedJob, before: &FolderTree) -> Result<(FolderTree, Vec<FileCall>)> {
        let place = CaseFolder::new(&self.scratch, &format!("{}-calm", scenario.name), before)?;
        let trace = place.root.join("trace");
        let mut job = self.main_job(&place, scenario);
        inject::record(&mut job, &trace);
        if let Some(life) = scenario.life() {
            self.lay_out(&place, &life.photos[1])?;
        }
        let ran = self.run(&place, &mut job)?;
        match scenario.refusal() {
            Some(words) => ensure!(ran.is_refusal(words), "a run that has to refuse ends in {ran}"),
            None => ran.expect_success()?,
        }
        Ok((place.tree()?, trace::read(&trace, &place.outputs)?))
    }

    pub(super) fn run(&self, place: &CaseFolder, job: &mut Command) -> Result<EndedRun> {
        place.end(place.start(job, "first")?, "first")
    }
}

impl CaseFolder {
    /// Makes a folder with `tree` in the outputs' folder.
    pub(super) fn new(scratch: &Path, name: &str, tree: &FolderTree) -> Result<Self> {
        let root = scratch.join(name.replace('/', "+"));
        let place = Self { outputs: root.join("o"), root };
        place.refill(tree)?;
        Ok(place)
    }

    /// Replaces everything in the outputs' folder.
    pub(super) fn refill(&self, tree: &FolderTree) -> Result<()> {
        empty_folder(&self.outputs)?;
        tree.write(&self.outputs)
    }

    pub(super) fn tree(&self) -> Result<FolderTree> {
        FolderTree::read(&self.outputs)
    }

    /// The path of a file beside the outputs' folder.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Removes the folder.
    pub(super) fn clear(self) -> Result<()> {
        fs::remove_dir_all(&self.root).with_context(|| format!("cannot remove {}", self.root.display()))
    }

    /// Starts a job; `name` is that of its log.
    pub(super) fn start(&self, job: &mut Command, name: &str) -> Result<Child> {
        let log = File::create(self.join(name))?;
        job.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        job.spawn().with_context(|| format!("cannot start {}", job.get_program().display()))
    }

    /// Waits until a job ends.
    pub(super) fn end(&self, mut child: Child, name: &str) -> Result<EndedRun> {
        let start = Instant::now();
        let status: ExitStatus = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if start.elapsed() > PATIENCE => {
                    child.kill()?;
                    bail!("the run hangs");
                }
                None => sleep(Duration::from_millis(1)),
            }
        };
        Ok(EndedRun { code: status.code(), stderr: String::from_utf8_lossy(&fs::read(self.join(name))?).into_owned() })
    }
}

impl EndedRun {
    /// Returns true if the run refused its command line with these words.
    pub(super) fn is_refusal(&self, words: &str) -> bool {
        self.code == Some(2) && self.stderr.contains(words)
    }

    pub(super) fn expect_success(&self) -> Result<()> {
        ensure!(self.code == Some(0), "a run that nothing disturbs ends in {self}");
        Ok(())
    }
}

impl std::fmt::Display for EndedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.code {
            Some(code) => write!(f, "exit {code}: {}", self.stderr.trim()),
            None => write!(f, "a signal: {}", self.stderr.trim()),
        }
    }
}
