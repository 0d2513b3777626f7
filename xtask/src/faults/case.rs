//! One attack on one scenario, and what must hold afterwards.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;

use anyhow::{Context, Result, bail, ensure};

use super::bench::{Calm, CaseFolder, EndedRun, FaultBench};
use super::disk::{Crash, Disk};
use super::inject::{self, CallFault, OpenFiles};
use super::random::named;
use super::scenario::{AttackedJob, PhotoLife};
use super::trace::CallKind;
use super::tree::FolderTree;

/// An attack on a scenario; its name reproduces it.
pub(super) struct AttackCase<'a> {
    pub(super) scenario: &'a AttackedJob,
    pub(super) calm: &'a Calm,
    pub(super) attack: CaseAttack,
    pub(super) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaseAttack {
    /// A fault at one call.
    Call { at: usize, fault: CallFault },
    /// A power loss after so many calls.
    Power { after: usize, crash: Crash },
    /// Another process does the same job while this one waits before a call.
    Meet { at: usize },
    /// Two processes start at nearly the same time.
    Race { round: u64 },
    /// Several faults, each in the run that continues the last.
    Chain { round: u64 },
    /// A file of an interrupted or complete output is cut short, or a bit of a segment is flipped.
    Damage { round: u64 },
    /// A file system that treats open files differently.
    OpenFiles(OpenFiles),
}

impl CaseAttack {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Call { .. } => "call",
            Self::Power { .. } => "power",
            Self::Meet { .. } => "meet",
            Self::Race { .. } => "race",
            Self::Chain { .. } => "chain",
            Self::Damage { .. } => "damage",
            Self::OpenFiles(_) => "open-files",
        }
    }
}

impl fmt::Display for AttackCase<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.scenario.name, self.attack.kind())?;
        match &self.attack {
            CaseAttack::Call { at, fault } => write!(f, "{at}/{fault}"),
            CaseAttack::Power { after, crash } => write!(f, "{after}/{crash}"),
            CaseAttack::Meet { at } => write!(f, "{at}"),
            CaseAttack::Race { round } | CaseAttack::Chain { round } | CaseAttack::Damage { round } => {
                write!(f, "{round}")
            }
            CaseAttack::OpenFiles(how) => write!(f, "{how}"),
        }
    }
}

/// Latitude of the rerun after an attack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rerun {
    Completes,
    /// It may also refuse, if it says that `--overwrite` starts anew, or that nobody knows whose files those are.
    MayRefuse,
}

