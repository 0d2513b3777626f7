//! Containers: files with many images inside, such as tar shards, zip archives and Parquet files.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use foveate_core::{ColumnKind, Health, Registry, named_backend};

use crate::blob::Blob;
use crate::fetch::DEFAULT_MAX_BYTES;
use crate::version::Version;
use crate::{FetchError, NameFilter};

/// Settings of reading containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerOptions {
    /// Largest image, in bytes.
    pub max_bytes: u64,
    /// Names of the fields that members carry along, in the order of [`Member::columns`].
    pub columns: Vec<String>,
    /// The column with the images, in formats that have columns; `None` finds it by its type.
    pub image_column: Option<String>,
    /// The column with the ids, in formats that have columns; `None` makes ids of the container's name and the member's
    /// name or row.
    pub id_column: Option<String>,
    /// Which files, objects and members count. Rows of tables have no names.
    pub names: NameFilter,
}

impl Default for ContainerOptions {
    fn default() -> Self {
        Self {
            max_bytes: DEFAULT_MAX_BYTES,
            columns: Vec::new(),
            image_column: None,
            id_column: None,
            names: NameFilter::default(),
        }
    }
}

/// Reads a container's members in their order in the container.
///
/// A member that cannot be read is a member with [`MemberContent::Failed`]. After an error of the container itself no
/// further member can be found: [`FetchError::Damaged`] if its bytes are at fault, [`FetchError::Unreachable`] or
/// [`FetchError::Io`] if its storage is.
pub trait Members: Send {
    /// The next member, or `None` at the container's end.
    fn next(&mut self) -> Result<Option<Member>, FetchError>;

    /// Skips `count` members, or all if there are fewer; reads no more than finding the next one takes.
    fn skip(&mut self, count: u64) -> Result<(), FetchError> {
        for _ in 0..count {
            if self.next()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// The names of the columns and of the one with the ids that no member so far has, not even without a value. Tables
    /// declare their columns, and have all.
    fn absent(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// One image of a container.
#[derive(Debug)]
pub struct Member {
    /// Its name.
    pub name: MemberName,
    /// Its bytes.
    pub content: MemberContent,
    /// The container's record of its content.
    pub version: Version,
    /// The values of [`ContainerOptions::columns`], one for each; empty if none are asked for.
    pub columns: Box<[Option<String>]>,
}

/// The source of a member's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberName {
    /// The container's name, a slash, and this. Bytes that are not UTF-8 are escaped as in paths.
    Key(Vec<u8>),
    /// This alone.
    Id(String),
}

/// A member's bytes.
#[derive(Debug)]
pub enum MemberContent {
    /// They are these.
    Here(Bytes),
    /// They are in the file or object with this path or address.
    At(Vec<u8>),
    /// They cannot be read.
    Failed(FetchError),
}

type Open = dyn Fn(Arc<dyn Blob>, &ContainerOptions) -> Result<Box<dyn Members>, FetchError> + Send + Sync;

/// Writes images into one container, in the order in which they come. Its bytes depend on these images alone.
pub trait MemberWriter: Send {
    /// Adds an image.
    fn add(&mut self, member: &NewMember<'_>) -> io::Result<()>;

    /// Completes the container. A container that was not completed is damaged.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// An image on its way into a container.
#[derive(Clone, Copy, Debug)]
pub struct NewMember<'a> {
    /// Name within the container, without an extension and a dot. Names differ.
    pub key: &'a str,
    /// Extension by format, without the dot.
    pub extension: &'a str,
    /// The user's name for it, which [`ContainerOptions::id_column`] reads back as [`ID_COLUMN`].
    pub id: &'a str,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The values of the writer's columns, one for each.
    pub columns: &'a [Option<String>],
}

/// The column of a written container that holds the ids.
pub const ID_COLUMN: &str = "id";

/// A named container format.
pub struct ContainerBackend {
    name: &'static str,
    about: &'static str,
    suffixes: &'static [&'static str],
    columns: Columns,
    health: fn() -> Health,
    open: Box<Open>,
    create: Option<Create>,
    open_rows: Option<OpenRows>,
}

/// A column of a table of any content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// The form in which [`TableRows::text`] gives it.
    pub kind: ColumnKind,
    /// It has lists of numbers, which [`TableRows::numbers`] gives.
    pub is_vector: bool,
}

/// The rows of a table of any content, of chosen columns.
pub trait TableRows: Send {
    /// Goes to the next row, at first to the first one; false at the end.
    fn advance(&mut self) -> Result<bool, FetchError>;

    /// The row's value of a chosen column, by its place among these, as text; `None` for a null.
    fn text(&self, column: usize) -> Result<Option<String>, FetchError>;

    /// Puts a list of numbers into `out` instead of what it had: nothing for a null, and NaN for a number that is
    /// missing.
    fn numbers(&self, column: usize, out: &mut Vec<f32>) -> Result<(), FetchError>;
}

/// Chooses columns of a table, by their places.
pub type ChooseColumns<'a> = dyn FnMut(&[TableColumn]) -> Result<Vec<usize>, FetchError> + 'a;

/// Opens a table.
type OpenRows = fn(Arc<dyn Blob>, &mut ChooseColumns<'_>) -> Result<Box<dyn TableRows>, FetchError>;

/// Begins a container with these columns.
type Create = fn(Box<dyn Write + Send>, &[String]) -> io::Result<Box<dyn MemberWriter>>;

/// Knowledge of its members' columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Columns {
    /// There are none.
    None,
    /// Members may have any.
    Any,
    /// A container declares them.
    Declared,
}

impl ContainerBackend {
    /// A format called `name`, of files whose names end in one of these `suffixes` (`tar.gz`) after a dot.
    pub fn new<F>(name: &'static str, about: &'static str, suffixes: &'static [&'static str], open: F) -> Self
    where
        F: Fn(Arc<dyn Blob>, &ContainerOptions) -> Result<Box<dyn Members>, FetchError> + Send + Sync + 'static,
    {
        let columns = Columns::None;
        let health = Health::all_rust;
        let open = Box::new(open);
        Self { name, about, suffixes, columns, health, open, create: None, open_rows: None }
    }

    /// Says that its containers can be written, by what `create` makes.
    #[must_use]
    pub fn with_writer(self, create: Create) -> Self {
        Self { create: Some(create), ..self }
    }

    /// Makes [`Self::open_rows`] call `open`.
    #[must_use]
    pub fn with_rows(self, open: OpenRows) -> Self {
        Self { open_rows: Some(open), ..self }
    }

    /// Says that its members can carry columns along.
    #[must_use]
    pub fn with_columns(self) -> Self {
        Self { columns: Columns::Any, ..self }
    }

    /// Says that its containers are tables, which declare their columns. Opening one that lacks a column of the options
    /// is [`FetchError::NoColumn`].
    #[must_use]
    pub fn with_schema(self) -> Self {
        Self { columns: Columns::Declared, ..self }
    }

    /// Returns true if its members can carry columns along.
    pub fn has_columns(&self) -> bool {
        self.columns != Columns::None
    }

    /// Returns true if its containers are tables, which declare their columns.
    pub fn has_schema(&self) -> bool {
        self.columns == Columns::Declared
    }

    /// The endings of its files' names, without the dot.
    pub fn suffixes(&self) -> &'static [&'static str] {
        self.suffixes
    }

