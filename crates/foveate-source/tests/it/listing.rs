//! Listings of real folders, lists and patterns.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foveate_source::conformance::{check, check_shards, enumerate};
use foveate_source::container::{ContainerOptions, ContainerRegistry};
use foveate_source::{FetchError, Input, Item, Listing, ListingBuilder, NameFilter, Separator, Source, SourceError};
use tempfile::TempDir;

/// A folder with files of the given names (their content is their name) and the folders that they need.
fn tree(files: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for file in files {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    root
}

fn listing(inputs: impl IntoIterator<Item = Input>) -> ListingBuilder<'static> {
    Listing::builder().inputs(inputs)
}

/// Ids without the root, prefixed with `!` if faulty.
fn names(root: &Path, builder: ListingBuilder<'_>) -> Vec<String> {
    let mut listing = builder.build().unwrap();
    enumerate(&mut listing).iter().map(|item| name(root, item)).collect()
}

fn name(root: &Path, item: &Item) -> String {
    let id = item.id.strip_prefix(root.to_str().unwrap()).unwrap_or(&item.id).trim_start_matches('/');
    format!("{}{id}", if item.fault.is_some() { "!" } else { "" })
}

fn path(root: &TempDir, name: &str) -> Input {
    Input::Path(root.path().join(name))
}

fn folder(root: &TempDir) -> Input {
    Input::Path(root.path().to_owned())
}

/// A list with one path per line.
fn list_of(path: &Path) -> Input {
    Input::List(path.to_owned(), Separator::Line)
}

fn fault(root: &TempDir, inputs: impl IntoIterator<Item = Input>) -> (String, String) {
    let mut listing = listing(inputs).build().unwrap();
    let items = enumerate(&mut listing);
    let mut faults = items.iter().filter(|item| item.fault.is_some());
    let item = faults.next().expect("one fault");
    assert!(faults.next().is_none(), "one fault only: {items:?}");
    assert_eq!(listing.stats().faults, 1);
    (name(root.path(), item).split_off(1), item.fault.clone().unwrap())
}

#[test]
fn folders_are_sorted_by_the_bytes_of_their_components() {
    let root = tree(&["b/2.jpg", "b/10.jpg", "a.jpg", "a/z.PNG", "a-b/x.webp", "Z.jpeg", "ä.gif", "b.tiff"]);
    let want = ["Z.jpeg", "a/z.PNG", "a-b/x.webp", "a.jpg", "b/10.jpg", "b/2.jpg", "b.tiff", "ä.gif"];
    assert_eq!(names(root.path(), listing([folder(&root)])), want);
}

/// A builder that takes only such names.
fn filtered(inputs: impl IntoIterator<Item = Input>, include: &[&str], exclude: &[&str]) -> ListingBuilder<'static> {
    let owned = |globs: &[&str]| globs.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
    let names = NameFilter::new(&owned(include), &owned(exclude)).unwrap();
    listing(inputs).containers(
        Arc::new(ContainerRegistry::new("container", &[])),
        ContainerOptions { names, ..ContainerOptions::default() },
    )
}

#[test]
fn what_systems_leave_behind_and_what_the_user_excludes_is_left_out_and_counted() {
    let photos = ["a.jpg", "raw/b.jpg", "raw/c.png"];
    let left = ["@eaDir/a.jpg/SYNOPHOTO_THUMB_M.jpg", "raw/@eaDir/t.jpg", "#recycle/d.jpg", "$RECYCLE.BIN/S-1/e.jpg"];
    let root = tree(&[&photos[..], &left].concat());
    let counts = |builder: ListingBuilder<'_>| {
        let stats = builder.build().unwrap().stats().clone();
        (stats.items, stats.skipped_system, stats.skipped_excluded)
    };
    assert_eq!(counts(listing([folder(&root)])), (3, 4, 0));
    assert_eq!(counts(filtered([folder(&root)], &["@eaDir"], &[])), (5, 2, 0));
    assert_eq!(counts(filtered([folder(&root)], &["*"], &[])), (7, 0, 0));
    assert_eq!(counts(filtered([folder(&root)], &[], &["raw"])), (1, 3, 1));
    assert_eq!(counts(filtered([folder(&root)], &["*.png"], &[])), (1, 4, 2));
    let star = root.path().join("*");
    assert_eq!(counts(filtered([Input::Path(star)], &[], &["*.png"])), (2, 4, 1));
    let named = [path(&root, "a.jpg"), path(&root, "@eaDir/a.jpg/*.jpg"), path(&root, "raw/c.png")];
    assert_eq!(counts(filtered(named.clone(), &[], &[])), (3, 0, 0), "it is meant");
    assert_eq!(counts(filtered(named, &[], &["*.png"])), (2, 0, 1));
    let list = root.path().join("list.txt");
    fs::write(&list, "x/1.jpg\nx/2.jpg\n").unwrap();
    assert_eq!(counts(filtered([list_of(&list)], &[], &["2.*"])), (1, 0, 1));

    let kept = root.path().join("listing");
    assert_eq!(counts(listing([folder(&root)]).kept(&kept)), (3, 4, 0));
    let error = filtered([folder(&root)], &[], &["raw"]).kept(&kept).build().unwrap_err().to_string();
    assert!(error.contains("the listing of other inputs"), "{error}");
}

