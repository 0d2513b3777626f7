//! The images that `--images` names, found for the ids of vectors, which may be of another place.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use foveate::embed::Settings;
use foveate::pipeline::Cancel;
use foveate::sink::{OutputManifest, StoredRun, StoredState};
use foveate::source::{Input, Item, Listing, NamedFile, Source};
use unicode_normalization::UnicodeNormalization;

use crate::cli::job;
use crate::cli::search_args::SearchArgs;

/// Images of some inputs, by wanted id.
#[derive(Default)]
pub(super) struct FoundImages<'a> {
    /// The inputs, with ids of some columns.
    pub(super) listings: Vec<(Listing, Settings)>,
    pub(super) images: HashMap<&'a str, FoundImage>,
    /// Wanted ids that several images fit, or whose image fits several ids.
    pub(super) ambiguous: usize,
    /// An id of the inputs that is not wanted.
    pub(super) one_other: Option<String>,
}

pub(super) struct FoundImage {
    pub(super) item: Item,
    pub(super) listing: usize,
    /// It has the id that `embed` gave it. The others are guesses by the ends of ids.
    pub(super) is_exact: bool,
    /// Parts that both ids have at their ends.
    parts: usize,
    /// Another image fits as well.
    is_tied: bool,
}

impl FoundImages<'_> {
    pub(super) fn file_of(&self, image: &FoundImage) -> Option<NamedFile> {
        self.listings[image.listing].0.file_of(&image.item)
    }
}

/// The options that list images, whose ids and bytes are in these columns of tables.
pub(super) fn image_options(args: &SearchArgs, inputs: &[PathBuf], columns: [Option<String>; 2]) -> Settings {
    let [id_column, image_column] = columns;
    let mut options = Settings::new(inputs.iter().cloned().map(Input::Path).collect(), "", "");
    options.inputs.web = args.web.clone();
    options.inputs.store_option = args.store_option.clone();
    options.rows.id_column = id_column;
    options.inputs.image_column = image_column;
    options
}

/// The columns of ids and of images that a run read.
pub(super) fn columns_of(manifest: Option<&OutputManifest>) -> [Option<String>; 2] {
    let fingerprint = manifest.map(|manifest| &manifest.fingerprint);
    ["id_column", "image_column"].map(|name| fingerprint.and_then(|settings| settings.get(name)).cloned())
}

/// Finds the images of ids among some inputs: those with the same ids, and then those whose ids have the same end. The
/// inputs are listed with the columns that `manifest` names, then with none, and then with `id`, which is that of
/// `pack`, until each wanted id is found.
///
/// # Errors
/// If the inputs cannot be listed.
pub(super) fn find_images<'a>(
    args: &SearchArgs,
    manifest: Option<&OutputManifest>,
    inputs: &[PathBuf],
    cancel: &Cancel,
    wanted: impl Iterator<Item = &'a str>,
) -> anyhow::Result<FoundImages<'a>> {
    let mut ends = IdEnds::new(wanted);
    let mut found = FoundImages::default();
    if inputs.is_empty() || ends.is_complete() {
        return Ok(found);
    }
    let inputs = with_shards(inputs);
    let mut attempts = vec![columns_of(manifest)];
    for columns in [[None, None], [Some("id".to_owned()), None]] {
        if !attempts.contains(&columns) {
            attempts.push(columns);
        }
    }
    let mut fault = None;
    for (attempt, columns) in attempts.into_iter().enumerate() {
        if ends.is_complete() {
            break;
        }
        let is_plain = columns == [None, None];
        let options = image_options(args, &inputs, columns);
        let mut listing = match job::list(&options, |_| ()) {
            Ok(listing) => listing,
            // Folders have no columns. What is wrong with the inputs themselves is said without any.
            Err(error) => {
                fault = if is_plain { Some(error) } else { fault };
                continue;
            }
        };
        let number = found.listings.len();
        while let Some(item) = listing.next_item()?.filter(|_| !cancel.is_cancelled()) {
            if let Some(item) = ends.offer(number, attempt == 0, item) {
                found.one_other.get_or_insert(item.id);
            }
        }
        listing.seek(0, 0)?;
        found.listings.push((listing, options));
    }
    if let Some(error) = fault.filter(|_| found.listings.is_empty()) {
        // The command line is no reason any more to write nothing.
        return Err(anyhow!("cannot list --images: {error:#}"));
    }
    found.ambiguous = ends.ambiguous();
    let best = ends.ids.into_iter().zip(ends.best);
    found.images = best.filter_map(|(id, best)| Some((id, best.filter(|best| !best.is_tied)?))).collect();
    Ok(found)
}

