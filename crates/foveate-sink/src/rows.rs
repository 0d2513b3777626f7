//! Rows on their way to an output, and back.

use std::collections::BTreeMap;
use std::path::Path;

use foveate_core::ColumnKind;

use crate::{OutputManifest, RunManifest, SinkError};

/// A block of rows: the entries `i` of all slices belong together.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Position of each item in the source, increasing.
    pub index: &'a [u64],
    /// Each item's id.
    pub id: &'a [String],
    /// Vectors, `[n, dim]`, f32, row-major.
    pub vectors: &'a [f32],
    /// Width of each image in pixels, after orientation.
    pub width: &'a [u32],
    /// Height of each image in pixels, after orientation.
    pub height: &'a [u32],
    /// XXH3-64 of each file's bytes.
    pub xxh3: &'a [u64],
    /// Each item's values of [`SinkOptions::columns`](crate::SinkOptions::columns); may be empty if there are none.
    pub columns: &'a [Box<[Option<String>]>],
}

impl<'a> Rows<'a> {
    /// The values of row `row`.
    pub(crate) fn values(&self, row: usize) -> &'a [Option<String>] {
        self.columns.get(row).map_or(&[], |values| values)
    }

    /// Bytes of row `row`'s id and values.
    pub(crate) fn text_len(&self, row: usize) -> usize {
        self.id[row].len() + self.values(row).iter().flatten().map(String::len).sum::<usize>()
    }
}

/// The type of stored components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32-bit floats.
    #[default]
    F32,
    /// 16-bit floats, rounded to nearest even.
    F16,
}

impl Element {
    /// Both, the usual one first.
    pub const ALL: [Self; 2] = [Self::F32, Self::F16];

    /// The name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        }
    }

    /// Returns the element with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.name() == name)
    }

    /// Bytes of one component.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }

    /// Decodes little-endian components; those of f16 are widened.
    pub fn floats(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F32 => bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect(),
            Self::F16 => bytes.as_chunks().0.iter().map(|&two| half::f16::from_le_bytes(two).to_f32()).collect(),
        }
    }
}

/// Most components of a vector that is read: a bound for memory.
const MOST_DIM: usize = 1 << 24;

/// Kinds of columns by their names. Columns that are not there are text.
pub type ColumnKinds = BTreeMap<String, ColumnKind>;

/// The kinds as a fingerprint has them.
pub(crate) fn kinds_text(kinds: &ColumnKinds) -> String {
    let kinds: Vec<String> = kinds.iter().map(|(name, kind)| format!("{name}={}", kind.name())).collect();
    kinds.join(",")
}

/// Returns the kinds of columns that a fingerprint names.
pub fn column_kinds(fingerprint: &BTreeMap<String, String>) -> ColumnKinds {
    let named = fingerprint.get("sink.column_kinds").map_or("", String::as_str);
    let columns = named.split(',').filter_map(|part| {
        let (name, kind) = part.rsplit_once('=')?;
        Some((name.to_owned(), ColumnKind::named(kind)?))
    });
    columns.collect()
}

/// The vector and the columns that every row of an output has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Components of each vector.
    pub dim: usize,
    /// The type of stored components.
    pub element: Element,
    /// The names of the columns that the items carry along.
    pub columns: Vec<String>,
    /// Kinds of those that are not text.
    pub column_kinds: ColumnKinds,
}

impl Shape {
    /// The shape of an output's rows.
    ///
    /// # Errors
    /// [`SinkError::Unsupported`] for vectors that this program cannot read.
    pub fn of(manifest: &OutputManifest) -> Result<Self, SinkError> {
        let OutputManifest { dim, element, .. } = manifest;
        let known = Element::named(element).filter(|_| (1..=MOST_DIM).contains(dim));
        // No name of a column given on the command line has a comma.
        let columns =
            manifest.fingerprint.get("sink.columns").map(|names| names.split(',').map(str::to_owned).collect());
        let element =
            known.ok_or_else(|| SinkError::Unsupported(format!("vectors of {dim} components of type '{element}'")))?;
        let column_kinds = column_kinds(&manifest.fingerprint);
        Ok(Self { dim: *dim, element, columns: columns.unwrap_or_default(), column_kinds })
    }
}

/// A stored vector, and the properties of its image.
#[derive(Clone, Copy, Debug)]
pub struct StoredRow<'a> {
    /// The item's id.
    pub id: &'a str,
    /// The vector, `[dim]`; components of f16 are widened.
    pub vector: &'a [f32],
    /// Width of the image in pixels, after orientation.
    pub width: u32,
    /// Height of the image in pixels, after orientation.
    pub height: u32,
    /// XXH3-64 of the file's bytes.
    pub xxh3: u64,
    /// The values of [`Shape::columns`].
    pub columns: &'a [Option<String>],
}

/// Rows on their way to a sink.
#[derive(Debug, Default)]
pub struct RowBuffer {
    index: Vec<u64>,
    id: Vec<String>,
    vectors: Vec<f32>,
    width: Vec<u32>,
    height: Vec<u32>,
    xxh3: Vec<u64>,
    columns: Vec<Box<[Option<String>]>>,
}

impl RowBuffer {
    /// Adds a row, which gets the index `index`.
    pub fn push(&mut self, index: u64, row: &StoredRow<'_>) {
        self.index.push(index);
        self.id.push(row.id.to_owned());
        self.vectors.extend_from_slice(row.vector);
        self.width.push(row.width);
        self.height.push(row.height);
        self.xxh3.push(row.xxh3);
        self.columns.push(row.columns.into());
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The rows.
    pub fn rows(&self) -> Rows<'_> {
        Rows {
            index: &self.index,
            id: &self.id,
            vectors: &self.vectors,
            width: &self.width,
            height: &self.height,
            xxh3: &self.xxh3,
            columns: &self.columns,
        }
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.index.clear();
        self.id.clear();
        self.vectors.clear();
        self.width.clear();
        self.height.clear();
        self.xxh3.clear();
        self.columns.clear();
    }
}

/// Reads the files with vectors that a sink has written.
pub trait VectorReader: Send + Sync {
    /// Returns the manifest in the file at `path`, or `None` if the file has none.
    fn manifest(&self, _path: &Path) -> Result<Option<RunManifest>, SinkError> {
        Ok(None)
    }

    /// Calls `act` with each row, in the order in which they were stored. Holds a bounded number of rows in memory.
    ///
    /// # Errors
    /// [`SinkError::Damaged`] if the file does not hold rows of this shape, and the errors of `act`.
    fn for_each(&self, path: &Path, shape: &Shape, act: &mut ActOnRow<'_>) -> Result<(), SinkError>;
}

/// Gets the rows of a file, one after the other.
pub type ActOnRow<'a> = dyn FnMut(&StoredRow<'_>) -> Result<(), SinkError> + 'a;