#[test]
fn folders_give_visible_images_only_and_say_what_they_left_out() {
    let images = ["a.jpg", "sub/c.bmp", "x.PSD", "y.psd", "sub/z.cr2"];
    let others = ["README.txt", "jpg", ".hidden.jpg", ".git/b.jpg", "sub/notes.md"];
    let root = tree(&[&images[..], &others].concat());
    let listed = listing([folder(&root)]).build().unwrap();
    let stats = listed.stats();
    assert_eq!((stats.items, stats.folders, stats.skipped_other, stats.skipped_hidden), (2, 2, 3, 2));
    assert_eq!(stats.skipped_foreign, [("cr2", 1), ("psd", 2)].into());
    assert_eq!(
        (names(root.path(), listing([folder(&root)])), stats.linked),
        (vec!["a.jpg".into(), "sub/c.bmp".into()], 0)
    );
    // Some formats are read in builds with their decoders alone.
    let root_of_new = tree(&["x.AVIF", "y.heic", "z.jp2", "z.jxl"]);
    let new = listing([folder(&root_of_new)]).build().unwrap();
    let is_read = [cfg!(feature = "avif"), cfg!(feature = "heic"), cfg!(feature = "jpeg2000"), cfg!(feature = "jxl")];
    assert_eq!(new.stats().items, is_read.into_iter().map(u64::from).sum::<u64>());
    assert_eq!(new.stats().skipped_foreign.contains_key("heic"), !cfg!(feature = "heic"));
    // A folder that is named twice has its images twice, and names by links are counted.
    let twice = listing([folder(&root), Input::Path(root.path().join("sub"))]).build().unwrap();
    assert_eq!((twice.stats().items, twice.stats().linked), (3, 1));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("a.jpg", root.path().join("link.jpg")).unwrap();
        std::os::unix::fs::symlink("sub", root.path().join("again")).unwrap();
        std::os::unix::fs::symlink("nothing.jpg", root.path().join("broken.jpg")).unwrap();
        let linked = listing([folder(&root)]).build().unwrap();
        assert_eq!((linked.stats().items, linked.stats().linked), (5, 2));
    }
}

#[test]
fn what_is_named_counts_whatever_it_is_called() {
    let root = tree(&["README.txt", ".hidden/.x", "noext"]);
    let inputs = ["noext", ".hidden/.x", "README.txt", "noext"].map(|name| path(&root, name));
    assert_eq!(names(root.path(), listing(inputs)), ["noext", ".hidden/.x", "README.txt", "noext"]);
}

#[test]
fn inputs_keep_their_order_and_mix() {
    let root = tree(&["z/1.jpg", "a/2.jpg", "m.jpg"]);
    let list = root.path().join("list");
    fs::write(&list, "one\ntwo\n").unwrap();
    let inputs = [path(&root, "z"), list_of(&list), path(&root, "m.jpg"), path(&root, "a/*")];
    assert_eq!(names(root.path(), listing(inputs)), ["z/1.jpg", "one", "two", "m.jpg", "a/2.jpg"]);
}

