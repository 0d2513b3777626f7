//! Pages of small pictures.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, Mutex};

use anyhow::{Context, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foveate::core::lock;
use foveate::embed::Backends;
use foveate::pictures::{Picture, WantedPicture, WantedPictures, each_picture};
use foveate::pipeline::Cancel;
use foveate::report::escape;
use foveate::sink::{AtomicFile, OutputManifest, RecordedHash};

use super::images::{FoundImages, find_images};
use super::place::GENERATOR;
use super::vectors::Loaded;
use crate::cli::console;
use crate::cli::exit::Usage;
use crate::cli::labels::Labels;
use crate::cli::own_file::OwnFile;
use crate::cli::search_args::{LabelArgs, PageArgs, SearchArgs, SheetArgs};
use crate::cli::summary::human_bytes;

/// Pixels of a picture's shorter side.
const EDGE: u32 = 160;
/// Pictures of a page, so that browsers open it: about 10 MB.
pub(super) const MOST: usize = 1000;
/// Of so many pictures, one must be there: others than these images were named.
const ONE_IN: usize = 20;

/// A page.
pub(super) struct Sheet {
    pub(super) title: &'static str,
    /// The page's content, in a sentence.
    pub(super) lead: String,
    pub(super) rows: Vec<Row>,
}

/// Sets of pictures under a heading. The two of a pair stay together at any width.
pub(super) struct Row {
    pub(super) heading: String,
    pub(super) sets: Vec<Vec<Card>>,
}

/// A picture and what is said about it.
#[derive(Default)]
pub(super) struct Card {
    pub(super) id: String,
    pub(super) hash: Option<RecordedHash>,
    /// Width and height; 0 if they are not known.
    pub(super) size: (u32, u32),
    pub(super) caption: String,
    pub(super) is_marked: bool,
    /// It is selected from the beginning.
    pub(super) is_picked: bool,
}

impl Card {
    /// A row with its score.
    pub(super) fn scored(loaded: &Loaded, (row, score): (u32, f64), is_marked: bool) -> Self {
        let at = row as usize;
        let id = loaded.ids[at].to_string();
        let caption = format!("{score:.4}");
        Self { id, hash: loaded.hashes[at], size: loaded.sizes[at], caption, is_marked, is_picked: false }
    }
}

/// Checks a page's arguments before the search takes its time. A page without the images has pictures only of
/// `has_others`.
pub(super) fn begin_page(args: &SearchArgs, page: &PageArgs, has_others: bool) -> Result<(), Usage> {
    let Some(html) = page.html.as_ref().filter(|_| page.images.is_empty()) else { return Ok(()) };
    let html = html.display();
    if !has_others {
        return Err(anyhow!("--html {html} needs --images INPUT, where the images are now: a folder, 'x/*.tar'").into());
    }
    if !args.quiet {
        console::say!("warning: {html} will have no pictures of these vectors; --images names their folders");
    }
    Ok(())
}

/// Does so for a page with labels, and reads those of a file.
pub(super) fn begin_sheet(args: &SearchArgs, sheet: &SheetArgs, has_others: bool) -> Result<Option<Labels>, Usage> {
    begin_page(args, &sheet.page, has_others)?;
    let LabelArgs { labels, label_column } = &sheet.labels;
    if sheet.page.html.is_none() && (labels.is_some() || label_column.is_some()) {
        return Err(anyhow!("labels are shown on a page; name it with --html, or leave --labels out").into());
    }
    labels.as_deref().map(|path| Labels::read_column(path, label_column.as_deref())).transpose()
}

/// Sources of pictures.
pub(super) struct PictureInputs<'a> {
    /// Of images that were embedded as `manifest` says.
    pub(super) images: &'a [PathBuf],
    pub(super) manifest: Option<&'a OutputManifest>,
    /// Of the very ids, such as queries.
    pub(super) others: &'a [PathBuf],
}

/// Pictures by id.
#[derive(Default)]
pub(super) struct Pictures {
    pub(super) of: HashMap<String, CardPicture>,
    /// The reason that there is no page.
    fault: Option<String>,
}

pub(super) struct CardPicture {
    pub(super) picture: Picture,
    /// It is the image of the id for sure, and not by the end of a name alone.
    pub(super) is_sure: bool,
    path: Option<PathBuf>,
}

