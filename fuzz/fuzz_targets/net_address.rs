#![no_main]

use std::sync::LazyLock;

use foveate_net::{Client, ClientOptions};
use libfuzzer_sys::fuzz_target;

static CLIENT: LazyLock<Client> = LazyLock::new(|| {
    let only_hosts = vec!["allowed.test".to_owned(), "*.below.test:8443".to_owned()];
    Client::new(ClientOptions { only_hosts, ..ClientOptions::default() }).unwrap()
});

// A URL is refused permanently, with a reason of one line, or its host is visibly one of the allowed hosts.
fuzz_target!(|text: &str| {
    match CLIENT.check(text) {
        Err(error) => assert!(!error.transient && !error.reason.contains(char::is_control), "{error:?}"),
        Ok(()) => {
            // URLs lose control characters around them.
            let is_kept = |c: &char| !c.is_whitespace() && !c.is_control();
            let seen: String = text.chars().filter(is_kept).collect::<String>().to_ascii_lowercase();
            let is_plain = seen.is_ascii() && !seen.contains('%');
            let (authority, _) = seen.split_at(seen.find(['?', '#']).unwrap_or(seen.len()));
            assert!(!is_plain || authority.contains("allowed.test") || authority.contains(".below.test:"), "{text:?}");
            // No user name before the host; an empty one does not count (`http://@host/`).
            let user = authority.split_once('@').map_or("", |(before, _)| before.trim_end_matches([':', '/', '\\']));
            assert!(["", "http", "https"].contains(&user) || user.contains("test"), "{text:?}");
        }
    }
});