#[test]
fn missing_paths_and_empty_patterns_are_faults() {
    let root = tree(&["a.jpg"]);
    let (id, reason) = fault(&root, [folder(&root), path(&root, "gone.jpg")]);
    assert!(id == "gone.jpg" && reason.contains("No such file"), "{id}: {reason}");
    let (id, reason) = fault(&root, [path(&root, "*.png"), folder(&root)]);
    assert_eq!((id.as_str(), reason.as_str()), ("*.png", "the pattern matches nothing"));
    assert_eq!(fault(&root, [path(&root, "no/folder/*.png")]).1, "the pattern matches nothing");
    assert!(fault(&root, [path(&root, "[a")]).1.starts_with("not a valid pattern"));
    let long = "x".repeat(300);
    assert!(fault(&root, [path(&root, &long)]).1.contains("name too long"));
}

#[test]
fn patterns_find_files_sorted_and_folders_searched() {
    let root = tree(&["p/a.jpg", "p/b.txt", "p/q/c.jpg", "p/q/r/d.jpg", "p/.h/e.jpg", "p/q.jpg", "p[1].jpg"]);
    let find = |pattern: &str| names(root.path(), listing([path(&root, pattern)]));
    assert_eq!(find("p/**/*.jpg"), ["p/a.jpg", "p/q/c.jpg", "p/q/r/d.jpg", "p/q.jpg"]);
    assert_eq!(find("p/*"), ["p/a.jpg", "p/b.txt", "p/q/c.jpg", "p/q/r/d.jpg", "p/q.jpg"]);
    assert_eq!(find("p/*/*.jpg"), ["p/q/c.jpg"]);
    assert_eq!(find("p/**"), ["p/a.jpg", "p/b.txt", "p/q/c.jpg", "p/q/r/d.jpg", "p/q.jpg"]);
    assert_eq!(find("p/{b,a}.???"), ["p/a.jpg", "p/b.txt"]);
    assert_eq!(find("p/.h/*"), ["p/.h/e.jpg"]);
    assert_eq!(find("p[1].jpg"), ["p[1].jpg"], "what exists is no pattern");
}

#[test]
fn lists_tolerate_line_ends_and_keep_everything_else() {
    let root = tree(&[]);
    let list = root.path().join("list");
    fs::write(&list, b"a.jpg\r\n\n  b # c.jpg \n*.png\r\n\r\nlast").unwrap();
    let found = names(root.path(), listing([list_of(&list)]));
    assert_eq!(found, ["a.jpg", "  b # c.jpg ", "*.png", "last"]);
}

#[test]
fn an_image_in_its_own_address_is_a_fault_without_the_image() {
    let root = tree(&["a.jpg"]);
    let list = root.path().join("list");
    fs::write(&list, format!("a.jpg\nDATA:image/jpeg;base64,{}\n", "A".repeat(170_000))).unwrap();
    let items = enumerate(&mut listing([list_of(&list)]).build().unwrap());
    assert_eq!((items.len(), items[1].id.chars().count()), (2, 65));
    assert!(items[1].fault.as_ref().unwrap().contains("write it to a file"), "{:?}", items[1].fault);
}

#[test]
fn lists_that_cannot_be_read_stop_the_run() {
    let root = tree(&[]);
    let error = listing([list_of(&root.path().join("none"))]).build().unwrap_err();
    assert!(matches!(&error, SourceError::Io { action, .. } if action.contains("none")), "{error}");
    let binary = root.path().join("binary");
    fs::write(&binary, vec![1; 2 << 20]).unwrap();
    let error = listing([list_of(&binary)]).build().unwrap_err();
    assert!(error.to_string().contains("line 1 of"), "{error}");
}

#[test]
fn a_listing_has_a_largest_size() {
    let list = tempfile::NamedTempFile::new().unwrap();
    fs::write(list.path(), "x.jpg\n".repeat(100)).unwrap();
    let limited = |bytes| listing([list_of(list.path())]).max_listing(bytes).build();
    assert_eq!(limited(100 * (12 + 5)).unwrap().total(), 100);
    assert!(matches!(limited(100 * (12 + 5) - 1), Err(SourceError::TooLarge { .. })));
}

