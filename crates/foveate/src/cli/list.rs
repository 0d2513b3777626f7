//! `foveate backends` and `foveate models`.

use std::io::Write;

use foveate::Recipe;
use foveate::backends::{Visit, visit_all};
use foveate::core::{Backend, Registry};
use foveate::model::Card;
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
    writeln!(out, "{:<44} {:<8} {:>5} {:>6} {:>9}  licence", "name", "family", "width", "input", "registers")?;
    for card in cards {
        let Card { repository, dimension, licence, .. } = &card;
        let family = card.family.name;
        let registers = card.network.num_register_tokens;
        let width = card.preprocess.crop.width;
        let gated = if card.gated { ", to be accepted on the hub" } else { "" };
        writeln!(out, "{repository:<44} {family:<8} {dimension:>5} {width:>6} {registers:>9}  {licence}{gated}")?;
    }
    writeln!(out, "\nAlso: a folder in Hugging Face layout, any `org/name[@revision]` of one of these families,")?;
    writeln!(out, "or `seeded:<name>` for generated weights (no network; vectors without meaning).")?;
    writeln!(out, "Each offers `--preprocess {}`; `--json` has more.", Recipe::ALL.map(Recipe::name).join("|"))?;
    Ok(Exit::Complete)
}

fn card_json(card: &Card) -> Value {
    let recipes = Recipe::ALL.map(|recipe| (recipe.name().to_owned(), recipe.describe(&card.preprocess).into()));
    json!({
        "name": card.repository,
        "family": card.family.name,
        "licence": card.licence,
        "gated": card.gated,
        "pooling": card.network.pooling.name(),
        "dim": card.dimension,
        "input": card.preprocess.crop.width,
        "preprocess": Value::Object(recipes.into_iter().collect()),
        "registers": card.network.num_register_tokens,
    })
}
