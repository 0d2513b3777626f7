//! Which image of a group is kept.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::anyhow;
use foveate::source::FileIdentity;
use globset::{GlobBuilder, GlobMatcher};

use super::files::ImageFile;
use super::vectors::Loaded;
use crate::cli::exit::Usage;
use crate::cli::search_args::{DuplicatesArgs, KeepArg};

/// Formats that lose nothing, by their names' extensions.
const LOSSLESS: [&str; 4] = ["bmp", "png", "tif", "tiff"];

/// The rules, in their order.
pub(super) struct KeepRules {
    preferred: Vec<Preferred>,
    rules: Vec<KeepArg>,
}

struct Preferred {
    glob: String,
    /// The pattern, of a whole id and of its end.
    matchers: Vec<GlobMatcher>,
}

/// The image that is kept, and the rules that chose it.
pub(super) struct KeptImage {
    pub(super) row: u32,
    pub(super) by: String,
}

impl KeepRules {
    pub(super) fn new(args: &DuplicatesArgs) -> Result<Self, Usage> {
        let mut preferred = Vec::new();
        for glob in &args.prefer {
            let mut matchers = Vec::new();
            for glob in [glob.clone(), format!("**/{glob}")] {
                let compiled = GlobBuilder::new(&glob).literal_separator(true).build();
                let compiled = compiled.map_err(|error| Usage::from(anyhow!("--prefer {glob}: {error}")))?;
                matchers.push(compiled.compile_matcher());
            }
            preferred.push(Preferred { glob: glob.clone(), matchers });
        }
        Ok(Self { preferred, rules: args.keep.clone() })
    }

    /// Chooses one of some rows. What no rule decides, the names do: the file with most of them is kept, by its own
    /// name rather than by a link; or else the first row.
    pub(super) fn choose(&self, loaded: &Loaded, files: &HashMap<u32, ImageFile>, rows: &[u32]) -> KeptImage {
        let mut left = rows.to_vec();
        let mut by = Vec::new();
        for Preferred { glob, matchers } in &self.preferred {
            if narrow(&mut left, |row| Some(matchers.iter().any(|glob| glob.is_match(&*loaded.ids[row as usize])))) {
                by.push(format!("prefer {glob}"));
            }
        }
        for rule in &self.rules {
            let modified = |row: u32| files.get(&row).and_then(|file| file.modified_ns);
            let is_narrower = match rule {
                KeepArg::Largest => narrow(&mut left, |row| Some(loaded.area(row)).filter(|&area| area > 0)),
                KeepArg::Oldest => narrow(&mut left, |row| modified(row).map(Reverse)),
                KeepArg::Newest => narrow(&mut left, modified),
                KeepArg::Lossless => narrow(&mut left, |row| Some(is_lossless(&loaded.ids[row as usize]))),
                KeepArg::First => narrow(&mut left, |row| Some(Reverse(row))),
            };
            if is_narrower {
                by.push(rule.name().to_owned());
            }
        }
        let file = |row: u32| files.get(&row).and_then(|file| file.named.as_ref());
        let mut names: HashMap<&FileIdentity, usize> = HashMap::new();
        for file in rows.iter().filter_map(|&row| file(row)) {
            *names.entry(&file.identity).or_default() += 1;
        }
        if narrow(&mut left, |row| file(row).map(|file| (names[&file.identity], !file.is_link))) {
            by.push("names".to_owned());
        }
        if narrow(&mut left, |row| Some(Reverse(row))) {
            by.push(KeepArg::First.name().to_owned());
        }
        KeptImage { row: left.first().copied().unwrap_or_default(), by: by.join(", ") }
    }
}

/// Leaves the rows with the highest value; one without a value has the lowest. Returns true if others are gone.
fn narrow<T: Ord>(rows: &mut Vec<u32>, value: impl Fn(u32) -> Option<T>) -> bool {
    let before = rows.len();
    let best = rows.iter().map(|&row| value(row)).max();
    rows.retain(|&row| Some(value(row)) == best);
    rows.len() < before
}

fn is_lossless(id: &str) -> bool {
    let extension = id.rsplit_once('.').map_or("", |(_, extension)| extension);
    LOSSLESS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}