/// Names the shards of folders that `pack` wrote, because a folder contributes no containers.
fn with_shards(inputs: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for input in inputs {
        let packed = if input.is_dir() { StoredRun::packed(input).ok().flatten() } else { None };
        match packed.filter(|run| run.state == StoredState::Complete) {
            Some(run) => {
                let files = run.manifest.parts.iter().flat_map(|shard| &shard.files);
                all.extend(files.filter_map(|file| Path::new(&file.name).file_name()).map(|name| input.join(name)));
            }
            None => all.push(input.clone()),
        }
    }
    all
}

/// Wanted ids by their ends.
struct IdEnds<'a> {
    ids: Vec<&'a str>,
    exact: HashMap<&'a str, usize>,
    /// The parts of each id from its end on, each followed by a slash, and the id's number; sorted, so that ids with an
    /// end in common are neighbours.
    ends: Vec<(String, usize)>,
    best: Vec<Option<FoundImage>>,
    /// Ends of images that fit several ids.
    shared: HashSet<String>,
}

/// Parts of the same id, which fit better than any end.
const WHOLE: usize = usize::MAX;

impl<'a> IdEnds<'a> {
    fn new(wanted: impl Iterator<Item = &'a str>) -> Self {
        let ids: Vec<&str> = wanted.collect();
        let mut ends: Vec<(String, usize)> = ids.iter().map(|id| reversed(id)).zip(0..).collect();
        ends.sort_unstable();
        let best = ids.iter().map(|_| None).collect();
        Self { exact: ids.iter().copied().zip(0..).collect(), ids, ends, best, shared: HashSet::new() }
    }

    fn is_complete(&self) -> bool {
        self.best.iter().all(|best| best.as_ref().is_some_and(|best| best.parts == WHOLE))
    }

    /// Takes an image for the id that it fits best; gives it back if that is none.
    fn offer(&mut self, listing: usize, is_own: bool, item: Item) -> Option<Item> {
        if let Some(&wanted) = self.exact.get(item.id.as_str()) {
            let best = FoundImage { item, listing, parts: WHOLE, is_exact: is_own, is_tied: false };
            self.take(wanted, best);
            return None;
        }
        let end = reversed(&item.id);
        let place = self.ends.partition_point(|(other, _)| *other < end);
        // Of the ids that share most with this one, two are nearest if there are several.
        let near = &self.ends[place.saturating_sub(2)..self.ends.len().min(place + 2)];
        let same = near.iter().map(|(other, _)| same_parts(&end, other));
        let common = same.max_by_key(|same| same.len()).unwrap_or_default();
        if common.split_terminator('/').all(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
            // Nothing but places in tables, which have no name.
            return Some(item);
        }
        let fitting: Vec<usize> =
            near.iter().filter(|(other, _)| other.starts_with(common)).map(|&(_, wanted)| wanted).collect();
        if let [wanted] = fitting[..] {
            let parts = common.matches('/').count();
            self.take(wanted, FoundImage { item, listing, parts, is_exact: false, is_tied: false });
        } else {
            self.shared.insert(common.to_owned());
        }
        None
    }

