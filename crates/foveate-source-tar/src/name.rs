//! The role of a member, by its name.

use foveate_source::{FOREIGN_EXTENSIONS, IMAGE_EXTENSIONS};

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberRole {
    /// An input.
    Image,
    /// Data about the images with its key.
    Sidecar(Sidecar),
    /// Nothing that is read.
    Other,
}

/// The kinds of files that accompany images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sidecar {
    Json,
    /// Text, which is the column with the name of its extension.
    Text(&'static str),
}

const SIDECARS: [(&str, Sidecar); 3] =
    [("json", Sidecar::Json), ("txt", Sidecar::Text("txt")), ("cls", Sidecar::Text("cls"))];

/// The role of the member with this name. Images in a format that no decoder reads are inputs too: unlike a folder's
/// listing, a tar has nowhere to count what it leaves out.
pub(crate) fn role(name: &[u8]) -> MemberRole {
    let after_key = name.get(key(name).len() + 1..).unwrap_or_default();
    let last = after_key.rsplit(|&byte| byte == b'.').next().unwrap_or_default();
    let mut images = IMAGE_EXTENSIONS.iter().chain(&FOREIGN_EXTENSIONS);
    if images.any(|known| last.eq_ignore_ascii_case(known.as_bytes())) {
        return MemberRole::Image;
    }
    let sidecar = SIDECARS.iter().find(|(extension, _)| after_key.eq_ignore_ascii_case(extension.as_bytes()));
    sidecar.map_or(MemberRole::Other, |(_, sidecar)| MemberRole::Sidecar(*sidecar))
}

/// The part of a name that an image and its sidecars have in common: up to the first dot of the last component.
pub(crate) fn key(name: &[u8]) -> &[u8] {
    let file = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let dot = name[file..].iter().position(|&byte| byte == b'.');
    &name[..dot.map_or(name.len(), |dot| file + dot)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_images_and_sidecars() {
        for name in ["a.jpg", "a/b.c.JPEG", "../a.webp", "/x/a.seg.png", "a.heic", "a/./b.tif", "a..png"] {
            assert_eq!(role(name.as_bytes()), MemberRole::Image, "{name}");
        }
        for name in ["", "a", "jpg", "a.jpg/", "a.jpg/b", "a.mp4", "a.jpg.json"] {
            assert_eq!(role(name.as_bytes()), MemberRole::Other, "{name}");
        }
        assert_eq!(role(b"a.b/c.json"), MemberRole::Sidecar(Sidecar::Json));
        assert_eq!(role(b"c.TXT"), MemberRole::Sidecar(Sidecar::Text("txt")));
        assert_eq!(role(b"\xff.cls"), MemberRole::Sidecar(Sidecar::Text("cls")));
    }

    #[test]
    fn keys_end_at_the_first_dot_of_the_last_component() {
        for (name, expected) in [("a.jpg", "a"), ("v1.2/a.seg.png", "v1.2/a"), ("a", "a"), ("a.b/", "a.b/"), ("", "")] {
            assert_eq!(key(name.as_bytes()), expected.as_bytes(), "{name}");
        }
    }
}
