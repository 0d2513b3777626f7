//! `foveate tune`.

use anyhow::bail;
use foveate::lab::{Setting, tune};
use serde_json::json;

use super::config;
use super::exit::Exit;
use super::lab::{Bench, Sizes};
use super::lab_args::TuneArgs;

pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<Exit> {
    let bench = Bench::open(&args.lab, Sizes::AsGiven)?;
    let photos = bench.photos()?;
    let tuned = tune::run(&bench.lab(), photos, args.budget)?;
    let table = bench.put(&tuned.table)?;
    refuse(args, table.disturbed())?;
    config::write(
        &args.write,
        &tuned.setting,
        None,
        &comment(&bench, &tuned.setting, [tuned.before, tuned.images_per_second], table.disturbed()),
    )?;
    bench.say(&format!("\n{}", tuned.why))?;
    bench.say(&format!("wrote {}: foveate embed … --config {0}", args.write.display()))?;
    bench.print_json(json!({
        "images_per_second": tuned.images_per_second,
        "before": tuned.before,
        "why": tuned.why,
        "written": args.write.display().to_string(),
    }))?;
    Ok(Exit::Complete)
}

/// Refuses to choose from runs that other processes disturbed.
pub(crate) fn refuse(args: &TuneArgs, disturbed: Option<&str>) -> anyhow::Result<()> {
    match disturbed.filter(|_| !args.disturbed) {
        None => Ok(()),
        Some(why) => bail!(
            "{} is not written: {why}; tune again while the machine does nothing else, or pass --disturbed",
            args.write.display()
        ),
    }
}

/// Returns the comment at the head of the file.
pub(crate) fn comment(
    bench: &Bench,
    setting: &Setting,
    [before, now]: [f64; 2],
    disturbed: Option<&str>,
) -> Vec<String> {
    let (context, Setting { decoder, resizer, encoder, dtype, .. }) = (bench.rig.context(), setting);
    let name = bench.sets.usable.first().map_or("", |photos| photos.name.as_str());
    let mut lines = vec![
        format!(
            "Chosen by `foveate tune` {} on {}: {} cores, {}.",
            context.foveate, context.date, context.cores, context.host
        ),
        format!("For {decoder} + {resizer} + {encoder} ({}), {}, photos {name}.", dtype.name(), context.model),
        format!("{now:.1} images/s, against {before:.1} before."),
    ];
    lines.extend(disturbed.map(|why| format!("DISTURBED: {why}. Tune again while the machine does nothing else.")));
    lines
}
