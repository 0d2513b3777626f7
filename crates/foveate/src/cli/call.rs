//! `foveate embed` as a function call, for programs with another interface.

use std::ffi::OsString;
use std::sync::Arc;

use clap::Parser;
use foveate::embed::{Backends, Settings};
use foveate::model::OpenOptions;
use foveate::pipeline::{Cancel, Progress, RunError};
use foveate::sink::SinkError;
use foveate::source::{Extent, Listing};

use super::args::{Cli, Command, EmbedArgs, first_line};
use super::exit::Usage;
use super::{check, config, embed, job, summary};

/// The arguments of `foveate embed`, parsed.
pub struct EmbedCall(Command);

impl EmbedCall {
    /// Parses arguments, without the program's and the command's names. Does not check that they can work.
    ///
    /// # Errors
    /// The text that the command line would print, on one line.
    pub fn parse(args: Vec<OsString>) -> Result<Self, String> {
        let named = ["foveate", "embed"].into_iter().map(OsString::from).chain(args).collect();
        let args = config::expand(named).map_err(|error| format!("{error:#}"))?;
        let parsed = Cli::try_parse_from(args).map_err(|error| first_line(&error))?;
        Ok(Self(parsed.command))
    }

    fn args(&self) -> &EmbedArgs {
        match &self.0 {
            Command::Embed(args) => args,
            _ => unreachable!("the arguments begin with `embed`"),
        }
    }

    /// Returns the job's options.
    pub fn options(&self) -> Settings {
        embed::options(self.args())
    }

    /// Lists the inputs.
    ///
    /// # Errors
    /// If one that is named does not exist or cannot be listed, or there are none.
    pub fn list(&self) -> Result<Listing, String> {
        check::inputs(&self.args().job).and_then(|()| job::list(&self.options(), |_| ())).map_err(chain)
    }

    /// Runs the whole job. `begin` receives the indexes of its items. Returns what `--json` prints.
    ///
    /// # Errors
    /// The text that the command line would print.
    pub fn run(&self, cancel: &Cancel, progress: &Progress, begin: impl FnOnce(Extent)) -> Result<String, String> {
        check::command(&self.0).map_err(|usage| chain(usage.into()))?;
        let options = self.options();
        let listing = self.list()?;
        let found = listing.stats().clone();
        let job = options.prepare(Box::new(listing), &Arc::new(Backends::compiled()), &OpenOptions::from_env());
        let job = job.map_err(|error| chain(error.into()))?;
        begin(job.inputs());
        match job.run(cancel, progress) {
            Ok(report) => Ok(summary::json(&report, &found, &options.output).to_string()),
            Err(RunError::Sink(SinkError::AlreadyComplete(done))) => {
                Ok(summary::already_complete(&done, &found).to_string())
            }
            Err(error) => Err(chain(error.into())),
        }
    }
}

fn chain(error: anyhow::Error) -> String {
    format!("{:#}", Usage::unwrap(&error))
}