struct PictureReading<'a> {
    ids: &'a HashMap<&'a str, WantedPicture>,
    cancel: &'a Cancel,
    of: Mutex<HashMap<String, CardPicture>>,
    /// The reason that one of them cannot be read.
    why: Mutex<Option<String>>,
}

impl PictureReading<'_> {
    /// Reads images, and remembers the files of those that pages may lead to.
    fn read(&self, found: FoundImages<'_>, has_links: bool) -> anyhow::Result<()> {
        let backends = Arc::new(Backends::compiled());
        let mut wanted: Vec<_> = found.listings.iter().map(|_| HashMap::new()).collect();
        let mut images = HashMap::new();
        for (&id, image) in &found.images {
            wanted[image.listing].insert(image.item.id.as_str(), self.ids[id]);
            let file = found.file_of(image).filter(|file| has_links && file.is_whole());
            let path = file.and_then(|file| file.path);
            images.insert((image.listing, image.item.id.as_str()), (id, image.is_exact, path));
        }
        for (number, ((listing, options), wanted)) in found.listings.into_iter().zip(&wanted).enumerate() {
            if wanted.is_empty() {
                continue;
            }
            let wanted = WantedPictures { of: wanted, edge: EDGE };
            each_picture(listing, &options, &backends, &wanted, self.cancel, &|listed, picture| match picture {
                Ok(picture) => {
                    let (id, is_exact, path) = &images[&(number, listed)];
                    let is_sure = picture.is_recorded.unwrap_or(*is_exact);
                    lock(&self.of).insert((*id).to_owned(), CardPicture { picture, is_sure, path: path.clone() });
                }
                Err(error) => drop(lock(&self.why).get_or_insert_with(|| format!("{listed}: {error}"))),
            })?;
        }
        Ok(())
    }
}

/// Reads the pictures of some ids, until it is cancelled. Says how many are missing.
pub(super) fn pictures(
    args: &SearchArgs,
    inputs: &PictureInputs<'_>,
    cancel: &Cancel,
    ids: &HashMap<&str, WantedPicture>,
) -> anyhow::Result<Pictures> {
    // An id is not opened by itself: in vectors of others, it may be any file or address that this user can read.
    let reading = PictureReading { ids, cancel, of: Mutex::default(), why: Mutex::default() };
    let mut others = find_images(args, None, inputs.others, cancel, ids.keys().copied())?;
    others.images.retain(|_, image| image.is_exact);
    reading.read(others, false)?;
    let mut wanted: Vec<&str> = ids.keys().copied().filter(|id| !lock(&reading.of).contains_key(*id)).collect();
    // The order in which images are looked for decides which one a message names.
    wanted.sort_unstable();
    let mut found = find_images(args, inputs.manifest, inputs.images, cancel, wanted.iter().copied())?;
    let other = found.one_other.take();
    let ambiguous = found.ambiguous;
    reading.read(found, true)?;
    let of = reading.of.into_inner().unwrap_or_default();
    let missing: Vec<&str> = wanted.iter().copied().filter(|id| !of.contains_key(*id)).collect();
    let Some(first) = missing.first().filter(|_| !inputs.images.is_empty() && !cancel.is_cancelled()) else {
        return Ok(Pictures { of, fault: None });
    };
    let mut why = vec![format!("such as {first}")];
    if ambiguous > 0 {
        why.push(format!("{ambiguous} of them fit several images or share one"));
    }
    why.extend(reading.why.into_inner().unwrap_or_default());
    if let Some(other) = other.filter(|_| why.len() == 1) {
        why.push(format!("while --images has images such as {other}"));
    }
    let why = format!("{} of {} pictures are missing ({})", missing.len(), wanted.len(), why.join("; "));
    let is_page = ids.values().any(|picture| picture.is_shown);
    let is_fault = is_page && (wanted.len() - missing.len()) * ONE_IN < wanted.len();
    if !is_fault && !args.quiet {
        console::say!("warning: {why}");
    }
    Ok(Pictures { of, fault: is_fault.then_some(why) })
}

impl Sheet {
    /// The ids whose pictures are shown.
    pub(super) fn ids(&self) -> HashMap<&str, WantedPicture> {
        let cards = self.rows.iter().flat_map(|row| &row.sets).flatten();
        cards.map(|card| (card.id.as_str(), WantedPicture { is_shown: true, hash: card.hash })).collect()
    }

