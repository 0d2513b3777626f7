//! The parts that the measuring commands share: the rig, the photos, and the output of tables.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use foveate::core::lock;
use foveate::embed::{Backends, Settings};
use foveate::lab::bench::Sets;
use foveate::lab::{Conditions, Lab, Observer, PhotoSet, Setting, StandIn, StandInRig, Table, Watch, fit};
use foveate::model::OpenOptions;
use foveate::pipeline::Cancel;
use foveate::rig::Rig;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use super::lab_args::{LabArgs, LabDisplay, SampleArgs, StageArgs};
use super::{checkout, console, job, memory, progress};

/// Everything that an experiment of the command line needs.
pub(crate) struct Bench {
    pub(crate) rig: Box<dyn foveate::lab::Rig>,
    /// The last columns of every row.
    context: foveate::lab::Context,
    pub(crate) sets: Sets,
    pub(crate) sink: String,
    out: PathBuf,
    scratch: tempfile::TempDir,
    cancel: Cancel,
    watch: Observer<Announce>,
    seed: u64,
    /// The tables so far, as JSON by name, if that is printed in place of text.
    json: Option<Mutex<Map<String, Value>>>,
    /// True once the user was told that the machine was disturbed.
    warned: Cell<bool>,
    /// True once the user was told why there are no figures of a card.
    told_of_cards: Cell<bool>,
}

/// The photo sizes that an experiment uses.
#[derive(Clone, Copy)]
pub(crate) enum Sizes {
    /// The given photos only.
    AsGiven,
    /// The given photos and small copies of them, unless the arguments exclude the copies.
    AsGivenAndSmall,
    /// As many of the given photos, of which those that do not decode are left out.
    Sample(u64),
}

impl Bench {
    /// Lists the inputs, opens the model, loads the photos.
    pub(crate) fn open(args: &LabArgs, sizes: Sizes) -> anyhow::Result<Self> {
        let stand_in = args.stand_in.as_ref();
        let mut bench = Self::on(args.settings(), stand_in, &args.sample, &args.display, sizes)?;
        if let Some(sink) = &args.sink {
            bench.sink.clone_from(sink);
        }
        Ok(bench)
    }

    /// Does the same for a stage alone.
    pub(crate) fn of_stage(args: &StageArgs) -> anyhow::Result<Self> {
        Self::on(args.settings(), None, &args.sample, &args.display, Sizes::AsGivenAndSmall)
    }

    fn on(
        options: Settings,
        stand_in: Option<&StandIn>,
        args: &SampleArgs,
        display: &LabDisplay,
        sizes: Sizes,
    ) -> anyhow::Result<Self> {
        let listing = job::list_again(&options)?;
        let download = progress::Download::new(display.quiet);
        let model = OpenOptions { progress: &download, ..OpenOptions::from_env() };
        // Draws twice the number, because some photos may not decode. Those that are left over would make the rest no
        // random sample.
        let (most, drawn) = match sizes {
            Sizes::Sample(photos) => (photos, photos),
            _ => (args.n, args.n.saturating_mul(2)),
        };
        let rig = Rig::new(options, Box::new(listing), (drawn, args.seed), Arc::new(Backends::compiled()), &model)?;
        let rig = rig.measuring_memory(Box::new(memory::in_a_process));
        download.clear();

        let rig: Box<dyn foveate::lab::Rig> = match stand_in {
            Some(stand_in) => Box::new(StandInRig::new(Box::new(rig), stand_in.clone())?),
            None => Box::new(rig),
        };
        let mut bench = Self::with(rig, display, args.seed)?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        bench.sets = match sizes {
            Sizes::AsGivenAndSmall if !args.as_given => Sets::load(&bench.lab(), most)?,
            _ => Sets::as_given(&bench.lab(), most)?,
        };
        note_left_out(bench.photos()?);
        Ok(bench)
    }

    /// Creates a bench without photos, for experiments that need none.
    pub(crate) fn without_photos(display: &LabDisplay, seed: u64) -> anyhow::Result<Self> {
        let options = Settings::new(Vec::new(), "seeded:dinov2-small", "");
        let listing = options.list(|_| ())?;
        let backends = Arc::new(Backends::compiled());
        let rig = Rig::new(options, Box::new(listing), (0, seed), backends, &OpenOptions::from_env())?;
        Self::with(Box::new(rig), display, seed)
    }

    fn with(rig: Box<dyn foveate::lab::Rig>, display: &LabDisplay, seed: u64) -> anyhow::Result<Self> {
        let cancel = Cancel::default();
        job::cancel_on_signal(&cancel)?;
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let sink = rig.sinks().first().map(|sink| sink.name.clone()).context("this build has no sink at all")?;
        let watch = Observer::new(Announce::new(display.quiet));
        let sets = Sets { usable: Vec::new(), missing: Vec::new() };
        let json = display.json.then(Mutex::default);
        let context = foveate::lab::Context { commit: checkout::commit(), ..rig.context() };
        Ok(Self {
            rig,
            context,
            sets,
            sink,
            out: display.out.clone(),
            scratch,
            cancel,
            watch,
            seed,
            json,
            warned: Cell::new(false),
            told_of_cards: Cell::new(false),
        })
    }

