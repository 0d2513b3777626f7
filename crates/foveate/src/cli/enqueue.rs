//! `foveate enqueue`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use foveate::net::webhook::message_id;
use foveate::pipeline::Cancel;
use foveate::queue::{Callback, ImageRef, Job, JobQueue, Message, QueueError, QueueOptions};
use foveate::source::{Input, Listing, Source};
use foveate::worker::Backoff;

use super::service_args::EnqueueArgs;
use super::{Exit, job, service};

/// Messages that are sent by one call.
const TOGETHER: usize = 500;
/// How long a broker that does not answer is asked again.
const PATIENCE: Duration = Duration::from_secs(60);
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(5) };
/// Failures that are told one by one.
const TOLD: u64 = 10;

pub(crate) fn run(args: &EnqueueArgs) -> anyhow::Result<Exit> {
    let cancel = Cancel::default();
    job::on_signal(&cancel, || {
        eprintln!("\ninterrupted: what is on the queue stays there; once more to stop at once")
    })?;
    if let Some(metadata) = &args.metadata {
        serde_json::from_str::<serde_json::Value>(metadata).context("--metadata is not JSON")?;
    }
    let queue = service::queue(&args.queue, &args.queues, QueueOptions::DEFAULT_MAX_RECEIVE)?;
    let mut feed = Feed { args, queue, waiting: Vec::new(), sent: 0, failed: 0 };
    feed.all(&cancel)?;
    feed.flush()?;
    let Feed { queue, sent, failed, .. } = feed;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::json!({ "queue": queue.name(), "sent": sent, "failed": failed }))?;
    } else if !args.quiet {
        writeln!(out, "{sent} jobs on queue {}, {failed} failed", queue.name())?;
    }
    Ok(match (cancel.is_cancelled(), failed) {
        (true, _) => Exit::Interrupted,
        (false, 0) => Exit::Complete,
        (false, _) => Exit::Fault,
    })
}

/// Jobs on their way to a queue.
struct Feed<'a> {
    args: &'a EnqueueArgs,
    queue: Arc<dyn JobQueue>,
    waiting: Vec<Message>,
    sent: u64,
    failed: u64,
}

impl Feed<'_> {
    fn all(&mut self, cancel: &Cancel) -> anyhow::Result<()> {
        for input in &self.args.inputs {
            match input.contains("://") {
                true => self.line(input)?,
                false => self.folder(Path::new(input), cancel)?,
            }
        }
        for list in &self.args.from_list {
            let lines: Box<dyn BufRead> = match list.to_str() {
                Some("-") => Box::new(std::io::stdin().lock()),
                _ => Box::new(BufReader::new(
                    std::fs::File::open(list).with_context(|| format!("cannot read {}", list.display()))?,
                )),
            };
            for line in lines.lines() {
                let line = line.with_context(|| format!("cannot read {}", list.display()))?;
                if cancel.is_cancelled() {
                    return Ok(());
                }
                if !line.trim().is_empty() {
                    self.line(line.trim())?;
                }
            }
        }
        Ok(())
    }

    /// An address, or a job.
    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        let job = match line.starts_with('{') {
            true => Job::parse(line.as_bytes()).map_err(|error| error.to_string()),
            false => image(line).map(|image| self.job(image)),
        };
        match job {
            Ok(job) => self.send(&job),
            Err(reason) => {
                self.fail(line, &reason);
                Ok(())
            }
        }
    }

    /// The files below `folder`, at the same place below the base.
    fn folder(&mut self, folder: &Path, cancel: &Cancel) -> anyhow::Result<()> {
        let Some(base) = &self.args.base else {
            bail!("{}: workers cannot read files of this machine; --base says where they find them", folder.display());
        };
        let mut listing = Listing::builder().inputs([Input::Path(folder.to_owned())]).build()?;
        while let Some(item) = listing.next_item()? {
            if cancel.is_cancelled() {
                break;
            }
            if let Some(fault) = &item.fault {
                self.fail(&item.id, fault);
                continue;
            }
            let path = Path::new(&item.id);
            let below = path.strip_prefix(folder).ok().filter(|below| !below.as_os_str().is_empty());
            let below = below.unwrap_or_else(|| Path::new(path.file_name().unwrap_or_default()));
            let address = join(base, &below.to_string_lossy());
            self.line(&address)?;
        }
        Ok(())
    }

    fn job(&self, image: ImageRef) -> Job {
        let args = self.args;
        Job {
            id: Some(id(&args.id_prefix, image.as_str())),
            task: args.task.clone(),
            callback: args.callback.clone().map(|url| Callback { url }),
            metadata: args.metadata.clone(),
            image,
        }
    }

    fn send(&mut self, job: &Job) -> anyhow::Result<()> {
        let body = job.to_json()?;
        // A whole job may come without an id: the same job then has the same one.
        let id = job.id.clone().unwrap_or_else(|| message_id(&String::from_utf8_lossy(&body)));
        self.waiting.push(Message { id, body });
        if self.waiting.len() >= TOGETHER { self.flush() } else { Ok(()) }
    }

    /// Sends what waits; what a broker cannot take just now is sent again.
    fn flush(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        let mut tries = 0;
        while !self.waiting.is_empty() {
            let messages = std::mem::take(&mut self.waiting);
            let results = self.queue.send(&messages);
            let mut last = None;
            for (message, result) in messages.into_iter().zip(results) {
                match result {
                    Ok(()) => self.sent += 1,
                    Err(error) if error.is_transient() => {
                        self.waiting.push(message);
                        last = Some(error);
                    }
                    Err(error @ QueueError::TooLarge { .. }) => self.fail(&message.id, &error.to_string()),
                    Err(error) => return Err(error.into()),
                }
            }
            if let Some(error) = last {
                if Instant::now() > until {
                    bail!("{error}; {} jobs are on the queue, the others are not", self.sent);
                }
                tries += 1;
                std::thread::sleep(BACKOFF.after(tries, None));
            }
        }
        Ok(())
    }

    fn fail(&mut self, what: &str, reason: &str) {
        self.failed += 1;
        if self.failed <= TOLD {
            eprintln!("error: {what}: {reason}");
        } else if self.failed == TOLD + 1 {
            eprintln!("error: … and more");
        }
    }
}

