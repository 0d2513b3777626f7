//! Pages of small pictures.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foveate::core::lock;
use foveate::embed::{Backends, EmbedOptions};
use foveate::pictures::{Picture, WantedPictures, each_picture};
use foveate::pipeline::Cancel;
use foveate::report::escape;
use foveate::sink::AtomicFile;
use foveate::source::Input;

use super::place::GENERATOR;
use super::vectors::Loaded;
use crate::cli::own_file::OwnFile;
use crate::cli::search_args::{SearchArgs, SheetArgs};
use crate::cli::{console, job};

/// Pixels of a picture's shorter side.
const EDGE: u32 = 160;
/// Pictures of a page, so that browsers open it: about 10 MB.
pub(super) const MOST: usize = 1000;

/// A page.
pub(super) struct Sheet {
    pub(super) title: &'static str,
    /// What is shown, in a sentence.
    pub(super) lead: String,
    pub(super) rows: Vec<Row>,
}

/// Pictures beside each other.
pub(super) struct Row {
    pub(super) heading: String,
    pub(super) cards: Vec<Card>,
}

/// A picture and what is said about it.
pub(super) struct Card {
    pub(super) id: String,
    pub(super) caption: String,
    pub(super) is_marked: bool,
}

impl Card {
    /// A row with its score.
    pub(super) fn scored(loaded: &Loaded, (row, score): (u32, f64), is_marked: bool) -> Self {
        Self { id: loaded.ids[row as usize].to_string(), caption: format!("{score:.4}"), is_marked }
    }
}

/// Says that a page will have no pictures, before the search takes its time.
pub(super) fn warn_without_images(args: &SearchArgs, sheet: &SheetArgs) {
    if sheet.html.is_some() && sheet.images.is_empty() && !args.quiet {
        console::say!("warning: the page will have no pictures of these vectors; --images names their folders");
    }
}

/// Pictures by id.
pub(super) type Pictures = HashMap<String, Picture>;

/// Ids of pictures: all that are read, and those of them that are shown.
pub(super) struct PictureIds<'a> {
    pub(super) all: &'a HashSet<&'a str>,
    pub(super) shown: &'a HashSet<&'a str>,
}

/// Reads the pictures of some ids, from the sheet's images and `others`, until it is cancelled. Says how many are
/// missing.
pub(super) fn pictures(
    args: &SearchArgs,
    sheet: &SheetArgs,
    cancel: &Cancel,
    others: &[PathBuf],
    PictureIds { all: ids, shown }: PictureIds<'_>,
) -> anyhow::Result<Pictures> {
    // An id is not opened by itself: in vectors of others, it may be any file or address that this user can read.
    let mut inputs: Vec<PathBuf> = sheet.images.clone();
    inputs.extend_from_slice(others);
    let (pictures, why) = (Mutex::new(Pictures::new()), Mutex::new(None));
    if !inputs.is_empty() && !ids.is_empty() {
        let options = EmbedOptions {
            inputs: inputs.into_iter().map(Input::Path).collect(),
            headers: args.web.headers(),
            max_redirects: args.web.max_redirects,
            store_settings: args.store_option.iter().cloned().collect(),
            ..EmbedOptions::new(Vec::new(), "", "")
        };
        let listing = job::list(&options, |_| ())?;
        let wanted = WantedPictures { ids, shown, edge: EDGE };
        each_picture(
            listing,
            &options,
            &Arc::new(Backends::compiled()),
            &wanted,
            cancel,
            &|id, picture| match picture {
                Ok(picture) => drop(lock(&pictures).insert(id.to_owned(), picture)),
                Err(error) => drop(lock(&why).get_or_insert_with(|| format!("{id}: {error}"))),
            },
        )?;
    }
    let pictures = pictures.into_inner().unwrap_or_default();
    let missing = ids.len() - pictures.len();
    if missing > 0 && !args.quiet && !cancel.is_cancelled() {
        let why = why.into_inner().unwrap_or_default();
        let why = why.unwrap_or_else(|| {
            "no image has their ids; --images names where they are, as it was named to `embed`".to_owned()
        });
        console::say!("warning: {missing} of {} pictures are missing ({why})", ids.len());
    }
    Ok(pictures)
}

impl Sheet {
    /// The ids whose pictures are shown.
    pub(super) fn ids(&self) -> HashSet<&str> {
        self.rows.iter().flat_map(|row| &row.cards).map(|card| card.id.as_str()).collect()
    }

    /// Writes the page, which needs no other file.
    pub(super) fn write(&self, place: OwnFile<'_>, pictures: &Pictures) -> anyhow::Result<()> {
        let mut page =
            format!(include_str!("sheet.html"), generator = GENERATOR, title = self.title, lead = escape(&self.lead));
        for Row { heading, cards } in &self.rows {
            let _ = writeln!(page, "<section><h2>{}</h2><div>", escape(heading));
            for Card { id, caption, is_marked } in cards {
                let image = match pictures.get(id) {
                    // Browsers know the formats by their first bytes.
                    Some(Picture { thumbnail, .. }) => {
                        format!(
                            "<img loading=\"lazy\" alt=\"\" src=\"data:image/jpeg;base64,{}\">",
                            STANDARD.encode(thumbnail)
                        )
                    }
                    None => "<p class=\"none\">no picture</p>".to_owned(),
                };
                let (class, id) = (if *is_marked { " class=\"marked\"" } else { "" }, escape(id));
                let caption = format!("<b>{}</b><br><span title=\"{id}\"><bdi>{id}</bdi></span>", escape(caption));
                let _ = writeln!(page, "<figure{class}>{image}<figcaption>{caption}</figcaption></figure>");
            }
            page.push_str("</div></section>\n");
        }
        page.push_str("</body></html>\n");
        place.check()?;
        let mut file = AtomicFile::create(place.path)?;
        file.write_all(page.as_bytes()).with_context(|| format!("cannot write {}", place.path.display()))?;
        Ok(file.publish()?)
    }
}
