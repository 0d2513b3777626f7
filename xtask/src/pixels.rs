//! `cargo xtask pixels`: generated image files of every class that decoders get wrong, compared with Pillow.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::{empty_folder, python_runs, succeed, target};
use crate::selection;

const GENERATOR: &str = "crates/foveate-decode/tests/pillow/make.py";
const PAGE: &str = "docs/pixels.md";
/// Around the table in that page.
const MARKS: (&str, &str) = ("<!-- table -->\n", "<!-- end of the table -->\n");

/// Files of each class.
const SHORT: u32 = 20;
const LONG: u32 = 400;

#[derive(clap::Args)]
pub(crate) struct PixelArgs {
    /// The long form, for a release: twenty times the files
    #[arg(long)]
    full: bool,
    /// Other files for another seed
    #[arg(long, default_value_t = 2)]
    seed: u64,
    /// Write the table into docs/pixels.md
    #[arg(long)]
    update: bool,
}

pub(crate) fn run(root: &Path, args: &PixelArgs) -> Result<()> {
    if let Some(reason) = missing() {
        bail!("{reason}; install it with `pip install 'pillow>=13,<14'`");
    }
    let folder = target(root).join("pixels");
    empty_folder(&folder)?;
    let files = if args.full { LONG } else { SHORT };
    let mut generator = Command::new("python3");
    generator.current_dir(root).args(["-B", "-W", "ignore", GENERATOR]).arg(&folder);
    succeed(generator.args(["--seed", &args.seed.to_string(), "--files", &files.to_string()]))?;
    let mut test = selection::test(root, true)?;
    succeed(test.args(["--test", "pillow"]).env("FOVEATE_PIXELS", &folder))?;
    let table = fs::read_to_string(folder.join("table.md"))?;
    println!("{table}");
    if args.update { write_table(&root.join(PAGE), &table) } else { Ok(()) }
}

/// The reason that no files can be generated here, if any.
pub(crate) fn missing() -> Option<&'static str> {
    let is_pillow_13 = "import PIL, sys; sys.exit(PIL.__version__.split('.')[0] != '13')";
    (!python_runs(is_pillow_13)).then_some("python3 with Pillow 13 is missing")
}

fn write_table(page: &Path, table: &str) -> Result<()> {
    let text = fs::read_to_string(page)?;
    let parts = text.split_once(MARKS.0).and_then(|(before, rest)| Some((before, rest.split_once(MARKS.1)?.1)));
    let (before, after) = parts.with_context(|| format!("no table between marks in {}", page.display()))?;
    Ok(fs::write(page, [before, MARKS.0, table, MARKS.1, after].concat())?)
}
