//! Which column of text has the paths of images, by its values.

use arrow_array::RecordBatch;
use arrow_schema::Fields;
use foveate_source::store::{normal_address, scheme_of};
use foveate_source::{FOREIGN_EXTENSIONS, FetchError, IMAGE_EXTENSIONS};

use crate::choice::{names, the_one};
use crate::text::text;

/// Values of a column that are looked at.
const VALUES: usize = 100;

/// Longest path or address.
pub(crate) const MOST_PATH: usize = 8 << 10;

/// The first characters of images in base64: JPEG, PNG, GIF, WebP.
const BASE64: [&str; 4] = ["/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR"];

/// The kind of most values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Paths or addresses with an image's extension.
    Images,
    /// Addresses of anything.
    Addresses,
    /// Images in base64.
    Base64,
    Other,
}

/// Chooses among the `columns` of `fields`, whose first rows are in `batch`, in the same order.
///
/// # Errors
/// If the values of none or of several look like paths of images.
pub(crate) fn path_column(
    fields: &Fields,
    columns: &[usize],
    batch: Option<&RecordBatch>,
    of_batch: &[usize],
) -> Result<usize, FetchError> {
    let Some(batch) = batch else { return Ok(columns[0]) };
    let mut looks = Vec::new();
    for &column in of_batch {
        let mut values = Vec::new();
        for row in 0..batch.num_rows().min(VALUES) {
            values.extend(text(batch.column(column), row)?);
        }
        looks.push(look(&values));
    }
    for wanted in [Look::Images, Look::Addresses] {
        let alike = columns.iter().zip(&looks).filter(|(_, look)| **look == wanted).map(|(&column, _)| column);
        let alike: Vec<usize> = alike.collect();
        if !alike.is_empty() {
            return the_one(&alike, fields, "look like paths of images");
        }
    }
    if let Some(at) = looks.iter().position(|look| *look == Look::Base64) {
        return Err(FetchError::NoColumn(in_base64(&format!("column '{}'", fields[columns[at]].name()))));
    }
    let names = names(fields.iter().map(AsRef::as_ref));
    Err(FetchError::NoColumn(format!("no column has images, or values that look like their paths: {names}; name one")))
}

fn look(values: &[String]) -> Look {
    if most(values, is_base64) {
        Look::Base64
    } else if most(values, names_image) {
        Look::Images
    } else if most(values, |value| scheme_of(normal_address(value).as_bytes()).is_some()) {
        Look::Addresses
    } else {
        Look::Other
    }
}

/// Returns true if this holds for half of the values or more, and for one at least.
fn most(values: &[String], is: fn(&str) -> bool) -> bool {
    let count = values.iter().filter(|value| is(value)).count();
    count > 0 && count * 2 >= values.len()
}

fn names_image(value: &str) -> bool {
    let address = normal_address(value);
    let path = match scheme_of(address.as_bytes()) {
        Some(_) => address.split(['?', '#']).next().unwrap_or_default(),
        None => &address,
    };
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    value.len() <= MOST_PATH
        && IMAGE_EXTENSIONS.iter().chain(&FOREIGN_EXTENSIONS).any(|known| known.eq_ignore_ascii_case(extension))
}

/// Returns true for an image in base64 rather than a path.
pub(crate) fn is_base64(value: &str) -> bool {
    const LEAST: usize = 64;
    let begins = BASE64.iter().any(|start| value.starts_with(start));
    let is_data = value.get(..11).is_some_and(|start| start.eq_ignore_ascii_case("data:image/"));
    value.len() >= LEAST && (begins || is_data)
}

/// The reason that `what` is not read.
pub(crate) fn in_base64(what: &str) -> String {
    format!("{what} is images in base64, which are not read; write a binary column (Python: base64.b64decode)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_tell_what_a_column_has() {
        let look_of = |values: &[&str]| look(&values.iter().map(|&value| value.to_owned()).collect::<Vec<_>>());
        assert_eq!(look_of(&["a/b.jpg", "c.HEIC", "no image"]), Look::Images);
        assert_eq!(look_of(&["https://host/a.webp?w=3&x=.txt", "S3://b/k.png"]), Look::Images);
        assert_eq!(look_of(&["https://host/page", "http://host/"]), Look::Addresses);
        assert_eq!(look_of(&["a cat.", "a jpg", "jpg", "report.pdf"]), Look::Other);
        assert_eq!(look_of(&[]), Look::Other);
        let image = format!("/9j/{}", "A".repeat(100));
        assert_eq!(look_of(&[&image]), Look::Base64);
        assert_eq!(look_of(&[&format!("DATA:image/png;base64,{image}")]), Look::Base64);
        assert_eq!(look_of(&["/9j/a.jpg"]), Look::Images);
    }
}
