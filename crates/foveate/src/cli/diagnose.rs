//! `foveate diagnose`.

use std::io::Write;

use foveate::lab::diagnose::{self, DiagnoseOptions, Diagnosis, Verdict, Verify};
use serde_json::json;

use super::exit::Exit;
use super::lab::{Bench, Sizes};
use super::lab_args::DiagnoseArgs;

pub(crate) fn run(args: &DiagnoseArgs) -> anyhow::Result<Exit> {
    let bench = Bench::open(&args.lab, Sizes::AsGiven)?;
    let options = options(args, &bench);
    let diagnosis = diagnose::run(&bench.lab(), bench.photos()?, &bench.base(), &options)?;
    if args.json {
        bench.write(&diagnosis.ladder)?;
        bench.write(&diagnosis.remedies)?;
        writeln!(std::io::stdout(), "{}", as_json(&diagnosis))?;
    } else {
        print(&bench, &diagnosis)?;
    }
    Ok(Exit::Complete)
}

fn options(args: &DiagnoseArgs, bench: &Bench) -> DiagnoseOptions {
    let options = DiagnoseOptions::new(bench.sink.as_str());
    let options = if args.quick { options.quick() } else { options };
    let verify = args.verify.as_ref().map(|name| match name.as_str() {
        "" => Verify::Best,
        name => Verify::Named(name.to_owned()),
    });
    DiagnoseOptions { cold: args.cold, verify, ..options }
}

/// Prints the ladder, the remedies and the verdict. The verdict comes last, where a terminal shows it.
pub(crate) fn print(bench: &Bench, diagnosis: &Diagnosis) -> anyhow::Result<()> {
    bench.put(&diagnosis.ladder)?;
    bench.put(&diagnosis.remedies)?;
    let mut out = std::io::stdout().lock();
    write!(out, "\n{}", diagnosis.verdict)?;
    Ok(())
}

/// Formats the diagnosis as JSON: rates in images per second, `error` and the interval ends as the library returns
/// them.
fn as_json(diagnosis: &Diagnosis) -> serde_json::Value {
    let Verdict { culprit, bound, decided, why, next, caveats } = &diagnosis.verdict;
    let interval = |of: &diagnose::Interval| json!({ "value": of.value, "low": of.low, "high": of.high });
    let verified = diagnosis.verified.as_ref().map(|verified| {
        json!({
            "change": verified.change,
            "before": interval(&verified.before),
            "after": interval(&verified.after),
            "times": interval(&verified.times),
            "predicted": verified.predicted,
            "error": verified.error,
        })
    });
    json!({
        "culprit": culprit,
        "bound": bound,
        "decided": decided,
        "why": why,
        "next": next,
        "caveats": caveats,
        "verified": verified,
    })
}
