//! Objects and tar shards of a store with latency: foveate beside plain loops of as many parallel requests.

use std::cell::RefCell;
use std::rc::Rc;

use foveate_benches::contest::{self, Contestant, Figure, Turn, compete};
use foveate_benches::{Result, host};

use crate::Args;
use crate::photos::Set;
use crate::server::{DELAY, Server};
use crate::table::{Table, three};

/// Objects in one turn, for each request in flight.
const GENERATIONS: usize = 10;

/// Objects in a turn of the reader that finds its own number of requests.
const MEASURED: usize = 8000;

struct Task {
    contestant: Rc<RefCell<Contestant>>,
    what: &'static str,
    /// `None`: the reader's own choice.
    requests: Option<usize>,
    request: String,
    /// Objects, and bytes of each, in a turn.
    seen: (f64, f64),
}

impl Task {
    fn turn(&mut self) -> std::result::Result<Turn, String> {
        let answer = self.contestant.borrow_mut().ask(&self.request)?;
        let [wall, cpu, objects, bytes] = answer[..] else { return Err("a turn is four numbers".to_owned()) };
        self.seen = (objects, bytes / objects);
        Ok(Turn { wall: wall / bytes, cpu: cpu / bytes })
    }

    fn is_plain(&self) -> bool {
        self.contestant.borrow().name == "plain loop"
    }
}

pub(crate) fn compare(args: &Args, sets: &[Set], server: &Server) -> Result<Table> {
    let mut table = Table::new(&[
        "what",
        "reader",
        "requests",
        "delay_ms",
        "rounds",
        "status",
        "objects",
        "bytes_per_object",
        "mb_per_s_median",
        "mb_per_s_min",
        "mb_per_s_max",
        "cpu_ms_per_mb_median",
        "cpu_ms_per_mb_min",
        "cpu_ms_per_mb_max",
        "ratio_to_plain",
    ]);
    println!(
        "{}, {} cores, a store with {} ms, medians of {} rounds",
        host::processor(),
        host::cores(),
        DELAY.as_millis(),
        args.rounds
    );
    println!("what     reader      requests |   MB/s  cpu ms/MB | of the plain loop");
    let folder = tempfile::tempdir()?;
    let mut tasks = tasks(&sets[0], server, folder.path())?;
    let figures = compete(&mut tasks, args.rounds, Task::turn);
    for (task, figure) in tasks.iter().zip(&figures) {
        let ratio = figure.as_ref().ok().and_then(|figure| Some(ceiling(task, &tasks, &figures)? / figure.wall.median));
        report(args, task, figure, ratio, &mut table);
    }
    Ok(table)
}

fn tasks(set: &Set, server: &Server, folder: &std::path::Path) -> Result<Vec<Task>> {
    let start = |name, child| -> Result<_> {
        let contestant = Contestant::start(name, contest::own(child, &[server.endpoint()])?)?;
        Ok(Rc::new(RefCell::new(contestant)))
    };
    let (plain, ours) = (start("plain loop", "plain")?, start("foveate", "ours")?);
    let (photos, shards) = (folder.join("photos"), folder.join("shards"));
    set.write_objects("folder", &photos)?;
    set.write_objects("shards", &shards)?;
    let (photos, shards) = (photos.display(), shards.display());
    let task = |contestant, what, requests, request| Task {
        contestant: Rc::clone(contestant),
        what,
        requests,
        request,
        seen: (0.0, 0.0),
    };
    let mut tasks = Vec::new();
    for requests in [32, 64, 128, 256] {
        let count = requests * GENERATIONS;
        tasks.push(task(&plain, "objects", Some(requests), format!("gets {photos} {requests} {count}")));
        tasks.push(task(&ours, "objects", Some(requests), format!("ahead {photos} {requests} {count}")));
    }
    tasks.push(task(&ours, "objects", None, format!("ahead {photos} measured {MEASURED}")));
    tasks.push(task(&plain, "tar", None, format!("ranges {shards}")));
    tasks.push(task(&ours, "tar", None, format!("read s3://{}/shards/*.tar 1", set.name)));
    Ok(tasks)
}

/// The plain loop's time for a byte with as many requests, or its least with any number.
fn ceiling(task: &Task, tasks: &[Task], figures: &[std::result::Result<Figure, String>]) -> Option<f64> {
    let is_like = |other: &Task| other.is_plain() && other.what == task.what;
    let same = |other: &Task| task.requests.is_none_or(|requests| other.requests == Some(requests));
    let like = tasks.iter().zip(figures).filter(|(other, _)| is_like(other) && same(other));
    like.filter_map(|(_, figure)| Some(figure.as_ref().ok()?.wall.median)).min_by(f64::total_cmp)
}

fn report(
    args: &Args,
    task: &Task,
    figure: &std::result::Result<Figure, String>,
    ratio: Option<f64>,
    table: &mut Table,
) {
    let requests = task.requests.map_or_else(|| "own".to_owned(), |requests| requests.to_string());
    let name = task.contestant.borrow().name.clone();
    print!("{:<8} {name:<11} {requests:>8} | ", task.what);
    let (status, numbers) = match figure {
        Ok(Figure { wall, cpu }) => {
            let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
            println!("{:>6.0} {:>10.3} | {ratio}", 1e-6 / wall.median, cpu.median * 1e9);
            let (rate, cost) = (three(wall, |wall| 1e-6 / wall), three(cpu, |cpu| cpu * 1e9));
            ("ok".to_owned(), [&rate[..], &cost, &[ratio]].concat())
        }
        Err(reason) => {
            println!("n/a ({reason})");
            (format!("n/a ({reason})"), vec![String::new(); 7])
        }
    };
    let (objects, bytes) = task.seen;
    let delay = DELAY.as_millis().to_string();
    let words = [task.what.to_owned(), name, requests, delay, args.rounds.to_string(), status];
    table.push(words.into_iter().chain([objects, bytes].map(|number| format!("{number:.0}"))).chain(numbers));
}
