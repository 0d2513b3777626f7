//! Random edits, commands and kills, compared with a model that knows nothing of the program's code: a map from each
//! input to the version of it whose vector the output must have.
#![cfg(unix)]
mod files;
mod rules;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{panicking, sleep};
use std::time::{Duration, Instant};

use crate::common::bucket::Bucket;
use crate::common::kills::start;
use crate::common::{embed, foveate, run};
use fastrand::Rng;
use files::{Outcomes, TAR, write};
use foveate::backends;
use foveate::core::Backend;
use foveate::sink::{SinkError, StoredRun, StoredState};
use foveate_testkit::{Trial, by_length, trials};
use rules::{Act, Content, Version, Versions, contents, expected, merged};
use tempfile::TempDir;

pub(crate) fn trials() -> Vec<Trial> {
    #[allow(unused_mut, reason = "the store is in some builds")]
    let mut trials = trials![outputs_on_disk_hold_what_the_model_says];
    #[cfg(feature = "object-store")]
    trials.extend(trials![outputs_in_a_store_hold_what_the_model_says]);
    trials
}

/// A reader's view of an output.
#[derive(Debug, PartialEq)]
enum Found {
    Nothing,
    Complete(BTreeMap<String, Content>),
    /// A commit was interrupted, and the next command ends it.
    InPlace,
}

fn found_of(versions: Option<&Versions>) -> Found {
    versions.map_or(Found::Nothing, |versions| Found::Complete(contents(versions)))
}

/// In memory where that can be: commands flush what they commit, which takes a disk most of the time.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// A collection of photos, and an output that follows it.
struct Collection<'a> {
    root: TempDir,
    bucket: Option<&'a Bucket>,
    outcomes: &'a Outcomes,
    random: Rng,
    /// The inputs of the commands: a folder, and perhaps a tar.
    inputs: Vec<&'static str>,
    time: u64,
    files: Versions,
    /// Files that cannot be read for a time, as they were.
    away: Versions,
    /// The model's view of the output.
    output: Option<Versions>,
    name: String,
    sink: String,
    /// A command was killed, and work of it may be there.
    is_pending: bool,
    /// `--overwrite` was killed. The plain command continues it.
    is_replacing: bool,
    /// The output that the last killed command would have made. Another command may end its commit.
    unfinished: Option<Versions>,
    /// Files of runs that were killed before there was an output. An update first ends such a run as far as it came.
    begun: Vec<Versions>,
    is_merged: bool,
    /// Duration of the last command.
    whole: Duration,
    kills: u32,
    log: Vec<String>,
}

impl Drop for Collection<'_> {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("{}", self.log.join("\n"));
            for (what, versions) in [("file", Some(&self.files)), ("the model's", self.output.as_ref())] {
                versions.into_iter().flatten().for_each(|(id, version)| eprintln!("{what} {id}: {version:?}"));
            }
        }
    }
}

impl<'a> Collection<'a> {
    fn new(seed: u64, bucket: Option<&'a Bucket>, outcomes: &'a Outcomes) -> Self {
        let mut collection = Self {
            root: folder(),
            bucket,
            outcomes,
            random: Rng::with_seed(seed),
            inputs: vec!["photos"],
            time: 0,
            files: Versions::new(),
            away: Versions::new(),
            output: None,
            name: String::new(),
            sink: String::new(),
            is_pending: false,
            is_replacing: false,
            unfinished: None,
            begun: Vec::new(),
            is_merged: false,
            whole: Duration::from_millis(30),
            kills: 0,
            log: vec![format!("FOVEATE_MODEL_SEED={seed}")],
        };
        collection.choose_name();
        if collection.random.bool() {
            collection.inputs.push(TAR);
        }
        for input in &collection.inputs {
            collection.files.insert(format!("{input}/(anchor).bmp"), Version { content: Content::Image(0), time: 0 });
        }
        collection
    }

    fn choose_name(&mut self) {
        let number = self.log.len();
        let sinks = backends::sinks();
        let sinks: Vec<_> = sinks.iter().map(Backend::name).collect();
        // A store takes files that are written from their beginning to their end.
        let all = if self.bucket.is_some() { &["parquet", "npy"] } else { &sinks[..] };
        self.sink = (*self.random.choice(all).unwrap()).to_owned();
        self.name = match self.bucket {
            Some(_) => format!("s3://bucket/{}/{number}/", self.random.u32(..)),
            None if self.random.bool() => format!("outputs/{number}/x.{}", self.sink),
            None => format!("outputs/{number}/out"),
        };
        self.log.push(format!("output {} of {}", self.name, self.sink));
    }

