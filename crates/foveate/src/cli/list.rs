//! `foveate backends` and `foveate models`.

use std::io::Write;

use foveate::backends;
use foveate::core::{Backend, Registry};
use foveate::dinov2::Card;

use super::console;
use super::exit::Exit;

pub(crate) fn backends() -> anyhow::Result<Exit> {
    let mut out = console::stdout();
    writeln!(out, "{:<9} {:<12} {:<9} about", "kind", "name", "compiled")?;
    table(&mut out, &backends::decoders())?;
    table(&mut out, &backends::preprocessors())?;
    table(&mut out, &backends::resizers())?;
    table(&mut out, &backends::encoders())?;
    table(&mut out, &backends::sinks())?;
    table(&mut out, &backends::queues())?;
    table(&mut out, &backends::stores())?;
    Ok(Exit::Complete)
}

fn table<B: Backend>(out: &mut impl Write, registry: &Registry<B>) -> std::io::Result<()> {
    for name in registry.known() {
        let (compiled, about) = match registry.get(name) {
            Ok(backend) => ("yes", backend.about().to_owned()),
            Err(_) => ("no", format!("rebuild with `-F {name}`")),
        };
        writeln!(out, "{:<9} {name:<12} {compiled:<9} {about}", registry.kind())?;
    }
    Ok(())
}

pub(crate) fn models() -> anyhow::Result<Exit> {
    let mut out = console::stdout();
    writeln!(out, "{:<42} {:>5} {:>6} {:>9}", "name", "dim", "input", "registers")?;
    for name in Card::names() {
        let card = Card::get(name)?;
        let (dim, crop, registers) = (card.dimension, card.preprocess.crop, card.config.num_register_tokens);
        writeln!(out, "{:<42} {dim:>5} {:>6} {registers:>9}", card.repository, crop.width)?;
    }
    writeln!(out, "\nAlso: a folder in Hugging Face layout, any `org/name[@revision]` of DINOv2's architecture,")?;
    writeln!(out, "or `seeded:<name>` for generated weights (no network; vectors without meaning).")?;
    Ok(Exit::Complete)
}