    /// Opens a container.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or lacks what the options name.
    pub fn open(&self, blob: Arc<dyn Blob>, options: &ContainerOptions) -> Result<Box<dyn Members>, FetchError> {
        (self.open)(blob, options)
    }

    /// Opens a table of any content, to read the columns that `choose` returns. `None` if the format has no tables.
    ///
    /// # Errors
    /// If it cannot be read or is damaged, and those of `choose`.
    pub fn open_rows(
        &self,
        blob: Arc<dyn Blob>,
        choose: &mut ChooseColumns<'_>,
    ) -> Option<Result<Box<dyn TableRows>, FetchError>> {
        self.open_rows.map(|open| open(blob, choose))
    }

    /// Begins a container with these columns; `None` if the format cannot be written.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn create(&self, out: Box<dyn Write + Send>, columns: &[String]) -> Option<io::Result<Box<dyn MemberWriter>>> {
        self.create.map(|create| create(out, columns))
    }

    /// Returns true if the format can be written.
    pub fn is_writable(&self) -> bool {
        self.create.is_some()
    }

    fn takes(&self, name: &[u8]) -> bool {
        self.suffixes.iter().any(|suffix| {
            let dot = name.len().checked_sub(suffix.len() + 1);
            dot.is_some_and(|at| at > 0 && name[at] == b'.' && name[at + 1..].eq_ignore_ascii_case(suffix.as_bytes()))
        })
    }
}

named_backend!(ContainerBackend);

/// The container formats compiled into a program.
pub type ContainerRegistry = Registry<ContainerBackend>;

/// Returns the format of a file or object by the end of its name.
pub fn format_of<'a>(formats: &'a ContainerRegistry, name: &[u8]) -> Option<&'a ContainerBackend> {
    formats.iter().find(|format| format.takes(name))
}
