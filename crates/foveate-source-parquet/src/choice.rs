//! Which columns to read.

use arrow_schema::{DataType, Field, Fields};
use foveate_source::FetchError;
use foveate_source::container::ContainerOptions;

/// Columns that hold the images if several could.
const USUAL: [&str; 2] = ["image", "images"];

/// The columns to read, by their numbers among the columns of the batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) image: usize,
    /// True if a row has a list of images.
    pub(crate) is_list: bool,
    pub(crate) id: Option<usize>,
    pub(crate) columns: Vec<usize>,
}

impl Choice {
    /// Finds the columns among all `fields` of a file.
    pub(crate) fn new(fields: &Fields, options: &ContainerOptions) -> Result<Self, FetchError> {
        let image = image_column(fields, options.image_column.as_deref())?;
        Ok(Self {
            image,
            is_list: element(fields[image].data_type()).is_some(),
            id: options.id_column.as_deref().map(|name| find(fields, name)).transpose()?,
            columns: options.columns.iter().map(|name| find(fields, name)).collect::<Result<_, _>>()?,
        })
    }

    /// The numbers of the columns to read, in order, and the choice among these alone.
    pub(crate) fn project(&self) -> (Vec<usize>, Self) {
        let mut read: Vec<usize> =
            [self.image].into_iter().chain(self.id).chain(self.columns.iter().copied()).collect();
        read.sort_unstable();
        read.dedup();
        let mut projected = self.clone();
        let columns = projected.columns.iter_mut().chain(&mut projected.id).chain([&mut projected.image]);
        for column in columns {
            *column = read.partition_point(|other| *other < *column);
        }
        (read, projected)
    }
}

fn find(fields: &Fields, name: &str) -> Result<usize, FetchError> {
    fields.iter().position(|field| field.name() == name).ok_or_else(|| {
        let names = names(fields.iter().map(AsRef::as_ref));
        FetchError::NoColumn(format!("it has no column '{name}'; its columns are {names}"))
    })
}

/// The column that is asked for, else the only one with images, else the one with the usual name.
fn image_column(fields: &Fields, name: Option<&str>) -> Result<usize, FetchError> {
    if let Some(name) = name {
        let at = find(fields, name)?;
        let kind = fields[at].data_type();
        return if holds_images(kind) || holds_paths(element(kind).unwrap_or(kind)) {
            Ok(at)
        } else {
            Err(FetchError::NoColumn(format!("column '{name}' holds neither images nor paths, but {kind}")))
        };
    }
    let images: Vec<usize> = (0..fields.len()).filter(|&at| holds_images(fields[at].data_type())).collect();
    if images.is_empty() {
        let names = names(fields.iter().map(AsRef::as_ref));
        return Err(FetchError::NoColumn(format!("none of its columns has images: {names}; name one that has paths")));
    }
    the_one(&images, fields, "can hold images")
}

/// The only one of some columns, or the one with a usual name.
pub(crate) fn the_one(columns: &[usize], fields: &Fields, do_what: &str) -> Result<usize, FetchError> {
    if let [only] = columns {
        return Ok(*only);
    }
    let usual = USUAL.iter().find_map(|usual| columns.iter().find(|&&at| fields[at].name() == usual));
    usual.copied().ok_or_else(|| {
        let names = names(columns.iter().map(|&at| fields[at].as_ref()));
        FetchError::NoColumn(format!("several columns {do_what}: {names}; name the image column"))
    })
}

/// The columns of text, if none has images: one of them may have the images' paths.
pub(crate) fn texts(fields: &Fields) -> Vec<usize> {
    if fields.iter().any(|field| holds_images(field.data_type())) {
        return Vec::new();
    }
    (0..fields.len()).filter(|&at| holds_paths(fields[at].data_type())).collect()
}

/// Columns as `name (type)`, of which a wide table has too many to list.
pub(crate) fn names<'a>(fields: impl Iterator<Item = &'a Field>) -> String {
    const MOST: usize = 20;
    let mut names: Vec<String> =
        fields.map(|field| format!("{} ({})", field.name(), kind(field.data_type()))).collect();
    if names.len() > MOST {
        let rest = names.split_off(MOST).len();
        names.push(format!("and {rest} more"));
    }
    if names.is_empty() { "(none)".to_owned() } else { names.join(", ") }
}

