//! `foveate diagnose`.

use foveate::lab::diagnose::{self, Climb, ClimbStep, DiagnoseOptions, Diagnosis, Verdict, Verify};
use serde_json::json;

use super::console;
use super::exit::Exit;
use super::lab::{Bench, Sizes};
use super::lab_args::DiagnoseArgs;

pub(crate) fn run(args: &DiagnoseArgs) -> anyhow::Result<Exit> {
    let bench = Bench::open(&args.lab, Sizes::AsGiven)?.quickly(args.quick);
    let options = options(args, &bench);
    if options.verify == Some(Verify::All) {
        return climb(&bench, &options);
    }
    let mut diagnosis = diagnose::run(&bench.lab(), bench.photos()?, &bench.base(), &options)?;
    put(&bench, &mut diagnosis)?;
    end(&bench, &options, diagnosis.unfinished.as_deref(), as_json(&diagnosis))
}

/// Prints the JSON, and says what was interrupted.
fn end(
    bench: &Bench,
    options: &DiagnoseOptions,
    unfinished: Option<&str>,
    mut json: serde_json::Value,
) -> anyhow::Result<Exit> {
    json["unfinished"] = unfinished.into();
    bench.print_json(json)?;
    let Some(what) = unfinished else { return Ok(Exit::Complete) };
    let remedy = if options.verify.is_some() { "; the same command continues with that" } else { "" };
    console::say!("interrupted while {what}{remedy}");
    Ok(Exit::Interrupted)
}

fn options(args: &DiagnoseArgs, bench: &Bench) -> DiagnoseOptions {
    let options = DiagnoseOptions::new(bench.sink.as_str());
    let options = if args.quick { options.quick() } else { options };
    let verify = args.verify.as_ref().map(|name| match name.as_str() {
        "" => Verify::Best,
        "all" => Verify::All,
        name => Verify::Named(name.to_owned()),
    });
    DiagnoseOptions { cold: args.cold, verify, budget: args.budget, folder: Some(bench.out().to_owned()), ..options }
}

/// Diagnoses, keeps what helps, and diagnoses again, until nothing helps.
fn climb(bench: &Bench, options: &DiagnoseOptions) -> anyhow::Result<Exit> {
    let climb = Climb::run(&bench.lab(), bench.photos()?, &bench.base(), options)?;
    let conditions = bench.conditions().and_disturbed(climb.disturbed.clone());
    bench.put_under(&climb.ladder(), conditions.clone())?;
    bench.put_under(&climb.remedies(), conditions)?;
    for (number, ClimbStep { setting, diagnosis }) in climb.steps.iter().enumerate() {
        bench.say(&format!("\nstep {number}: {setting}\n{}", diagnosis.verdict.to_string().trim_end()))?;
    }
    bench.say(&format!("\n{}", climb.to_string().trim_end()))?;
    let steps: Vec<_> = climb.steps.iter().map(|step| as_json(&step.diagnosis)).collect();
    end(bench, options, climb.unfinished.as_deref(), json!({ "steps": steps }))
}

/// Writes and prints the ladder, the remedies and the verdict. The verdict comes last, where a terminal shows it. A
/// disturbance of the machine is its first caveat.
pub(crate) fn put(bench: &Bench, diagnosis: &mut Diagnosis) -> anyhow::Result<()> {
    let conditions = bench.conditions().and_disturbed(diagnosis.disturbed.clone());
    let caveats = &mut diagnosis.verdict.caveats;
    caveats.splice(..0, conditions.disturbed.iter().map(|why| format!("the machine was disturbed: {why}")));
    diagnosis.ladder = bench.put_under(&diagnosis.ladder, conditions.clone())?;
    diagnosis.remedies = bench.put_under(&diagnosis.remedies, conditions)?;
    bench.say(&format!("\n{}", diagnosis.verdict.to_string().trim_end()))
}

/// Formats the diagnosis as JSON: rates in images per second, `error` and the interval ends as the library returns
/// them.
fn as_json(diagnosis: &Diagnosis) -> serde_json::Value {
    let Verdict { culprit, bound, decided, why, tried, next, caveats } = &diagnosis.verdict;
    let verified = diagnosis.verified.as_ref().map(|verified| {
        let [before, after, times] = [&verified.before, &verified.after, &verified.times]
            .map(|interval| json!({ "value": interval.value, "low": interval.low, "high": interval.high }));
        json!({
            "change": verified.change,
            "before": before,
            "after": after,
            "rounds": verified.rounds,
            "times": times,
            "predicted": verified.predicted,
            "error": verified.error,
            "effect": verified.effect.name(),
        })
    });
    json!({
        "culprit": culprit,
        "bound": bound,
        "decided": decided,
        "why": why,
        "tried": tried,
        "next": next,
        "caveats": caveats,
        "verified": verified,
    })
}
