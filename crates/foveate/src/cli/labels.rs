//! Labels of images, from a CSV file.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;

/// The labels of names, which are ends of ids.
pub(crate) struct Labels(HashMap<String, String>);

impl Labels {
    /// Reads the columns `id` or `file`, and `label`. Of a name that is there twice, the first line counts.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("cannot read the labels in {}", path.display());
        let mut reader = csv::Reader::from_path(path).with_context(context)?;
        let headers = reader.headers().with_context(context)?.clone();
        let column = |names: &[&str]| headers.iter().position(|header| names.contains(&header));
        let file = column(&["id", "file"]).with_context(|| format!("{}: no column 'id' or 'file'", path.display()))?;
        let label = column(&["label"]).with_context(|| format!("{}: no column 'label'", path.display()))?;
        let mut labels = HashMap::new();
        for record in reader.records() {
            let record = record.with_context(context)?;
            let field = |at| record.get(at).unwrap_or_default().to_owned();
            labels.entry(field(file)).or_insert_with(|| field(label));
        }
        Ok(Self(labels))
    }

    /// Returns the label of an image whose id is a name in the file, or whose path ends in one; the longest counts.
    pub(crate) fn of(&self, id: &str) -> Option<&str> {
        let ends = id.match_indices(['/', '\\']).map(|(at, _)| &id[at + 1..]);
        let found = std::iter::once(id).chain(ends).filter(|name| !name.is_empty());
        found.filter_map(|name| self.0.get(name)).next().map(String::as_str)
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Labels {
    fn from(labels: [(&str, &str); N]) -> Self {
        Self(labels.into_iter().map(|(name, label)| (name.to_owned(), label.to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_belong_to_the_ends_of_paths() {
        let labels = Labels::from([("a/x.jpg", "apple"), ("x.jpg", "any"), ("y.jpg", "pear"), ("", "none")]);
        assert_eq!(labels.of("photos/a/x.jpg"), Some("apple"));
        assert_eq!(labels.of("a/x.jpg"), Some("apple"));
        assert_eq!(labels.of("photos/ba/x.jpg"), Some("any"));
        assert_eq!(labels.of("photos/yy.jpg"), None);
        assert_eq!(labels.of("photos/"), None);
    }
}
