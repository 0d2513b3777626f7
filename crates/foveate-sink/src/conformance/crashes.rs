//! Crashes at every step of a run.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::bench::SinkBench;
use super::files::{copy_folder, same, snapshot};
use super::sample::CallSizes;
use super::{LAYOUTS, Probe, Stored, Subject};
use crate::{Existing, SinkOptions, VectorSink};

/// Any run of the suite's job takes more steps than this to begin, commit and publish.
const MANY_STEPS: usize = 15;

type OpenProbed<'a> = &'a dyn Fn(&SinkOptions, Probe) -> Box<dyn VectorSink>;

/// Crashes at each step of a run in turn: `open` makes a sink with a probe. After each crash, another run must give the
/// bytes of an uninterrupted run. `columns` are those of the run's items, such as [`COLUMNS`](super::COLUMNS).
pub fn crash_at_every_step(open: OpenProbed<'_>, extension: &'static str, columns: &[&str], scratch: &Path) {
    let subject = Subject {
        open: &|options| open(options, Box::new(|_| {})),
        read: &|_| Stored::new(),
        read_columns: None,
        extension,
    };
    for layout in LAYOUTS {
        let scratch = scratch.join(format!("{layout:?}"));
        let bench = SinkBench { subject: &subject, layout, columns, in_store: false, scratch };
        bench.a_crash_at_any_step_is_made_good(open, Existing::Resume);
        bench.a_crash_at_any_step_is_made_good(open, Existing::Overwrite);
    }
}

impl SinkBench<'_> {
    fn a_crash_at_any_step_is_made_good(&self, open: OpenProbed<'_>, existing: Existing) {
        let (work, _) = self.finds(existing, "work");
        let copies = self.folder(&format!("copies-{existing:?}"));
        let steps = Arc::new(Mutex::new(Vec::new()));
        let sink = open(&self.options(&work), copying_probe(work.clone(), copies.clone(), Arc::clone(&steps)));
        self.job().finish(sink, existing, CallSizes { rows: 2, commit_every: 2 }).unwrap();
        let expected = snapshot(&work);
        let steps = steps.lock().unwrap().clone();
        assert!(steps.len() >= MANY_STEPS, "only {} steps were seen", steps.len());
        for (number, step) in steps.iter().enumerate() {
            let copy = copies.join(number.to_string());
            let at = format!("{:?}, {existing:?}, crash {number} before '{step}'", self.layout);
            self.repeat(&copy, existing, &at);
            same(&expected, &snapshot(&copy), &at);
        }
    }
}

fn copying_probe(work: PathBuf, copies: PathBuf, steps: Arc<Mutex<Vec<&'static str>>>) -> Probe {
    Box::new(move |step| {
        let mut steps = steps.lock().unwrap();
        copy_folder(&work, &copies.join(steps.len().to_string()));
        steps.push(step);
    })
}
