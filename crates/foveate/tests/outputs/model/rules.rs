//! The model: what an output must have after a command. It knows nothing of the program's code, files or order.

use std::collections::BTreeMap;

/// Content of a file. Contents with a number have bytes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Content {
    Image(u8),
    Damaged(u8),
    Unreadable,
}

/// A file's content at a time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) content: Content,
    pub(crate) time: u64,
}

/// The files of today by id; or what an output has: of each id the version that was embedded, or that failed.
pub(crate) type Versions = BTreeMap<String, Version>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Embed,
    Overwrite,
    Retry,
    Update { prunes: bool, by_content: bool, is_limited: bool },
}

/// The model: what the output must have after a command. `None` if the command must be refused.
pub(crate) fn expected(act: Act, output: Option<&Versions>, files: &Versions) -> Option<Versions> {
    let Some(output) = output.filter(|_| act != Act::Overwrite) else { return Some(files.clone()) };
    let mut new = output.clone();
    let is_failure = |version: &Version| !matches!(version.content, Content::Image(_));
    let Act::Update { prunes, by_content, is_limited } = act else {
        for (id, old) in output.iter().filter(|(_, old)| act == Act::Retry && is_failure(old)) {
            match files.get(id) {
                // It was read, and cannot be read now.
                Some(file) if file.content == Content::Unreadable && old.content != Content::Unreadable => {}
                Some(file) => _ = new.insert(id.clone(), *file),
                None => {}
            }
        }
        let is_away = |version: &Version| version.content == Content::Unreadable;
        let is_same = |old: &Version, file: &Version| old.time == file.time && is_away(old) == is_away(file);
        let is_known = |(id, file): (&String, &Version)| output.get(id).is_some_and(|old| is_same(old, file));
        return (act == Act::Retry || files.iter().all(is_known)).then_some(new);
    };
    let gone = output.keys().filter(|id| !files.contains_key(*id)).count();
    let has_none = gone > 0 && gone == output.len();
    if has_none || prunes && is_limited && gone * 10 > output.len() {
        return None;
    }
    for (id, file) in files {
        let is_kept = output.get(id).is_some_and(|old| match (old.content, file.content) {
            (Content::Unreadable, _) => false,
            (_, Content::Unreadable) => true,
            _ => !by_content && old.time == file.time,
        });
        if !is_kept {
            new.insert(id.clone(), *file);
        }
    }
    new.retain(|id, _| !prunes || files.contains_key(id));
    Some(new)
}

/// The model of a merge: the first row of an id, or else its first failure.
pub(crate) fn merged(first: &Versions, second: &Versions) -> Versions {
    let mut all = second.clone();
    for (id, version) in first {
        let is_row = |version: &Version| matches!(version.content, Content::Image(_));
        if is_row(version) || !second.get(id).is_some_and(is_row) {
            all.insert(id.clone(), *version);
        }
    }
    all
}

/// The outcome that the output must show.
pub(crate) fn contents(versions: &Versions) -> BTreeMap<String, Content> {
    let content = |version: &Version| match version.content {
        Content::Damaged(_) => Content::Damaged(0),
        content => content,
    };
    versions.iter().map(|(id, version)| (id.clone(), content(version))).collect()
}