#[test]
fn a_folder_that_is_gone_is_told_from_a_file_that_is_gone() {
    let root = tree(&["photos/a/1.jpg", "photos/a/2.jpg", "photos/b/3.jpg"]);
    let photos = root.path().join("photos");
    for input in [photos.clone(), photos.join("*/*.jpg")] {
        let mut listed = listing([Input::Path(input)]).build().unwrap();
        let (items, mut fetch) = (enumerate(&mut listed), listed.open_fetch().unwrap());
        let mut error = |item: usize| fetch.fetch(&items[item], &mut Vec::new()).unwrap_err();
        let (file, hidden) = (photos.join("a/1.jpg"), root.path().join("hidden"));
        fs::rename(&file, root.path().join("1.jpg")).unwrap();
        assert!(matches!(error(0), FetchError::Io(_)), "one file is gone");
        fs::rename(&photos, &hidden).unwrap();
        assert!(matches!(error(1), FetchError::FolderGone { .. }), "all are gone");
        fs::create_dir(&photos).unwrap();
        assert!(error(1).to_string().ends_with("is empty now"), "as a mount point without its file system");
        fs::remove_dir(&photos).unwrap();
        fs::rename(&hidden, &photos).unwrap();
        fs::rename(root.path().join("1.jpg"), &file).unwrap();
    }
}

#[test]
fn shards_and_limits_keep_global_indexes() {
    let files: Vec<String> = (0..23).map(|i| format!("{i:02}.jpg")).collect();
    let root = tree(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let open = || listing([folder(&root)]);
    for count in [1, 2, 3, 7, 23, 40] {
        let shards = (0..count).map(|i| Box::new(open().shard(i, count).build().unwrap()) as Box<dyn Source>);
        check_shards(&mut open().build().unwrap(), shards.collect());
        let limited =
            (0..count).map(|i| Box::new(open().shard(i, count).limit(10).build().unwrap()) as Box<dyn Source>);
        check_shards(&mut open().limit(10).build().unwrap(), limited.collect());
    }
    let shard = open().shard(1, 2).build().unwrap();
    assert_eq!((shard.extent(), shard.total()), ((11..23).into(), 23));
    assert_eq!(open().limit(100).build().unwrap().extent(), (0..23).into());
    assert!(open().shard(2, 2).build().is_err());
    assert!(open().shard(0, 0).build().is_err());
}

#[test]
fn conforms() {
    let root = tree(&["a.jpg", "b/c.png", "b/d.gif"]);
    check(|| Box::new(listing([folder(&root), path(&root, "gone"), path(&root, "b/c.png")]).build().unwrap()));
}

#[test]
fn progress_counts_up_to_the_total() {
    let list = tempfile::NamedTempFile::new().unwrap();
    fs::write(list.path(), "x.jpg\n".repeat(5000)).unwrap();
    let mut told = Vec::new();
    let input = list_of(list.path());
    Listing::builder().inputs([input]).progress(|items| told.push(items)).build().unwrap();
    assert!(told.len() >= 4 && told.is_sorted(), "{told:?}");
    assert_eq!(told.last(), Some(&5000));
}

#[test]
fn hundreds_of_thousands_go_to_disk_and_every_place_is_found() {
    let list = tempfile::NamedTempFile::new().unwrap();
    let lines: String = (0..200_000).map(|i| format!("photos/of/a/long/name/{i:06}.jpg\n")).collect();
    fs::write(list.path(), lines).unwrap();
    let mut listed = listing([list_of(list.path())]).build().unwrap();
    assert!(listed.is_on_disk());
    assert_eq!(listed.extent(), (0..200_000).into());
    for index in [199_999, 0, 123_456, 4096, 4095] {
        listed.seek(index, 0).unwrap();
        let item = listed.next_item().unwrap().unwrap();
        assert_eq!((item.index, item.id), (index, format!("photos/of/a/long/name/{index:06}.jpg")));
    }
    listed.seek(0, 0).unwrap();
    assert_eq!(enumerate(&mut listed).len(), 200_000);
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed() {
        let root = tree(&["real/a.jpg", "b.jpg"]);
        symlink("real", root.path().join("link")).unwrap();
        symlink("b.jpg", root.path().join("c.jpg")).unwrap();
        let want = ["b.jpg", "c.jpg", "link/a.jpg", "real/a.jpg"];
        assert_eq!(names(root.path(), listing([folder(&root)])), want);
    }

    #[test]
    fn loops_are_faults_and_everything_else_is_found() {
        let root = tree(&["a/b/c.jpg", "a/d.jpg"]);
        symlink("..", root.path().join("a/b/up")).unwrap();
        let want = ["a/b/c.jpg", "!a/b/up", "a/d.jpg"];
        assert_eq!(names(root.path(), listing([folder(&root)])), want);
        assert_eq!(names(root.path(), listing([path(&root, "**/*.jpg")])), want);
        let (_, reason) = fault(&root, [folder(&root)]);
        assert!(reason.starts_with("symbolic link loop: leads back to"), "{reason}");
    }

    #[test]
    fn links_to_nowhere_and_to_themselves_are_faults() {
        let root = tree(&["a.jpg"]);
        symlink("nowhere", root.path().join("gone.jpg")).unwrap();
        let (id, reason) = fault(&root, [folder(&root)]);
        assert!(id == "gone.jpg" && reason.contains("No such file"), "{id}: {reason}");
        fs::remove_file(root.path().join("gone.jpg")).unwrap();
        symlink("self", root.path().join("self")).unwrap();
        assert!(fault(&root, [folder(&root)]).1.contains("Too many levels of symbolic links"));
        assert!(fault(&root, [path(&root, "self")]).1.contains("Too many levels of symbolic links"));
    }

    #[test]
    fn names_of_any_bytes_are_listed_and_read() {
        let root = tree(&["new\nline.jpg"]);
        let odd = root.path().join(OsStr::from_bytes(b"odd\xff\\.jpg"));
        fs::write(&odd, "odd").unwrap();
        let mut listed = listing([folder(&root)]).build().unwrap();
        let items = enumerate(&mut listed);
        let ids: Vec<_> = items.iter().map(|item| name(root.path(), item)).collect();
        assert_eq!(ids, ["new\nline.jpg", r"odd\xff\\.jpg"]);
        let mut bytes = Vec::new();
        listed.open_fetch().unwrap().fetch(&items[1], &mut bytes).unwrap();
        assert_eq!(bytes, b"odd");

        let list = tempfile::NamedTempFile::new().unwrap();
        fs::write(list.path(), [odd.as_os_str().as_bytes(), b"\n"].concat()).unwrap();
        let mut listed = listing([list_of(list.path())]).build().unwrap();
        assert_eq!(enumerate(&mut listed)[0].locator, items[1].locator);
    }

    #[test]
    fn deep_folders_need_no_deep_stack() {
        let root = tree(&[]);
        let mut deep = PathBuf::from(root.path());
        for _ in 0..400 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("a.jpg"), "a").unwrap();
        let items = enumerate(&mut listing([folder(&root)]).build().unwrap());
        assert_eq!(items.len(), 1);
        assert!(items[0].fault.is_none());
    }
}