impl AttackCase<'_> {
    /// Runs the attack. The error says what does not hold.
    pub(super) fn run(&self, bench: &FaultBench, keep: bool) -> Result<()> {
        let place = CaseFolder::new(&bench.scratch, &self.to_string(), &self.calm.before)?;
        if let Some(life) = self.scenario.life() {
            bench.lay_out(&place, &life.photos[1])?;
        }
        let result = self.attack(bench, &place);
        if result.is_ok() || !keep {
            place.clear()?;
        }
        result
    }

    fn attack(&self, bench: &FaultBench, place: &CaseFolder) -> Result<()> {
        match self.attack {
            CaseAttack::Call { at, fault } => self.disturb(bench, place, at, fault)?,
            CaseAttack::Power { after, crash } => {
                self.lose_power(place, after, crash)?;
                return self.rerun(bench, place, Rerun::MayRefuse);
            }
            CaseAttack::Meet { at } => self.meet(bench, place, at)?,
            CaseAttack::Race { .. } => self.race(bench, place)?,
            CaseAttack::Chain { .. } => self.chain(bench, place)?,
            CaseAttack::Damage { .. } => {
                let what = self.damage(bench, place)?;
                return self.rerun(bench, place, Rerun::MayRefuse).context(what);
            }
            CaseAttack::OpenFiles(how) => self.treat_open_files(bench, place, how)?,
        }
        self.rerun(bench, place, Rerun::Completes)
    }

    /// One run with a fault.
    fn disturb(&self, bench: &FaultBench, place: &CaseFolder, at: usize, fault: CallFault) -> Result<()> {
        let mut job = bench.main_job(place, self.scenario);
        inject::hit(&mut job, at, fault);
        let ran = bench.run(place, &mut job)?;
        let tree = self.check_end(&ran, place, fault, &self.calm.before)?;
        let is_clean_up =
            self.calm.calls.get(at - 1).is_some_and(|call| matches!(call.kind, CallKind::Unlink | CallKind::Rmdir));
        if is_clean_up && fault != CallFault::Kill && self.is_done(&tree) {
            let ends_well = self.scenario.refusal().map_or(ran.code == Some(0), |words| ran.is_refusal(words));
            ensure!(ends_well, "only the clean-up failed, and the run ends in {ran}");
        }
        Ok(())
    }

    /// Checks the invariants of every run: a code and a message that fit, and nothing half-made under the final name.
    /// `found` is the run's beginning. Returns its end.
    fn check_end(
        &self,
        ran: &EndedRun,
        place: &CaseFolder,
        fault: CallFault,
        found: &FolderTree,
    ) -> Result<FolderTree> {
        let tree = place.tree()?;
        let outputs = place.outputs.to_string_lossy();
        let mut errors = ran.stderr.lines().filter(|line| line.starts_with("error: ") && line.contains(&*outputs));
        let says_why = errors.clone().next().is_some();
        match ran.code {
            None if fault == CallFault::Kill => {}
            Some(0) => self.check_done(&tree)?,
            Some(2) if self.scenario.refusal().is_some_and(|words| ran.is_refusal(words)) => self.check_done(&tree)?,
            Some(1) => {
                ensure!(says_why, "no message that names a file: {ran}");
                ensure!(errors.all(|line| line.contains("; ")), "a message without a remedy: {ran}");
                let says_space = ran.stderr.contains("no space left to write") && ran.stderr.contains("make room");
                ensure!(says_space || !fault.fills_disk(), "no message that the disk is full: {ran}");
            }
            // The same code as for a command line that cannot work.
            Some(2) if tree == *found => ensure!(says_why, "no message that names a file: {ran}"),
            _ => bail!("the run ends in {ran}"),
        }
        self.check_whole(&tree)?;
        Ok(tree)
    }

    /// Under the final name is nothing, the old output or the new one.
    fn check_whole(&self, tree: &FolderTree) -> Result<()> {
        if self.scenario.continues() {
            return self.check_updated(tree);
        }
        // The output is put in place: readers refuse it until the next command has ended that.
        if tree.iter().any(|(path, _)| path.ends_with("commit")) {
            return Ok(());
        }
        let is_whole = self.is_done(tree) || tree.finished() == self.calm.before.finished();
        ensure!(
            tree.get(Path::new(&self.scenario.main)).is_none() || is_whole,
            "{} stands there, but {}",
            self.scenario.main,
            self.calm.after.difference(&tree.finished()).unwrap_or_default()
        );
        Ok(())
    }

    /// The main file is the old one or the new one, and every part that belongs to it is there.
    fn check_updated(&self, tree: &FolderTree) -> Result<()> {
        let main = Path::new(&self.scenario.main);
        let Some(found) = tree.get(main) else { return Ok(()) };
        let mut known = [&self.calm.before, &self.calm.after].into_iter();
        let Some(whole) = known.find(|tree| tree.get(main) == Some(found)) else {
            bail!("{} is neither the old one nor the new one", main.display());
        };
        for (path, part) in whole.finished().iter() {
            let is_part = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("part-"));
            let is_there = tree.get(path) == Some(part);
            ensure!(!is_part || is_there, "{} is not that of {}", path.display(), main.display());
        }
        Ok(())
    }

    fn is_done(&self, tree: &FolderTree) -> bool {
        tree.finished() == self.calm.after
    }

    fn check_done(&self, tree: &FolderTree) -> Result<()> {
        self.calm.after.expect(&tree.finished(), "success, but")
    }

    /// Gives the command again, undisturbed. Its result must be that of a run that was never disturbed.
    fn rerun(&self, bench: &FaultBench, place: &CaseFolder, rerun: Rerun) -> Result<()> {
        if let Some(life) = self.scenario.life() {
            return self.live_on(bench, place, life, rerun);
        }
        let may_refuse = self.scenario.replaces() || rerun == Rerun::MayRefuse;
        // A user may well forget --overwrite.
        let mut job = bench.plain_job(place, self.scenario);
        let ran = bench.run(place, &mut job)?;
        if ran.code != Some(0) {
            if rerun == Rerun::MayRefuse && ran.stderr.contains("another ") {
                return Ok(()); // files that no record names any more may be anyone's
            }
            ensure!(may_refuse && ran.stderr.contains("--overwrite"), "the same command again ends in {ran}");
            if self.scenario.continues() {
                return Ok(()); // to start anew is another command
            }
            let ran = bench.run(place, job.arg("--overwrite"))?;
            ensure!(ran.code == Some(0), "--overwrite ends in {ran}");
        }
        self.calm.after.expect(&place.tree()?, "the same command again succeeds, but")
    }

    /// Edits the photos, runs the job in between, and gives the command again. The output must have the outcomes of a
    /// fresh run in any order, and other outputs must be as they were.
    fn live_on(&self, bench: &FaultBench, place: &CaseFolder, life: &PhotoLife, rerun: Rerun) -> Result<()> {
        bench.lay_out(place, &life.photos[2])?;
        if let Some(mut between) = bench.job_between(place, self.scenario) {
            bench.run(place, &mut between)?.expect_success().context("the job in between")?;
        }
        let ran = bench.run(place, &mut bench.plain_job(place, self.scenario))?;
        if rerun == Rerun::MayRefuse && ran.code != Some(0) && ran.stderr.contains("--overwrite") {
            return Ok(());
        }
        match &life.refusal {
            Some(words) => ensure!(ran.is_refusal(words), "instead of a refusal, the same command again ends in {ran}"),
            None => ensure!(ran.code == Some(0), "the same command again ends in {ran}"),
        }
        let tree = place.tree()?;
        self.calm.outcomes.expect(&tree.outcomes(&self.scenario.output)?, "after the same command again,")?;
        for (path, entry) in self.calm.before.iter() {
            let is_own = path.to_string_lossy().contains(&self.scenario.output);
            ensure!(is_own || tree.get(path) == Some(entry), "{} changed", path.display());
        }
        bench.inspect(place, self.scenario)?.expect_success().context("inspect --check")
    }

    /// Leaves what a power loss may leave.
    fn lose_power(&self, place: &CaseFolder, after: usize, crash: Crash) -> Result<()> {
        let mut disk = Disk::new(&self.calm.before);
        self.calm.calls[..after].iter().try_for_each(|call| disk.replay(call))?;
        let left = disk.after(crash);
        if after == self.calm.calls.len() {
            self.check_done(&left).context("the power fails after the end")?;
        }
        self.check_whole(&left)?;
        place.refill(&left)
    }

    /// One of the two does the job; the other does it too, or says who is in its way.
    fn check_both(&self, first: &EndedRun, second: &EndedRun, tree: &FolderTree) -> Result<()> {
        for ran in [first, second] {
            let is_refused = ran.code == Some(1) && ran.stderr.contains("another process");
            ensure!(ran.code == Some(0) || is_refused, "one of two ends in {ran}");
        }
        ensure!([first, second].iter().any(|ran| ran.code == Some(0)), "neither does the job: {first}; {second}");
        self.check_done(tree)
    }

    fn meet(&self, bench: &FaultBench, place: &CaseFolder, at: usize) -> Result<()> {
        let second = place.join("second");
        let between = bench.job_between(place, self.scenario);
        let is_other = between.is_some();
        let other = shell(&between.unwrap_or_else(|| bench.main_job(place, self.scenario)), &second);
        let mut job = bench.main_job(place, self.scenario);
        inject::interpose(&mut job, at, &other);
        let ran = bench.run(place, &mut job)?;
        let stderr = fs::read_to_string(&second).context("the second process did not start")?;
        let code = fs::read_to_string(second.with_extension("code"))?.trim().parse().ok();
        let other = EndedRun { code, stderr };
        if is_other && other.code == Some(0) {
            // It came before the update, before the update's commit, or after it.
            let is_refused =
                self.scenario.life().and_then(|life| life.refusal.as_ref()).is_some_and(|words| ran.is_refusal(words));
            let is_done = is_refused || ran.code == Some(0) || ran.stderr.contains("another command replaced ");
            ensure!(is_done, "the update of a replaced output ends in {ran}");
            let outcomes = place.tree()?.outcomes(&self.scenario.output)?;
            return self.calm.outcomes.expect(&outcomes, "the update of a replaced output succeeds, but");
        }
        self.check_both(&ran, &other, &place.tree()?)
    }

    fn race(&self, bench: &FaultBench, place: &CaseFolder) -> Result<()> {
        let mut random = named(self.seed, &self.to_string());
        let first = place.start(&mut bench.main_job(place, self.scenario), "first")?;
        sleep(self.calm.took.mul_f64(random.u64(..1000) as f64 / 800.0));
        let second = place.start(&mut bench.main_job(place, self.scenario), "second")?;
        let first = place.end(first, "first")?;
        let second = place.end(second, "second")?;
        self.check_both(&first, &second, &place.tree()?)
    }

    /// Faults in one run after the other, before the same command may end.
    fn chain(&self, bench: &FaultBench, place: &CaseFolder) -> Result<()> {
        let mut random = named(self.seed, &self.to_string());
        // After a map that failed, LMDB records a smaller one: other bytes, but the same rows.
        let numbers = 1..=self.calm.calls.len();
        let calls: Vec<usize> = numbers.filter(|at| self.calm.calls[at - 1].kind != CallKind::Map).collect();
        let mut found = self.calm.before.clone();
        for _ in 0..2 + random.u64(..4) {
            let at = calls[random.u64(..calls.len() as u64) as usize];
            let faults = CallFault::of(&self.calm.calls[at - 1]);
            let fault = faults[random.u64(..faults.len() as u64) as usize];
            let mut job = bench.main_job(place, self.scenario);
            inject::hit(&mut job, at, fault);
            let ran = bench.run(place, &mut job)?;
            let checked = self.check_end(&ran, place, fault, &found);
            found = checked.with_context(|| format!("after {at}/{fault}"))?;
        }
        Ok(())
    }

    /// Damages one of the files that the job wrote before it was killed, or ended. Returns what it did.
    fn damage(&self, bench: &FaultBench, place: &CaseFolder) -> Result<String> {
        let mut random = named(self.seed, &self.to_string());
        let mut job = bench.main_job(place, self.scenario);
        // One past the last call lets the job end.
        let at = 1 + random.u64(..self.calm.calls.len() as u64 + 1) as usize;
        inject::hit(&mut job, at, CallFault::Kill);
        bench.run(place, &mut job)?;
        let tree = place.tree()?;
        let own = tree.iter().filter(|(path, entry)| self.calm.before.get(path) != Some(entry));
        let files: Vec<(&PathBuf, &Vec<u8>)> = own.filter_map(|(path, entry)| Some((path, entry.data()?))).collect();
        if files.is_empty() {
            return Ok(format!("killed at call {at}"));
        }
        let (name, data) = files[random.u64(..files.len() as u64) as usize];
        let path = place.outputs.join(name);
        let what = match damaged(&path, data, &mut random) {
            Some(left) if left.len() == data.len() => fs::write(path, left).map(|()| "with another bit".to_owned())?,
            Some(left) => fs::write(path, &left).map(|()| format!("cut to {} bytes", left.len()))?,
            None => fs::remove_file(path).map(|()| "removed".to_owned())?,
        };
        Ok(format!("killed at call {at}, {} {what}", name.display()))
    }

    fn treat_open_files(&self, bench: &FaultBench, place: &CaseFolder, how: OpenFiles) -> Result<()> {
        let mut job = bench.main_job(place, self.scenario);
        inject::treat_open_files(&mut job, how);
        bench.run(place, &mut job)?.expect_success()?;
        let tree = place.tree()?;
        match how {
            // Another process may have to find the lock until the end.
            OpenFiles::Refuse => self.check_done(&tree),
            OpenFiles::Hide => self.calm.after.expect(&tree, "it removes files before it closes them:"),
        }
    }
}

/// Damages a file: all but a bit, its beginning, or nothing is left.
fn damaged(path: &Path, data: &[u8], random: &mut fastrand::Rng) -> Option<Vec<u8>> {
    let mut data = data.to_owned();
    let at = random.u64(..data.len() as u64) as usize;
    // Only segments have checksums that are always compared.
    let is_segment = path.extension().is_some_and(|extension| extension == "seg");
    match random.u64(..3) {
        0 => return None,
        1 if is_segment => data[at] ^= 1 << random.u64(..8),
        _ => data.truncate(at),
    }
    Some(data)
}

/// A shell's command line for `job`, which leaves standard error in `log` and its exit code beside it.
fn shell(job: &Command, log: &Path) -> String {
    let words = std::iter::once(job.get_program()).chain(job.get_args());
    let words: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))).collect();
    let log = log.display();
    format!("{} >/dev/null 2>'{log}'; echo $? >'{log}.code'", words.join(" "))
}
