//! `foveate backends` and `foveate models`.

use std::io::Write;

use foveate::backends::{Visit, visit_all};
use foveate::core::{Backend, Registry};
use foveate::dinov2::Card;
use serde_json::{Value, json};

use super::args::ListArgs;
use super::console;
use super::exit::Exit;

pub(crate) fn backends(args: &ListArgs) -> anyhow::Result<Exit> {
    let mut entries = Entries(Vec::new());
    visit_all(&mut entries);
    let Entries(entries) = entries;
    let mut out = console::stdout();
    if args.json {
        let entries: Vec<Value> = entries.iter().map(Entry::json).collect();
        writeln!(out, "{}", Value::from(entries))?;
        return Ok(Exit::Complete);
    }
    writeln!(out, "{:<9} {:<12} {:<9} about", "kind", "name", "compiled")?;
    for Entry { kind, name, compiled, about } in entries {
        let compiled = if compiled { "yes" } else { "no" };
        writeln!(out, "{kind:<9} {name:<12} {compiled:<9} {about}")?;
    }
    Ok(Exit::Complete)
}

/// A backend of the table.
struct Entry {
    kind: &'static str,
    name: String,
    compiled: bool,
    about: String,
}

impl Entry {
    fn json(&self) -> Value {
        json!({ "kind": self.kind, "name": self.name, "compiled": self.compiled, "about": self.about })
    }
}

struct Entries(Vec<Entry>);

impl Visit for Entries {
    fn visit<B: Backend>(&mut self, registry: &Registry<B>) {
        self.0.extend(registry.known().iter().map(|name| {
            let (compiled, about) = match registry.get(name) {
                Ok(backend) => (true, backend.about().to_owned()),
                Err(_) => (false, format!("rebuild with `-F {name}`")),
            };
            Entry { kind: registry.kind(), name: (*name).to_owned(), compiled, about }
        }));
    }
}

pub(crate) fn models(args: &ListArgs) -> anyhow::Result<Exit> {
    let cards = Card::names().map(Card::get).collect::<Result<Vec<_>, _>>()?;
    let mut out = console::stdout();
    if args.json {
        let cards: Vec<Value> = cards.iter().map(card_json).collect();
        writeln!(out, "{}", Value::from(cards))?;
        return Ok(Exit::Complete);
    }
    writeln!(out, "{:<42} {:>5} {:>6} {:>9}", "name", "dim", "input", "registers")?;
    for card in cards {
        let registers = card.config.num_register_tokens;
        let width = card.preprocess.crop.width;
        writeln!(out, "{:<42} {:>5} {width:>6} {registers:>9}", card.repository, card.dimension)?;
    }
    writeln!(out, "\nAlso: a folder in Hugging Face layout, any `org/name[@revision]` of DINOv2's architecture,")?;
    writeln!(out, "or `seeded:<name>` for generated weights (no network; vectors without meaning).")?;
    Ok(Exit::Complete)
}

fn card_json(card: &Card) -> Value {
    json!({
        "name": card.repository,
        "dim": card.dimension,
        "input": card.preprocess.crop.width,
        "registers": card.config.num_register_tokens,
    })
}
