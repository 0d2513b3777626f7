//! Layouts of checkpoints: where a file has the tensors of a [`Network`](crate::Network).

/// A library's names of tensors.
#[derive(Debug)]
pub(crate) struct Layout {
    /// What may stand before every name, for example in checkpoints with a classifier. It is removed.
    pub(crate) prefixes: &'static [&'static str],
    /// The beginnings of the image encoder's own names. Anything else (a classifier, a text tower) is ignored.
    pub(crate) own: &'static [&'static str],
    /// Own tensors on which no vector depends.
    pub(crate) unused: &'static [&'static str],
    /// Names or their beginnings up to a dot, `{}` for the block's number, and where the file has them. The first that
    /// fits counts; what none fits has its own name.
    pub(crate) names: &'static [(&'static str, Stored)],
}

/// The place of a tensor in a file, by name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored {
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

impl Layout {
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
        for (known, stored) in self.names {
            let Some(rest) = template.strip_prefix(known) else { continue };
            if rest.is_empty() || rest.starts_with('.') || known.ends_with('.') {
                return stored.named(rest, layer);
            }
        }
        Stored::At("").named(name, "")
    }
}

impl Stored {
    fn named(self, rest: &str, layer: &str) -> StoredName {
        let full = |name: &str| format!("{}{rest}", name.replace("{}", layer));
        let whole = (0, 1);
        let (names, part) = match self {
            Self::At(name) | Self::Transposed(name) => (vec![full(name)], whole),
            Self::Part(name, index, count) => (vec![full(name)], (index, count)),
            Self::Joined(first, second) => (vec![full(first), full(second)], whole),
        };
        StoredName { names, part, is_transposed: matches!(self, Self::Transposed(_)) }
    }
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
        let layout = Layout {
            prefixes: &["model."],
            own: &["blocks.", "norm."],
            unused: &["norm.extra"],
            names: &[
                ("encoder.layer.{}.attention.attention.key", Stored::Part("blocks.{}.attn.qkv", 1, 3)),
                ("encoder.layer.{}.", Stored::At("blocks.{}.")),
                ("encoder.layer.{}.mlp.weights_in", Stored::Joined("never", "reached")),
                ("layernorm", Stored::At("norm")),
            ],
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