    pub(crate) fn lab(&self) -> Lab<'_> {
        Lab {
            rig: self.rig.as_ref(),
            scratch: self.scratch.path(),
            cancel: &self.cancel,
            watch: &self.watch,
            seed: self.seed,
        }
    }

    /// Returns the photos as given.
    pub(crate) fn photos(&self) -> anyhow::Result<&PhotoSet> {
        self.sets.usable.first().context("no photos to measure with")
    }

    /// Returns the folder for the CSV files.
    pub(crate) fn out(&self) -> &Path {
        &self.out
    }

    /// Returns the setting that a plain run would use.
    pub(crate) fn base(&self) -> Setting {
        self.rig.base()
    }

    /// Writes a table's CSV file and prints the table, as measured under the conditions since the last one. Returns it
    /// with them.
    pub(crate) fn put(&self, table: &Table) -> anyhow::Result<Table> {
        self.put_under(table, self.watch.conditions())
    }

    /// Does the same under conditions of their own.
    pub(crate) fn put_under(&self, table: &Table, conditions: Conditions) -> anyhow::Result<Table> {
        let about = table.schema().about;
        self.put_with(table, conditions, |table, out| {
            writeln!(out, "\n{about}\n")?;
            table.print(out)
        })
    }

    /// Does the same, with `print` in place of the usual columns.
    pub(crate) fn put_with(
        &self,
        table: &Table,
        conditions: Conditions,
        print: impl FnOnce(&Table, &mut dyn Write) -> std::io::Result<()>,
    ) -> anyhow::Result<Table> {
        self.watch.inner().clear();
        let table = table.clone().under(conditions);
        let path = table.write_csv(&self.out, &self.context)?;
        if let Some(json) = &self.json {
            let mut json = lock(json);
            self.add_json(&mut json, &table);
            if let Some(why) = self.without_cards(&table) {
                json.insert("no_device_figures".to_owned(), why.into());
            }
            return Ok(table);
        }
        let mut text = Vec::new();
        let disturbed = table.disturbed();
        if let Some(why) = disturbed.filter(|_| !self.warned.replace(true)) {
            writeln!(text, "\nDISTURBED: {why}. Measure again while the machine does nothing else.")?;
        }
        print(&table, &mut text)?;
        if let Some(why) = self.without_cards(&table).filter(|_| !self.told_of_cards.replace(true)) {
            writeln!(text, "(no device_busy and device_memory_mb: {why})")?;
        }
        writeln!(text, "({}{})", path.display(), if disturbed.is_some() { "; disturbed" } else { "" })?;
        writeln!(console::stdout(), "{}", fit(&String::from_utf8_lossy(&text), 0))?;
        Ok(table)
    }

    /// Returns why the table's columns of the forward's cards are empty, if it has such columns and they are.
    fn without_cards(&self, table: &Table) -> Option<String> {
        table.schema().column("device_busy")?;
        self.lab().cards().err()
    }

    /// Returns the conditions since the last table.
    pub(crate) fn conditions(&self) -> Conditions {
        self.watch.conditions()
    }

    /// Writes a table's CSV file alone.
    pub(crate) fn write(&self, table: &Table) -> anyhow::Result<PathBuf> {
        Ok(table.write_csv(&self.out, &self.context)?)
    }

    /// Prints a line, unless JSON is printed.
    pub(crate) fn say(&self, line: &str) -> anyhow::Result<()> {
        if self.json.is_none() {
            writeln!(console::stdout(), "{}", fit(line, 0))?;
        }
        Ok(())
    }

    /// Records that samples are fewer or shorter than usual, if they are.
    pub(crate) fn quickly(mut self, is_quick: bool) -> Self {
        if is_quick {
            self.context.effort = "quick".to_owned();
        }
        self
    }

    /// Leaves it to the caller to say that tables are disturbed.
    pub(crate) fn without_warnings(self) -> Self {
        Self { warned: Cell::new(true), ..self }
    }

    /// Prints the tables as one JSON object, with `more` besides them, if JSON is asked for.
    pub(crate) fn print_json(&self, more: Value) -> anyhow::Result<()> {
        let Some(json) = &self.json else { return Ok(()) };
        let mut all = std::mem::take(&mut *lock(json));
        all.entry("disturbed").or_insert_with(|| json!({}));
        if let Value::Object(more) = more {
            all.extend(more);
        }
        writeln!(console::stdout(), "{}", Value::Object(all))?;
        Ok(())
    }

    /// Adds a table by the name of its file, and under `disturbed` why it is, if it is.
    fn add_json(&self, all: &mut Map<String, Value>, table: &Table) {
        let name = table.schema().file.trim_end_matches(".csv");
        all.insert(name.to_owned(), table.json(&self.context));
        if let Some(why) = table.disturbed() {
            all.entry("disturbed").or_insert_with(|| json!({}))[name] = why.into();
        }
    }
}

fn note_left_out(photos: &PhotoSet) {
    if let Some((id, reason)) = photos.left_out.first() {
        let count = photos.left_out.len();
        let kept = photos.photos.len();
        console::say!("note: measuring with {kept} photos; {count} cannot be used, the first {id}: {reason}");
    }
    if photos.photos.len() == 1 {
        console::say!("note: one photo says little about others");
    }
}

/// Reports an experiment's progress on standard error: every step on a terminal, elsewhere a line from time to time.
enum Announce {
    Nothing,
    Bar(ProgressBar),
    Lines(Mutex<Option<Instant>>),
}

/// Minimum time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

impl Announce {
    fn new(quiet: bool) -> Self {
        if quiet {
            return Self::Nothing;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Mutex::new(None));
        }
        let bar = ProgressBar::new_spinner();
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Bar(bar)
    }

    fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.set_message("");
        }
    }
}

impl Watch for Announce {
    fn doing(&self, what: &str) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => bar.set_message(what.to_owned()),
            Self::Lines(last) => {
                let mut last = lock(last);
                if last.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
                    *last = Some(Instant::now());
                    console::say!("{what}");
                }
            }
        }
    }

    fn note(&self, what: &str) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => bar.suspend(|| console::say!("{what}")),
            Self::Lines(_) => console::say!("{what}"),
        }
    }
}

impl Drop for Announce {
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