#[test]
fn a_kept_listing_is_read_instead_of_the_inputs() {
    let root = tree(&["a.jpg", "b/c.jpg", "d.jpg"]);
    let file = root.path().join("listing");
    let kept = || listing([folder(&root), path(&root, "none.jpg")]).kept(&file);
    let hash = || kept().build().unwrap().listing_hash();
    let first = (hash(), names(root.path(), kept()));
    assert_eq!(first.1, ["a.jpg", "b/c.jpg", "d.jpg", "!none.jpg"]);
    fs::remove_file(root.path().join("d.jpg")).unwrap();
    fs::write(root.path().join("new.jpg"), "").unwrap();
    assert_eq!((hash(), names(root.path(), kept())), first);
    assert_eq!(names(root.path(), kept().shard(1, 2)), ["d.jpg", "!none.jpg"]);
    assert_eq!(names(root.path(), kept().limit(1)), ["a.jpg"]);
    check(|| Box::new(kept().limit(2).build().unwrap()));
    // A folder that is gone as a whole is still told from files that are.
    let mut listed = kept().build().unwrap();
    let items = enumerate(&mut listed);
    let moved = root.path().with_extension("away");
    fs::rename(root.path(), &moved).unwrap();
    let error = listed.open_fetch().unwrap().fetch(&items[0], &mut Vec::new()).unwrap_err();
    fs::rename(&moved, root.path()).unwrap();
    assert!(matches!(error, FetchError::FolderGone { .. }), "{error}");

    let refusal = |builder: ListingBuilder<'_>| builder.build().unwrap_err().to_string();
    let other = listing([folder(&root)]).kept(&file);
    let remedy = "is the listing of other inputs; name another file, or remove it";
    assert_eq!(refusal(other), format!("{} {remedy}", file.display()));
    let whole = fs::read(&file).unwrap();
    for len in [whole.len() - 1, whole.len() / 2] {
        fs::write(&file, &whole[..len]).unwrap();
        let problem = refusal(kept());
        assert!(problem.ends_with("is cut off; remove it") || problem.contains("other inputs"), "{problem}");
    }
    fs::write(&file, "a.jpg\nb.jpg\n").unwrap();
    assert_eq!(refusal(kept()), format!("{} is not a listing of foveate; name another file", file.display()));
}

