//! Layouts of checkpoints: where a file has the tensors of a [`Network`](crate::Network).

/// A library's names of tensors.
#[derive(Debug)]
pub(crate) struct NameTable {
    /// What may stand before every name, for example in checkpoints with a classifier. It is removed.
    pub(crate) prefixes: &'static [&'static str],
    /// The beginnings of the image encoder's own names. Anything else (a classifier, a text tower) is ignored.
    pub(crate) own: &'static [&'static str],
    /// Own tensors on which no vector depends.
    pub(crate) unused: &'static [&'static str],
    /// Names or their beginnings up to a dot, `{}` for the block's number, and where the file has them. The first that
    /// fits counts; what none fits has its own name. Several tables if families share one of them.
    pub(crate) names: &'static [NamesBelow],
}

/// What stands before a file's names, and the names.
pub(crate) type NamesBelow = (&'static str, &'static [(&'static str, StoredAt)]);

/// The place of a tensor in a file, by name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoredAt {
    /// Under this name.
    At(&'static str),
    /// Some of several tensors that lie one behind the other in the first dimension: `(name, index, count)`.
    Part(&'static str, usize, usize),
    /// Two tensors, to be laid one behind the other in the first dimension.
    Joined(&'static str, &'static str),
    /// With rows and columns exchanged.
    Transposed(&'static str),
}

/// The same with the names in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredName {
    pub(crate) names: Vec<String>,
    /// Index and count of the part that is meant.
    pub(crate) part: (usize, usize),
    pub(crate) is_transposed: bool,
}

impl NameTable {
    /// A name in a file without its prefix.
    pub(crate) fn strip<'a>(&self, name: &'a str) -> &'a str {
        self.prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
    }

    /// Returns true if `name`, without its prefix, should be a tensor of the network.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        self.own.iter().any(|own| name.starts_with(own)) && !self.unused.iter().any(|unused| name.starts_with(unused))
    }

    /// The place of the tensor `name`.
    pub(crate) fn find(&self, name: &str) -> StoredName {
        let (template, layer) = template(name);
        for (before, names) in self.names {
            for (known, stored) in *names {
                let Some(rest) = template.strip_prefix(known) else { continue };
                if rest.is_empty() || rest.starts_with('.') || known.ends_with('.') {
                    return stored.named(before, rest, layer);
                }
            }
        }
        StoredAt::At("").named("", name, "")
    }
}

impl StoredAt {
    fn named(self, before: &str, rest: &str, layer: &str) -> StoredName {
        let whole = (0, 1);
        let (names, part) = match self {
            Self::At(name) | Self::Transposed(name) => (vec![in_full(before, name, rest, layer)], whole),
            Self::Part(name, index, count) => (vec![in_full(before, name, rest, layer)], (index, count)),
            Self::Joined(first, second) => {
                (vec![in_full(before, first, rest, layer), in_full(before, second, rest, layer)], whole)
            }
        };
        StoredName { names, part, is_transposed: matches!(self, Self::Transposed(_)) }
    }
}

/// A name in a file, with the block's number, and the rest of a tensor's name behind it.
fn in_full(before: &str, name: &str, rest: &str, layer: &str) -> String {
    format!("{before}{}{rest}", name.replace("{}", layer))
}

/// Replaces the number of a block by `{}`, and returns it.
fn template(name: &str) -> (String, &str) {
    const BLOCKS: &str = "encoder.layer.";
    let Some((layer, rest)) = name.strip_prefix(BLOCKS).and_then(|rest| rest.split_once('.')) else {
        return (name.to_owned(), "");
    };
    (format!("{BLOCKS}{{}}.{rest}"), layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_beginning() {
        let layout = NameTable {
            prefixes: &["model."],
            own: &["blocks.", "norm."],
            unused: &["norm.extra"],
            names: &[(
                "",
                &[
                    ("encoder.layer.{}.attention.attention.key", StoredAt::Part("blocks.{}.attn.qkv", 1, 3)),
                    ("encoder.layer.{}.", StoredAt::At("blocks.{}.")),
                    ("encoder.layer.{}.mlp.weights_in", StoredAt::Joined("never", "reached")),
                    ("layernorm", StoredAt::At("norm")),
                ],
            )],
        };
        let key = layout.find("encoder.layer.11.attention.attention.key.weight");
        assert_eq!((key.names, key.part), (vec!["blocks.11.attn.qkv.weight".to_owned()], (1, 3)));
        assert_eq!(layout.find("encoder.layer.2.norm1.bias").names, ["blocks.2.norm1.bias"]);
        assert_eq!(layout.find("layernorm.bias").names, ["norm.bias"]);
        assert_eq!(layout.find("layernormal.bias").names, ["layernormal.bias"]);
        assert_eq!(layout.strip("model.norm.bias"), "norm.bias");
        assert!(layout.is_own("norm.bias") && !layout.is_own("norm.extra.bias") && !layout.is_own("head.weight"));
    }
}
