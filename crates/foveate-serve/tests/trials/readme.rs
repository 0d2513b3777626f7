//! Runs the README's `curl` commands as they stand.
use std::process::Command;

use crate::support::{file, serve_texts};
use foveate_testkit::{Resource, Trial, program, trials};
use serde_json::Value;

pub(crate) fn trials() -> Vec<Trial> {
    trials![every_curl_command_of_the_readme_works,]
}

fn every_curl_command_of_the_readme_works() {
    drop(program(Resource::Curl, "curl"));
    let fixture = serve_texts(8, |_, api| {
        api.tokens = vec!["KEY".to_owned()];
    });
    let folder = tempfile::tempdir().unwrap();
    for name in ["cat.jpg", "dog.jpg"] {
        std::fs::write(folder.path().join(name), file(name)).unwrap();
    }
    let readme = include_str!("../../README.md");
    let blocks = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let commands: Vec<String> = blocks.flat_map(commands).collect();
    assert_eq!(commands.len(), 6, "{commands:?}");
    // This test does not request images from the web.
    let expected = [422, 422, 422, 200, 200, 200];
    for (command, expected) in commands.iter().zip(expected) {
        let mut command = command.replace("http://localhost:8080", &format!("http://{}", fixture.address));
        if !command.contains("Authorization") {
            command = command.replace("curl ", "curl -H 'Authorization: Bearer KEY' ");
        }
        command = command.replace("curl ", "curl -s -w '\\n%{http_code}' ");
        let output = Command::new("sh").args(["-c", &command]).current_dir(folder.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        assert_eq!(status, expected.to_string(), "{command}\n{body}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert!(body["data"].as_array().is_some_and(|data| !data.is_empty()), "{command}\n{body}");
    }
}

/// Commands may have several lines: each begins with `curl`.
fn commands(block: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for line in block.lines() {
        match commands.last_mut() {
            Some(command) if !line.starts_with("curl ") => *command += &format!("\n{line}"),
            _ if line.starts_with("curl ") => commands.push(line.to_owned()),
            _ => {}
        }
    }
    commands
}
