//! Contestants: processes that do the same work in turns, so that other load on the machine affects all of them alike.
//!
//! Each contestant is a process with its own threads and memory: this program again, or a Python script
//! (`py/contest.py` is the counterpart of this module). It prints `ready VERSION`. Then it answers each input line with
//! one line: numbers, or `n/a REASON`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Result, Spread, host, spread};

/// A running contestant.
pub struct Contestant {
    /// The name in tables.
    pub name: String,
    /// The library and its version.
    pub version: String,
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Contestant {
    /// Starts a contestant.
    ///
    /// # Errors
    /// Why it cannot take part.
    pub fn start(name: &str, mut command: Command) -> std::result::Result<Self, String> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
        let requests = process.stdin.take().ok_or("it has no input")?;
        let answers = BufReader::new(process.stdout.take().ok_or("it has no output")?);
        let mut contestant = Self { name: name.to_owned(), version: String::new(), process, requests, answers };
        let line = contestant.line()?;
        contestant.version = line.strip_prefix("ready ").ok_or_else(|| format!("it says '{line}'"))?.to_owned();
        Ok(contestant)
    }

    /// Sends a line, and returns the numbers of the answer.
    ///
    /// # Errors
    /// The contestant's reason for not answering with numbers.
    pub fn ask(&mut self, request: &str) -> std::result::Result<Vec<f64>, String> {
        writeln!(self.requests, "{request}").map_err(|error| error.to_string())?;
        let line = self.line()?;
        let numbers = line.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>();
        numbers.map_err(|_| format!("it says '{line}'"))
    }

    fn line(&mut self) -> std::result::Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err(self.end()),
            Ok(_) => match line.trim().strip_prefix("n/a ") {
                Some(reason) => Err(reason.to_owned()),
                None => Ok(line.trim().to_owned()),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    fn end(&mut self) -> String {
        self.process.wait().map_or_else(|error| error.to_string(), |status| format!("it ended ({status})"))
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        // The process is no longer needed, and may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Wall and processor time of one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Wall time in seconds.
    pub wall: f64,
    /// Processor time in seconds.
    pub cpu: f64,
}

/// The statistics of one contestant's turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Wall time.
    pub wall: Spread,
    /// Processor time.
    pub cpu: Spread,
}

/// Lets the contestants, or their tasks, take turns: one each to warm up, then `rounds`, in reverse order every other
/// round. `turn` runs one turn. What fails drops out, and its result is the reason.
pub fn compete<T, F>(contestants: &mut [T], rounds: usize, mut turn: F) -> Vec<std::result::Result<Figure, String>>
where
    F: FnMut(&mut T) -> std::result::Result<Turn, String>,
{
    let mut turns: Vec<std::result::Result<Vec<Turn>, String>> =
        contestants.iter_mut().map(|contestant| turn(contestant).map(|_| Vec::new())).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..contestants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let Ok(done) = &mut turns[at] else { continue };
            match turn(&mut contestants[at]) {
                Ok(turn) => done.push(turn),
                Err(reason) => turns[at] = Err(reason),
            }
        }
    }
    let of = |turns: &[Turn], value: fn(&Turn) -> f64| spread(&turns.iter().map(value).collect::<Vec<_>>());
    let figure = |turns: Vec<Turn>| match turns.len() {
        0 => Err("no rounds".to_owned()),
        _ => Ok(Figure { wall: of(&turns, |turn| turn.wall), cpu: of(&turns, |turn| turn.cpu) }),
    };
    turns.into_iter().map(|turns| turns.and_then(figure)).collect()
}

/// Runs this process as a contestant: answers lines with numbers until its input ends.
///
/// # Errors
/// When it cannot read or write.
// The answers go to standard output.
#[allow(clippy::print_stdout)]
pub fn serve(version: &str, mut answer: impl FnMut(&[&str]) -> Result<Vec<f64>>) -> Result<()> {
    println!("ready {version}");
    for line in std::io::stdin().lines() {
        match answer(&line?.split_whitespace().collect::<Vec<_>>()) {
            Ok(numbers) => println!("{}", numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")),
            Err(error) => println!("n/a {}", one_line(&error.to_string())),
        }
    }
    Ok(())
}

/// Runs this process as a contestant that cannot take part.
#[allow(clippy::print_stdout)]
pub fn decline(reason: &str) {
    println!("n/a {}", one_line(reason));
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The wall time of `work` in seconds, and its time by `clock`.
///
/// # Errors
/// The error of `work`, or that the system does not report processor time.
pub fn timed(clock: fn() -> Option<Duration>, work: impl FnOnce() -> Result<()>) -> Result<Vec<f64>> {
    let (wall, cpu) = (Instant::now(), host::time(clock)?);
    work()?;
    Ok(vec![wall.elapsed().as_secs_f64(), (host::time(clock)? - cpu).as_secs_f64()])
}

/// This program with `--child NAME` and more arguments.
///
/// # Errors
/// If it does not know its own path.
pub fn own(name: &str, args: &[String]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", name]).args(args);
    Ok(command)
}

/// A script of `benches/py`.
pub fn python(python: &str, script: &str, args: &[String]) -> Command {
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("py").join(script)).args(args);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn contestants_answer_decline_and_end() {
        let mut echo = Contestant::start("echo", shell("echo ready x 1.2; while read l; do echo $l; done")).unwrap();
        assert_eq!(echo.version, "x 1.2");
        assert_eq!(echo.ask("1 2.5").unwrap(), [1.0, 2.5]);
        assert_eq!(echo.ask("n/a no scaling").unwrap_err(), "no scaling");
        assert!(echo.ask("words").unwrap_err().contains("words"));
        assert_eq!(Contestant::start("x", shell("echo n/a no module")).err().unwrap(), "no module");
        assert!(Contestant::start("x", shell("exit 3")).err().unwrap().contains("it ended"));
    }

    #[test]
    fn rounds_go_forth_and_back_and_failures_are_out() {
        let start = |name| Contestant::start(name, shell("echo ready 1; while read l; do echo $l; done")).unwrap();
        let mut both = [start("a"), start("b")];
        let mut order = String::new();
        let figures = compete(&mut both, 2, |contestant| {
            order += &contestant.name;
            if order == "aba" { Err("tired".to_owned()) } else { Ok(Turn { wall: 1.0, cpu: 2.0 }) }
        });
        assert_eq!(order, "ababb");
        assert_eq!(figures[0], Err("tired".to_owned()));
        assert_eq!(figures[1].as_ref().unwrap().cpu.median, 2.0);
    }
}