#[test]
fn odd_names_are_images_if_they_begin_as_images() {
    let images = [
        ("a.mpo", &b"x"[..]),
        ("b.JIF", b"x"),
        ("c.jpg?w=300&h=2", b"\xff\xd8\xff\xe0 and so on"),
        ("d.jpg_large", b"\xff\xd8\xff\xe0 and so on"),
        ("e.PNG.1", b"\x89PNG\r\n\x1a\n and so on"),
        ("f.webp!thumb", b"RIFF1234WEBP and so on"),
        ("g.jpeg:orig", b"\xff\xd8\xff\xe1 and so on"),
    ];
    let others = [
        ("h.jpg.part", &b"\xff\xd8\xff\xe0 and so on"[..]),
        ("i.jpg.json", b"{\"title\": \"i.jpg\"}"),
        ("j.jpgs", b"\xff\xd8\xff\xe0 and so on"),
        ("k", b"\xff\xd8\xff\xe0 and so on"),
        ("l.jpg_large", b"<html></html>"),
        ("m.jpg_small", b""),
    ];
    let root = tree(&[]);
    for (name, bytes) in images.iter().chain(&others) {
        fs::write(root.path().join(name), bytes).unwrap();
    }
    let listing = listing([folder(&root)]);
    let mut built = listing.build().unwrap();
    let found: Vec<_> = enumerate(&mut built).iter().map(|item| name(root.path(), item)).collect();
    assert_eq!(found, images.map(|(name, _)| name));
    assert_eq!(built.stats().skipped_other, others.len() as u64);
}

#[test]
fn a_list_that_is_a_table_is_named_as_one_or_read_by_its_column() {
    let root = tree(&["a.jpg", "b,c.jpg", "d.jpg"]);
    let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let table = root.path().join("labels.csv");
    let rows = format!(
        "label,\"path\"\r\ncat,{}\r\ndog,\"{}\"\r\nnone,\r\nbird,{}\r\n",
        at("a.jpg"),
        at("b,c.jpg"),
        at("d.jpg")
    );
    fs::write(&table, &rows).unwrap();
    let told = |input: Input| listing([input]).build().err().unwrap().to_string();
    assert_eq!(
        told(list_of(&table)),
        format!(
            "the list {} is a table (columns: label, path); name the column with the paths: --path-column path",
            table.display()
        )
    );
    let found = names(root.path(), listing([Input::Table(table.clone(), "PATH".to_owned())]));
    assert_eq!(found, ["a.jpg", "b,c.jpg", "d.jpg"]);
    assert!(
        told(Input::Table(table.clone(), "image".to_owned())).ends_with("has no column 'image'; it has label, path")
    );
    for (text, is_table) in [
        ("file_name\tx\n", true),
        ("\u{feff}Image;Label\na;b\n", true),
        ("2024,03.jpg\nx\n", false),
        (&at("b,c.jpg"), false),
        ("https://h/a.jpg?w=1,2\n", false),
        ("path\n", false),
        ("", false),
    ] {
        let list = root.path().join("list.txt");
        fs::write(&list, text).unwrap();
        assert_eq!(listing([list_of(&list)]).build().is_err(), is_table, "{text:?}");
    }
    let units: Vec<u8> =
        format!("\u{feff}{}", rows.replace(",", ";")).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let semicolons = root.path().join("utf16.csv");
    fs::write(&semicolons, units).unwrap();
    assert!(told(list_of(&semicolons)).contains("(columns: label, path)"));
    assert_eq!(names(root.path(), listing([Input::Table(semicolons, "path".to_owned())])).len(), 3);
}