    fn take(&mut self, wanted: usize, new: FoundImage) {
        match &mut self.best[wanted] {
            Some(best) if best.parts > new.parts => {}
            // Later listings have the same images under other ids.
            Some(best) if best.parts == new.parts && (best.listing < new.listing || best.item.id == new.item.id) => {}
            Some(best) if best.parts == new.parts => best.is_tied = true,
            best => *best = Some(new),
        }
    }

    fn ambiguous(&self) -> usize {
        let mut ambiguous: HashSet<usize> = HashSet::new();
        ambiguous.extend((0..self.best.len()).filter(|&at| self.best[at].as_ref().is_some_and(|best| best.is_tied)));
        for end in &self.shared {
            let first = self.ends.partition_point(|(other, _)| other < end);
            let fitting = self.ends[first..].iter().take_while(|(other, _)| other.starts_with(end));
            ambiguous.extend(fitting.map(|&(_, wanted)| wanted).filter(|&wanted| self.best[wanted].is_none()));
        }
        ambiguous.len()
    }
}

/// The parts of an id, the last first, each followed by a slash. File systems differ in Unicode's forms.
fn reversed(id: &str) -> String {
    let id: String = id.nfc().collect();
    let parts = id.split(['/', '\\']).rev().filter(|part| !part.is_empty());
    parts.map(|part| format!("{part}/")).collect()
}

/// The whole parts that two reversed ids begin with.
fn same_parts<'a>(a: &'a str, b: &str) -> &'a str {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    &a[..a.as_bytes()[..same].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(wanted: &[&str], listed: &[&str]) -> (String, usize) {
        let mut ends = IdEnds::new(wanted.iter().copied());
        for id in listed {
            ends.offer(0, true, Item { id: (*id).to_owned(), ..Item::default() });
        }
        let ambiguous = ends.ambiguous();
        let best = ends.ids.into_iter().zip(ends.best);
        let found = best.filter_map(|(id, best)| Some(format!("{id}={}", best.filter(|best| !best.is_tied)?.item.id)));
        (found.collect::<Vec<_>>().join(" "), ambiguous)
    }

    #[test]
    fn images_belong_to_the_ids_with_which_they_share_most_parts() {
        let is = |text: &str, ambiguous| (text.to_owned(), ambiguous);
        assert_eq!(one(&["/old/a/x.jpg", "/old/b/x.jpg"], &["new/b/x.jpg", "new/a/x.jpg"]).1, 0);
        assert_eq!(one(&["/old/a/x.jpg", "/old/b/x.jpg"], &["b/x.jpg"]), is("/old/b/x.jpg=b/x.jpg", 0));
        assert_eq!(one(&[r"C:\old\ä.jpg"], &["new/a\u{308}.jpg"]), is("C:\\old\\ä.jpg=new/a\u{308}.jpg", 0));
        assert_eq!(one(&["s3://bucket/a/x.jpg"], &["a/x.jpg", "x.jpg"]), is("s3://bucket/a/x.jpg=a/x.jpg", 0));
        // The same id comes first, and its image is of no other.
        assert_eq!(one(&["a/x.jpg", "b/x.jpg"], &["new/a/x.jpg", "a/x.jpg"]), is("a/x.jpg=a/x.jpg", 0));
        // Two images fit one id, one image fits two.
        assert_eq!(one(&["old/x.jpg"], &["a/x.jpg", "b/x.jpg"]), is("", 1));
        assert_eq!(one(&["a/x.jpg", "b/x.jpg", "c/y.jpg"], &["new/x.jpg"]), is("", 2));
        assert_eq!(one(&["a/x.jpg", "b/x.jpg"], &["new/x.jpg", "new/a/x.jpg"]), is("a/x.jpg=new/a/x.jpg", 1));
        // Ends are whole parts, and a row's number is no name.
        assert_eq!(one(&["old/x.jpg", "a.parquet/7"], &["old/yx.jpg", "b.parquet/7", "7"]), is("", 0));
        assert_eq!(one(&["old/a.parquet/7"], &["new/a.parquet/7"]), is("old/a.parquet/7=new/a.parquet/7", 0));
    }
}