/// What a line names.
fn image(address: &str) -> Result<ImageRef, String> {
    match address.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()).as_deref() {
        Some("http" | "https") => Ok(ImageRef::Url(address.to_owned())),
        Some(_) => Ok(ImageRef::Object(address.to_owned())),
        None => Err("neither an address (https://…, s3://bucket/key) nor a job".to_owned()),
    }
}

/// The same for the same address. What is behind a `?` may be a secret, and ids are seen by everybody: there is a hash in
/// its place.
fn id(prefix: &str, address: &str) -> String {
    let id = match address.split_once('?') {
        Some((place, _)) => format!("{prefix}{place}?{}", message_id(address)),
        None => format!("{prefix}{address}"),
    };
    if id.len() <= Job::MAX_ID { id } else { message_id(&format!("{prefix}{address}")) }
}

/// `below` behind `base`. In URLs, what has a meaning there is escaped; keys are taken as they are.
fn join(base: &str, below: &str) -> String {
    let is_url = base.starts_with("http://") || base.starts_with("https://");
    let escaped = below.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    let below = if is_url { escaped.collect() } else { below.to_owned() };
    format!("{}/{below}", base.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_below_the_base() {
        assert_eq!(join("https://x.y/p/", "a b/ü.jpg"), "https://x.y/p/a%20b/%C3%BC.jpg");
        assert_eq!(join("s3://bucket/p", "a b/ü.jpg"), "s3://bucket/p/a b/ü.jpg");
    }

    #[test]
    fn ids_are_addresses_without_their_secrets() {
        assert_eq!(id("a/", "s3://b/k"), "a/s3://b/k");
        let (one, other) = (id("", "https://x/y?sig=1"), id("", "https://x/y?sig=2"));
        assert!(one.starts_with("https://x/y?msg_") && !one.contains("sig") && one != other, "{one}");
        assert!(Job::is_id(&id("", &"x".repeat(1000))));
    }

    #[test]
    fn a_line_is_an_address() {
        assert_eq!(image("HTTPS://x/y"), Ok(ImageRef::Url("HTTPS://x/y".to_owned())));
        assert_eq!(image("s3://b/k"), Ok(ImageRef::Object("s3://b/k".to_owned())));
        assert!(image("photo.jpg").is_err());
    }
}
