//! `foveate serve` with the tiny model, as a child process.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

use super::{TINY, foveate};

/// The command of a server at a free port.
pub(crate) fn serve() -> Command {
    let mut command = foveate();
    command.args(["serve", "--model", TINY, "--listen", "127.0.0.1:0"]);
    command
}

/// Killed when dropped, also by a failed test.
pub(crate) struct Server {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    /// Address and port.
    pub(crate) address: String,
    /// Earlier lines of the log.
    pub(crate) beginning: String,
}

impl Server {
    /// Starts the command and waits until it serves.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut server = Self { child, log, address: String::new(), beginning: String::new() };
        let (line, beginning) = server.logged_after("address");
        server.beginning = beginning.join("\n");
        let rest = &line[line.find("127.0.0.1:").unwrap()..];
        server.address = rest.chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
        server
    }

    /// Reads the log up to a line with this text.
    pub(crate) fn logged(&mut self, text: &str) -> String {
        self.logged_after(text).0
    }

    /// The same with the lines before.
    fn logged_after(&mut self, text: &str) -> (String, Vec<String>) {
        let mut read = Vec::new();
        while let Some(Ok(line)) = self.log.next() {
            if line.contains(text) {
                return (line, read);
            }
            read.push(line);
        }
        panic!("no '{text}' in the log: {read:#?}");
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, name: &str) {
        super::kills::signal(&self.child, name);
    }

    /// Waits for the process and returns its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Sends a request and returns the whole answer.
    pub(crate) fn ask(&self, line: &str, headers: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head =
            format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