/// A type in a word, because that of a nested column takes lines.
fn kind(kind: &DataType) -> String {
    match kind {
        DataType::Struct(_) => "struct".to_owned(),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => "list".to_owned(),
        DataType::Map(..) => "map".to_owned(),
        kind if holds_paths(kind) => "text".to_owned(),
        kind if is_binary(kind) => "binary".to_owned(),
        kind => kind.to_string(),
    }
}

fn is_binary(kind: &DataType) -> bool {
    matches!(kind, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Bytes, the struct of Hugging Face's datasets, or lists of these.
fn holds_images(kind: &DataType) -> bool {
    match element(kind).unwrap_or(kind) {
        DataType::Struct(fields) => fields.find(BYTES).is_some_and(|(_, field)| is_binary(field.data_type())),
        kind => is_binary(kind),
    }
}

/// Paths or addresses.
pub(crate) fn holds_paths(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => holds_paths(values),
        kind => matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

/// The type of a list's elements; `None` for another type.
pub(crate) fn element(kind: &DataType) -> Option<&DataType> {
    match kind {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            Some(field.data_type())
        }
        _ => None,
    }
}

/// Fields of Hugging Face's struct.
pub(crate) const BYTES: &str = "bytes";
pub(crate) const PATH: &str = "path";

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        let bytes = Field::new(BYTES, DataType::Binary, true);
        let hugging_face = DataType::Struct(vec![bytes, Field::new(PATH, DataType::Utf8, true)].into());
        vec![
            Field::new("label", DataType::Int64, true),
            Field::new("url", DataType::Utf8, true),
            Field::new("thumbnail", DataType::LargeBinary, true),
            Field::new("image", hugging_face, true),
        ]
        .into()
    }

    fn choose(fields: &Fields, image: Option<&str>) -> Result<Choice, String> {
        let options = ContainerOptions {
            image_column: image.map(str::to_owned),
            id_column: Some("label".to_owned()),
            columns: vec!["url".to_owned(), "label".to_owned()],
            ..ContainerOptions::default()
        };
        Choice::new(fields, &options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_image_column_is_the_named_the_only_or_the_usual_one() {
        let fields = fields();
        let image = |name| choose(&fields, name).unwrap().image;
        assert_eq!((image(None), image(Some("thumbnail")), image(Some("url"))), (3, 2, 1));
        let without: Fields = fields.iter().take(3).cloned().collect();
        assert_eq!(choose(&without, None).unwrap().image, 2, "the only one");
        let text: Fields = fields.iter().take(2).cloned().collect();
        assert!(choose(&text, None).is_err(), "text is not a path");
        assert_eq!((texts(&text), texts(&fields)), (vec![1], vec![]));
    }

    #[test]
    fn errors_list_what_there_is() {
        let fields = fields();
        let error = choose(&fields, Some("picture")).unwrap_err();
        assert!(error.contains("'picture'") && error.contains("label (Int64), url (text)"), "{error}");
        assert!(choose(&fields, Some("label")).unwrap_err().contains("neither images nor paths"));
        let two: Fields =
            [2, 2].map(|at: usize| fields[at].clone()).into_iter().chain(fields.iter().take(2).cloned()).collect();
        let error = choose(&two, None).unwrap_err();
        assert!(error.contains("thumbnail (binary), thumbnail (binary)"), "{error}");
        let none: Fields = fields.iter().take(1).cloned().collect();
        let options = ContainerOptions::default();
        assert!(Choice::new(&none, &options).unwrap_err().to_string().contains("label (Int64)"));
    }

    #[test]
    fn only_what_is_needed_is_read() {
        let (read, projected) = choose(&fields(), None).unwrap().project();
        assert_eq!(read, [0, 1, 3]);
        assert_eq!(projected, Choice { image: 2, is_list: false, id: Some(0), columns: vec![1, 0] });
    }
}
