//! A folder that the user may not read.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // tests may

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;

use foveate_source::conformance::enumerate;
use foveate_source::{Input, Listing};
use foveate_testkit::{Resource, run, trials};

fn main() -> ExitCode {
    run(trials![unreadable_folders_end_the_listing_or_are_faults])
}

fn unreadable_folders_end_the_listing_or_are_faults() {
    let root = tempfile::tempdir().unwrap();
    let secret = root.path().join("secret");
    fs::write(root.path().join("a.jpg"), "a").unwrap();
    fs::create_dir(&secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).unwrap();
    if fs::read_dir(&secret).is_ok() {
        Resource::Unprivileged.missing("this user may read any folder");
    }
    let builder = || Listing::builder().inputs([Input::Path(root.path().to_owned())]);
    let error = builder().build().unwrap_err();
    assert_eq!(error.to_string(), format!("cannot read the folder {}", secret.display()));
    let mut listing = builder().accept_unreadable_folders().build().unwrap();
    let items = enumerate(&mut listing);
    let faults: Vec<_> = items.iter().filter_map(|item| Some((&item.id, item.fault.as_ref()?))).collect();
    let [(id, reason)] = faults.as_slice() else { panic!("{items:?}") };
    assert!(id.ends_with("secret") && reason.contains("Permission denied"), "{id}: {reason}");
    assert_eq!((items.len(), listing.stats().faults), (2, 1));
}
