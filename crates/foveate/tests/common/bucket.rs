//! A bucket of an emulated store.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use foveate_testkit::brokers::AwsServer;
use tempfile::TempDir;

use super::{embed, long_list};

/// A bucket, and inputs for it.
pub(crate) struct Bucket {
    pub(crate) server: AwsServer,
    pub(crate) root: TempDir,
}

impl Bucket {
    pub(crate) fn new() -> Self {
        let bucket = Self { server: AwsServer::start(), root: tempfile::tempdir().unwrap() };
        bucket.ask("PUT", "/bucket", b"");
        bucket
    }

    /// Sends a request, whose signature this server does not check. Returns the answer's body.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let address = self.server.endpoint();
        let address = address.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        let credential =
            "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=a";
        let head = format!("Host: {address}\r\nContent-Length: {length}\r\nAuthorization: {credential}");
        write!(stream, "{method} {path} HTTP/1.0\r\n{head}\r\n\r\n").unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let status = String::from_utf8_lossy(&answer[..end]).into_owned();
        assert!(status.split(' ').nth(1).is_some_and(|code| code.starts_with('2')), "{method} {path}: {status}");
        answer.split_off(end + 4)
    }

    /// The names of all objects below `prefix`, relative to it.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        let listing = self.ask("GET", &format!("/bucket?list-type=2&prefix={prefix}"), b"");
        let listing = String::from_utf8(listing).unwrap();
        let keys = listing.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap());
        keys.map(|key| key.strip_prefix(prefix).unwrap().to_owned()).collect()
    }

    /// Writes everything below `prefix` to a folder, as `aws s3 sync` does.
    pub(crate) fn download(&self, prefix: &str, name: &str) -> PathBuf {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        for name in self.names(prefix) {
            let path = folder.join(&name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, self.ask("GET", &format!("/bucket/{prefix}{name}"), b"")).unwrap();
        }
        folder
    }

    pub(crate) fn remove_all(&self, prefix: &str) {
        for name in self.names(prefix) {
            self.ask("DELETE", &format!("/bucket/{prefix}{name}"), b"");
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A job over `count` inputs, some of which fail.
    pub(crate) fn job(&self, count: usize, output: &str) -> Command {
        let mut command = self.command(output);
        command.arg("--from-list").arg(long_list(self.root.path(), count));
        command
    }

    /// A job without inputs, to a folder here or to an address.
    pub(crate) fn command(&self, output: &str) -> Command {
        let output = if output.contains("://") { PathBuf::from(output) } else { self.path(output) };
        let mut command = embed(&output);
        command.args(["--json", "--batch=4", "--part-items=8", "--recent-memory=off"]);
        command.envs(self.server.environment());
        command
    }
}
