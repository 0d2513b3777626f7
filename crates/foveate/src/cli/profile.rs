//! `foveate profile`.

use foveate::lab::{Setting, Table, profile};
use serde_json::json;

use super::exit::Exit;
use super::lab::{Bench, Sizes};
use super::lab_args::ProfileArgs;
use super::trace;

pub(crate) fn run(args: &ProfileArgs) -> anyhow::Result<Exit> {
    let bench = Bench::open(&args.lab, Sizes::AsGivenAndSmall)?;
    let trace = trace::new(args.trace.as_deref());
    let options = profile::ProfileOptions {
        settings: settings(args, &bench),
        images: args.images,
        normalize: args.normalize_on_cpu,
        project: args.project,
        trace: trace.clone(),
        sink: bench.sink.clone(),
    };
    measure(&bench, &options)?;
    if let (Some(path), Some(trace)) = (&args.trace, trace) {
        bench.say(&trace::write(path, &trace)?)?;
    }
    bench.print_json(json!({}))?;
    Ok(Exit::Complete)
}

/// Measures the profile and the storage, prints both, and writes their CSV files.
pub(crate) fn measure(bench: &Bench, options: &profile::ProfileOptions) -> anyhow::Result<Table> {
    let table = profile::run(&bench.lab(), &bench.sets.usable, options)?;
    let table = bench.put_with(&table, bench.conditions(), profile::print)?;
    bench.put_under(&profile::storage(&bench.sets.usable)?, bench.conditions())?;
    Ok(table)
}

/// Returns one setting per pair, each in place of the usual pair.
fn settings(args: &ProfileArgs, bench: &Bench) -> Vec<Setting> {
    let base = bench.base();
    if args.pair.is_empty() {
        return vec![base];
    }
    let mut settings = Vec::new();
    for (decoder, resizer) in &args.pair {
        settings.push(Setting { decoder: decoder.clone(), resizer: resizer.clone(), ..base.clone() });
    }
    settings
}