    /// Writes the page, which needs no other file.
    ///
    /// # Errors
    /// If it cannot be written, or nearly all pictures are missing.
    pub(super) fn write(&self, place: OwnFile<'_>, pictures: &Pictures, labels: Option<&Labels>) -> anyhow::Result<()> {
        let name = place.path.display();
        if let Some(why) = &pictures.fault {
            bail!(
                "cannot write the page {name}: {why}; name with --images where these images are now, whose paths end as \
                 the ids do; all else is written"
            );
        }
        let mut page =
            format!(include_str!("sheet.html"), generator = GENERATOR, title = self.title, lead = escape(&self.lead));
        for Row { heading, sets } in &self.rows {
            let button = "<button type=\"button\" data-do=\"group\">all / none</button>";
            let _ = writeln!(page, "<section><header><h2>{}</h2>{button}</header>", escape(heading));
            for set in sets {
                let _ = writeln!(page, "<div class=\"{}\">", if set.len() == 2 { "pair" } else { "set" });
                for card in set {
                    card.write(&mut page, pictures.of.get(&card.id), labels, place.path);
                }
                page.push_str("</div>\n");
            }
            page.push_str("</section>\n");
        }
        let _ = write!(page, "</main></form><script>\n{}</script></body></html>\n", include_str!("sheet.js"));
        place.check()?;
        let mut file = AtomicFile::create(place.path)?;
        file.write_all(page.as_bytes()).with_context(|| format!("cannot write {name}; all else is written"))?;
        Ok(file.publish()?)
    }
}

impl Card {
    fn write(&self, page: &mut String, found: Option<&CardPicture>, labels: Option<&Labels>, place: &Path) {
        let class = if self.is_marked { " class=\"marked\"" } else { "" };
        let image = match found {
            Some(CardPicture { picture, .. }) => {
                let data = STANDARD.encode(&picture.thumbnail);
                format!("<img loading=\"lazy\" alt=\"\" src=\"data:image/jpeg;base64,{data}\">")
            }
            None => "<p class=\"none\">no picture</p>".to_owned(),
        };
        let id = attribute(&self.id);
        let checked = if self.is_picked { " checked" } else { "" };
        let _ = write!(page, "<figure{class}><label>{image}<input type=\"checkbox\" value=\"{id}\"{checked}></label>");
        let _ = write!(page, "<figcaption><b>{}</b>", escape(&self.caption));
        let mut known = Vec::new();
        if self.size.0 > 0 {
            known.push(format!("{} × {} px", self.size.0, self.size.1));
        } else if let Some(CardPicture { picture, .. }) = found {
            known.push(format!("{} × {} px", picture.size.width, picture.size.height));
        }
        if let Some(CardPicture { picture, .. }) = found {
            known.push(human_bytes(picture.bytes));
            if picture.is_recorded == Some(false) {
                known.push("not the bytes that were embedded".to_owned());
            }
        }
        let _ = write!(page, "<span>{}</span>", known.join(", "));
        if let Some(label) = labels.and_then(|labels| labels.of(&self.id)) {
            let _ = write!(page, "<em><bdi>{}</bdi></em>", escape(label));
        }
        let name = escape(&self.id);
        let _ = write!(
            page,
            "<button type=\"button\" class=\"name\" data-do=\"name\" title=\"{id}\"><bdi>{name}</bdi></button>"
        );
        if let Some(path) = found.and_then(|found| found.path.as_deref()) {
            let _ = write!(page, "<a href=\"{}\" target=\"_blank\">open</a>", link(place, path));
        }
        page.push_str("</figcaption></figure>\n");
    }
}

/// Escapes an attribute's value. A raw carriage return would become a line feed.
fn attribute(text: &str) -> String {
    escape(text).replace('\r', "&#13;").replace('\n', "&#10;")
}

/// The address of a file: relative to the page if it is below its folder, so that both can be moved together.
fn link(page: &Path, file: &Path) -> String {
    let file = absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = absolute(page).ok().and_then(|page| page.parent().map(Path::to_owned));
    let below = folder.and_then(|folder| file.strip_prefix(folder).ok());
    let mut address = if below.is_some() { "./".to_owned() } else { "file://".to_owned() };
    for &byte in below.unwrap_or(&file).as_os_str().as_encoded_bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'/' | b'.' | b'-' | b'_' => address.push(byte.into()),
            _ => drop(write!(address, "%{byte:02X}")),
        }
    }
    address
}
