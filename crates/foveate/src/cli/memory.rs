//! The memory of a forward, measured in a process of its own: `bench memory` with the arguments of this one.

use std::ffi::OsString;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;

use anyhow::Context as _;
use foveate::core::{PixelBatch, VectorBuf};
use foveate::embed::Backends;
use foveate::lab::{Memory, Rig as _, Setting};
use foveate::model::OpenOptions;
use foveate::profile::process;
use foveate::rig::Rig;

use super::lab_args::LabArgs;
use super::{console, job};

/// Runs the first batch, which allocates, and one more.
const BATCHES: usize = 2;

/// Runs two batches with the setting of `args`, and prints the memory that they need.
pub(crate) fn run(args: &LabArgs) -> anyhow::Result<()> {
    let options = args.settings();
    let listing = job::list_again(&options)?;
    let rig = Rig::new(options, Box::new(listing), (0, 0), Arc::new(Backends::compiled()), &OpenOptions::from_env())?;
    let setting = rig.base();
    let mut encoder = rig.open_encoder(&setting)?;
    // Loading a model takes more than a small batch does: its peak would hide the batch's.
    process::reset_peak_resident();
    let format = encoder.spec().format();
    // Not zeros, whose pages the system would not give before they are written.
    let pixels = vec![1; format.bytes() * setting.batch];
    let batch = PixelBatch::new(&pixels, format).context("no such batch")?;
    let mut vectors = VectorBuf::new();
    (0..BATCHES).try_for_each(|_| encoder.encode(batch, &mut vectors).map(drop))?;
    let Memory { bytes, of } = Memory::of_this_process(encoder.spec()).map_err(anyhow::Error::msg)?;
    writeln!(console::stdout(), "{} {of}", bytes.with_context(|| format!("this system does not tell: {of}"))?)?;
    Ok(())
}

/// Starts this program again with this process's arguments and `setting`'s forward.
pub(crate) fn in_a_process(setting: &Setting) -> Result<Memory, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let words: Vec<OsString> = std::env::args_os().collect();
    // In Python, the program is Python, and its first argument a script.
    if words.get(1).is_none_or(|word| word != "bench") {
        return Err("only the program foveate measures it".to_owned());
    }
    let rest = words.get(3..).unwrap_or_default();
    let Setting { encoder, dtype, batch, threads, .. } = setting;
    let mut again = Command::new(program);
    again.args(["bench", "memory"]).args(rest).args(["--encoder", encoder, "--dtype", dtype.name()]);
    again.args(["--batch", &batch.to_string(), "--threads", &threads.to_string(), "--quiet"]);
    let output = again.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let memory = said.trim().split_once(' ').and_then(|(bytes, of)| {
        let bytes = bytes.parse().ok()?;
        Some(Memory { bytes: Some(bytes), of: of.to_owned() })
    });
    memory.ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