    fn now(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    fn any_file(&mut self) -> String {
        let at = self.random.usize(..self.files.len());
        self.files.keys().nth(at).unwrap().clone()
    }

    fn edit(&mut self) {
        let folders = ["photos", "photos", "photos/d", "photos/d/e", TAR];
        let folder = folders[self.random.usize(..folders.len() - 2 + self.inputs.len())];
        let (new, id) = (format!("{folder}/{}.bmp", self.random.u8(..6)), self.any_file());
        let (time, was) = (self.now(), self.files[&id]);
        let is_fixed = id.ends_with("(anchor).bmp");
        let is_file = !id.starts_with(TAR);
        let content = Content::random(&mut self.random);
        let kind = self.random.u8(..10);
        match kind {
            0 | 1 => _ = self.files.insert(new.clone(), Version { content, time }),
            2 if !is_fixed => _ = self.files.insert(id.clone(), Version { content, time }),
            3 if !is_fixed => _ = self.files.remove(&id),
            4 if !is_fixed && is_file && !new.starts_with(TAR) => {
                self.files.remove(&id);
                self.files.insert(new.clone(), was);
            }
            5 if was.content != Content::Unreadable => {
                self.files.insert(new.clone(), Version { time, ..was });
            }
            6 if was.content != Content::Unreadable => _ = self.files.insert(id.clone(), Version { time, ..was }),
            // The time stays, and an interrupted command may have read either.
            7 if !is_fixed && is_file && !self.is_pending && was.content != Content::Unreadable => {
                self.files.insert(id.clone(), Version { content, ..was });
            }
            8 if self.begun.is_empty() && self.random.bool() => {
                for (id, version) in &mut self.files {
                    let is_away = id.starts_with(folder) && !id.starts_with(TAR) && !id.ends_with("(anchor).bmp");
                    if is_away && version.content != Content::Unreadable {
                        self.away.insert(id.clone(), *version);
                        version.content = Content::Unreadable;
                    }
                }
            }
            8 => self.files.retain(|id, _| !id.starts_with("photos/d/")),
            9 => {
                for (id, version) in std::mem::take(&mut self.away) {
                    self.files.entry(id).and_modify(|file| *file = version);
                }
            }
            _ => return,
        }
        self.log.push(format!("edit {kind}: {id} {new} {content:?} at {time}"));
    }

    /// Edits the files, and writes them.
    fn edits(&mut self, count: usize) {
        let before = self.files.clone();
        (0..count).for_each(|_| self.edit());
        let is_member = |(id, _): &(&String, &Version)| id.starts_with(TAR);
        let is_tar_new =
            !self.files.iter().filter(is_member).eq(before.iter().filter(is_member)) || self.output.is_none();
        let time = self.now();
        for (_, version) in self.files.iter_mut().filter(|(id, _)| is_tar_new && id.starts_with(TAR)) {
            version.time = time;
        }
        write(self.root.path(), &self.files, is_tar_new);
    }

    fn place(&self) -> PathBuf {
        if self.bucket.is_some() { PathBuf::from(&self.name) } else { self.root.path().join(&self.name) }
    }

    fn prepared(&self, mut command: Command) -> Command {
        command.current_dir(self.root.path());
        if let Some(bucket) = self.bucket {
            command.envs(bucket.server.environment());
        }
        command
    }

    fn embed(&self, output: &Path, more: &[&str]) -> Command {
        let mut command = embed(output);
        command.args(&self.inputs).args(["--batch", "4", "--part-items", "4", "--sink", &self.sink]).args(more);
        self.prepared(command)
    }

    /// A reader's view of the output's name.
    fn found(&self) -> Found {
        let mut place = self.place();
        if let Some(bucket) = self.bucket {
            place = self.root.path().join("downloaded");
            let _ = fs::remove_dir_all(&place);
            fs::create_dir(&place).unwrap();
            let prefix = self.name.trim_start_matches("s3://bucket/");
            for name in bucket.names(prefix).into_iter().filter(|name| !name.starts_with(".foveate/")) {
                fs::write(place.join(&name), bucket.ask("GET", &format!("/bucket/{prefix}{name}"), b"")).unwrap();
            }
        }
        match StoredRun::find(&place) {
            Err(SinkError::Updating(_)) => Found::InPlace,
            Err(error) => panic!("{error}"),
            Ok(runs) if runs.iter().any(|run| run.state == StoredState::Complete) => {
                Found::Complete(self.outcomes.read(&place))
            }
            Ok(_) => Found::Nothing,
        }
    }

    /// Kills the command at a random moment. The output must be the old or the new one.
    fn kill(&mut self, mut command: Command, new: Option<&Versions>) {
        let mut child = start(&mut command);
        sleep(self.whole.mul_f64(self.random.f64() * 1.2));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        self.log.push(format!("killed: {status}"));
        self.kills += u32::from(status.code().is_none());
        self.is_pending = true;
        let found = self.found();
        self.unfinished = new.cloned().or(self.unfinished.take());
        if self.unfinished.is_some() && found == Found::InPlace || new.is_some() && found == found_of(new) {
            self.output.clone_from(&self.unfinished);
        } else if found != found_of(self.output.as_ref()) {
            self.output = Some(self.begun_of(&found));
        }
        match self.output {
            Some(_) => self.begun.clear(),
            None => self.begun.push(self.files.clone()),
        }
    }

    /// The part of a run that was killed before there was an output.
    fn begun_of(&self, found: &Found) -> Versions {
        for begun in self.begun.iter().filter(|_| self.output.is_none()) {
            let mut part = begun.clone();
            part.retain(|id, _| matches!(found, Found::Complete(contents) if contents.contains_key(id)));
            if *found == found_of(Some(&part)) {
                return part;
            }
        }
        panic!("after a kill: {found:?}");
    }

    /// Runs the command to its end.
    fn finish(&mut self, mut command: Command, new: Option<&Versions>, may_be_refused: bool) {
        let started = Instant::now();
        let ran = run(&mut command);
        self.whole = started.elapsed();
        self.log.push(format!("exit {}: {}", ran.code, ran.stderr.lines().last().unwrap_or_default()));
        match new {
            Some(new) if !(may_be_refused && ran.code == 2) => {
                assert_eq!(ran.code, 0, "{}", ran.stderr);
                self.output = Some(new.clone());
                self.is_pending = false;
                self.is_replacing = false;
                self.unfinished = None;
                self.begun.clear();
            }
            _ => assert_eq!(ran.code, 2, "{}", ran.stderr),
        }
        assert_eq!(self.found(), found_of(self.output.as_ref()));
    }

    fn expected(&self, act: Act) -> Option<Versions> {
        match act {
            Act::Embed if self.is_replacing => Some(self.files.clone()),
            _ => expected(act, self.output.as_ref(), &self.files),
        }
    }

    fn act(&mut self, act: Act) {
        // What continues a killed `--overwrite` keeps what that has read of files that changed since. The next command
        // says so. Other members of a tar do not make another list of ids, so with one that is not rare.
        let has_tar = self.inputs.len() > 1;
        let act = if act == Act::Embed && self.is_replacing && has_tar { Act::Overwrite } else { act };
        let mut more = match act {
            Act::Embed => vec![],
            Act::Overwrite => vec!["--overwrite"],
            Act::Retry => vec!["--retry-failures"],
            Act::Update { .. } => vec!["--update"],
        };
        if let Act::Update { prunes, by_content, is_limited } = act {
            more.extend(prunes.then_some("--prune"));
            more.extend((prunes && !is_limited).then_some("--max-removed=100%"));
            more.extend(by_content.then_some("--by-content"));
        }
        self.log.push(format!("{act:?}"));
        for _ in 0..self.random.u8(..3) {
            let new = self.expected(act);
            self.kill(self.embed(&self.place(), &more), new.as_ref());
            self.is_replacing |= act == Act::Overwrite;
            if self.random.u8(..3) == 0 {
                return;
            }
        }
        let new = self.expected(act);
        let is_readable = self.files.values().all(|file| file.content != Content::Unreadable);
        let has_gone = self.output.as_ref().is_some_and(|output| output.len() > self.files.len());
        let may_be_refused = match act {
            Act::Embed => self.is_pending || self.is_merged || !is_readable || has_gone,
            Act::Retry => self.is_pending,
            _ => false,
        };
        self.finish(self.embed(&self.place(), &more), new.as_ref(), may_be_refused);
        self.is_merged &= act != Act::Overwrite;
    }

    /// Merges the output with a run of today's files, or makes it of the shards of such a run.
    fn merge(&mut self) {
        let other = self.root.path().join("other");
        let _ = fs::remove_dir_all(&other);
        if self.random.bool() {
            for shard in ["--shard=0/2", "--shard=1/2"] {
                // All inputs of a shard may have failed.
                let code = run(&mut self.embed(&other, &[shard])).code;
                assert!([0, 3].contains(&code), "{shard} ends with {code}");
            }
        } else {
            run(&mut self.embed(&other, &[])).expect(0);
        }
        let mut inputs = vec![other];
        let mut new = self.files.clone();
        if let Some(output) = &self.output {
            new = merged(output, &self.files);
            inputs.insert(0, self.place());
        }
        self.choose_name();
        self.output = None;
        let mut kills = self.random.u8(..3);
        loop {
            let mut command = foveate();
            command.arg("merge").args(&inputs).arg("-o").arg(self.place()).args([
                "--part-items=4",
                "--sink",
                &self.sink,
            ]);
            let command = self.prepared(command);
            if kills == 0 {
                self.finish(command, Some(&new), false);
                self.is_merged = true;
                return;
            }
            self.kill(command, Some(&new));
            kills -= 1;
        }
    }

    /// Packs today's files and embeds the shards.
    fn pack(&mut self) {
        self.log.push("pack".to_owned());
        let [shards, packed] = ["packed", "packed.npy"].map(|name| self.root.path().join(name));
        let mut kills = self.random.u8(..3);
        loop {
            let mut command = foveate();
            command.arg("pack").args(&self.inputs).args(["--shard-size", "3k", "--overwrite", "-o"]).arg(&shards);
            let mut command = self.prepared(command);
            if kills == 0 {
                run(&mut command).expect(0);
                break;
            }
            let mut child = start(&mut command);
            sleep(self.whole.mul_f64(self.random.f64()));
            child.kill().unwrap();
            child.wait().unwrap();
            kills -= 1;
        }
        let mut command = embed(&packed);
        command.arg("packed/*.tar").args(["--id-column", "id", "--overwrite"]);
        run(&mut self.prepared(command)).expect(0);
        let mut readable = self.files.clone();
        readable.retain(|_, file| file.content != Content::Unreadable);
        assert_eq!(self.outcomes.read(&packed), contents(&readable), "embedded from shards");
    }

    fn step(&mut self) {
        let count = self.random.usize(..5);
        self.edits(count);
        let [prunes, by_content, is_limited] = [(); 3].map(|()| self.random.u8(..3) == 0);
        // A first run that was interrupted has inputs of its own, whose rows an update keeps unless it prunes.
        let prunes = prunes || self.output.is_none();
        let is_limited = is_limited && self.output.is_some();
        match self.random.u8(..16) {
            0 if self.output.is_some() => self.act(Act::Retry),
            1 | 2 => self.act(Act::Embed),
            3 => self.act(Act::Overwrite),
            // A commit that was interrupted is ended by a command that writes there.
            4 if self.found() != Found::InPlace => self.merge(),
            5 => self.pack(),
            _ => self.act(Act::Update { prunes, by_content, is_limited }),
        }
    }

    /// Lives through some steps. In the end, the output has exactly today's files.
    fn live(&mut self) {
        self.edits(12);
        (0..12).for_each(|_| self.step());
        let last = Act::Update { prunes: true, by_content: true, is_limited: false };
        let new = expected(last, self.output.as_ref(), &self.files);
        let more = ["--update", "--prune", "--max-removed=100%", "--by-content"];
        self.finish(self.embed(&self.place(), &more), new.as_ref(), false);
        let mut inspect = foveate();
        inspect.args(["inspect", "--check"]).arg(self.place());
        run(&mut self.prepared(inspect)).expect(0);
    }
}

/// Lives through `FOVEATE_MODEL_SEQUENCES` sequences, or `usual`, from the number `FOVEATE_MODEL_SEED` on.
fn live(usual: u64, bucket: Option<&Bucket>) {
    let setting = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let first = setting("FOVEATE_MODEL_SEED").unwrap_or(0);
    let outcomes = Outcomes::new();
    let mut kills = 0;
    for seed in first..first + setting("FOVEATE_MODEL_SEQUENCES").unwrap_or(usual) {
        let mut collection = Collection::new(seed, bucket, &outcomes);
        collection.live();
        kills += collection.kills;
    }
    eprintln!("{kills} commands were killed");
}

fn outputs_on_disk_hold_what_the_model_says() {
    live(by_length(12, 200), None);
}

#[cfg(feature = "object-store")]
fn outputs_in_a_store_hold_what_the_model_says() {
    live(by_length(1, 40), Some(&Bucket::new()));
}
