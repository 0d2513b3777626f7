//! `foveate enqueue`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use foveate::net;
use foveate::net::webhook::message_id;
use foveate::pipeline::Cancel;
use foveate::queue::{Callback, ImageRef, Job, JobInput, JobQueue, Message, QueueOptions, Sent, one_line};
use foveate::source::{FileFetch, Input, ListReader, Listing, Separator, Source};
use foveate::worker::{Backoff, IoRuntime};

use super::exit::Exit;
use super::service_args::EnqueueArgs;
use super::{console, job, service};

/// Number of messages per call.
const TOGETHER: usize = 500;
/// Time for which calls to a broker that does not answer are retried.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time without success after which the command says what it waits for.
const SILENT: Duration = Duration::from_secs(2);
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(5) };
/// Number of failures that are printed one by one.
const TOLD: u64 = 10;
/// Maximum number of bytes of a failed line that are printed.
const NAMED: usize = 200;

pub(crate) fn run(args: &EnqueueArgs) -> anyhow::Result<Exit> {
    let cancel = Cancel::default();
    job::on_signal(&cancel, || {
        console::say!("\ninterrupted: the jobs sent so far stay in the queue; a second signal stops at once")
    })?;
    if args.callback.as_ref().is_some_and(|url| url.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("http://")))
    {
        console::say!("warning: --callback is not https; only workers with --callback-http post there");
    }
    let runtime = IoRuntime::start()?;
    let opening = service::queue(&args.queue, &args.queues, QueueOptions::DEFAULT_MAX_RECEIVE);
    let queue = runtime.handle().block_on(opening)?;
    let mut feed = Feed::new(args, queue, runtime, PATIENCE);
    let fed = feed.all(&cancel).and_then(|()| feed.flush());
    feed.tell()?;
    fed?;
    Ok(match (cancel.is_cancelled(), feed.failed) {
        (true, _) => Exit::Interrupted,
        (false, 0) => Exit::Complete,
        (false, _) => Exit::Fault,
    })
}

/// Checks the addresses of the command line, before anything is sent.
pub(crate) fn check(args: &EnqueueArgs) -> anyhow::Result<()> {
    if let Some(url) = &args.callback {
        net::check(url).with_context(|| format!("--callback {}", named(url)))?;
    }
    if let Some(metadata) = &args.metadata {
        serde_json::from_str::<serde_json::Value>(metadata).context("--metadata is not JSON")?;
    }
    let base = args.base.iter().map(|base| ("--base ", base));
    let addresses = args.inputs.iter().filter(|input| input.contains("://")).map(|input| ("", input));
    for (option, address) in base.chain(addresses) {
        image(address).map_err(|reason| anyhow!("{option}{}: {reason}", named(address)))?;
    }
    Ok(())
}

/// Sends jobs to a queue in batches.
struct Feed<'a> {
    args: &'a EnqueueArgs,
    queue: Arc<dyn JobQueue>,
    runtime: IoRuntime,
    /// [`PATIENCE`], except in tests.
    patience: Duration,
    /// Messages to send, with their names for error messages.
    waiting: Vec<(String, Message)>,
    sent: u64,
    /// Jobs that the broker dropped, because it has had their ids.
    duplicates: u64,
    failed: u64,
    /// True once the command said that it waits for the queue.
    told: bool,
}

impl<'a> Feed<'a> {
    fn new(args: &'a EnqueueArgs, queue: Arc<dyn JobQueue>, runtime: IoRuntime, patience: Duration) -> Self {
        Self { args, queue, runtime, patience, waiting: Vec::new(), sent: 0, duplicates: 0, failed: 0, told: false }
    }

    /// Prints the counts.
    fn tell(&self) -> std::io::Result<()> {
        let Self { sent, duplicates, failed, .. } = self;
        let queue = self.queue.name();
        let mut out = console::stdout();
        if self.args.json {
            let counts =
                serde_json::json!({ "queue": queue, "sent": sent, "duplicates": duplicates, "failed": failed });
            return writeln!(out, "{counts}");
        }
        if *duplicates > 0 {
            console::say!("the queue has had {duplicates} of these ids; another --id-prefix sends their jobs again");
        }
        match self.args.quiet {
            true => Ok(()),
            false => writeln!(out, "queue {queue}: {sent} new, {duplicates} duplicates dropped, {failed} failed"),
        }
    }

    fn all(&mut self, cancel: &Cancel) -> anyhow::Result<()> {
        for input in &self.args.inputs {
            match input.contains("://") {
                true => self.line(input, named(input))?,
                false => self.folder(Path::new(input), cancel)?,
            }
        }
        self.args.from_list.iter().try_for_each(|list| self.list(list, cancel))
    }

    /// Reads a list of URLs, object keys and jobs.
    fn list(&mut self, list: &Path, cancel: &Cancel) -> anyhow::Result<()> {
        let separator = if self.args.null { Separator::Nul } else { Separator::Line };
        let mut entries = ListReader::open(list, separator)?;
        while !cancel.is_cancelled() {
            let entry = match entries.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) => {
                    // Messages that were read before the error are still sent.
                    self.flush()?;
                    return Err(error.into());
                }
            };
            let place = format!("{}:{}", list.display(), entry.number);
            match std::str::from_utf8(entry.bytes).map(str::trim) {
                Ok("") => {}
                Ok(line) => self.line(line, format!("{place}: {}", named(line)))?,
                Err(error) => self.fail(&place, &format!("not UTF-8 ({error})")),
            }
        }
        Ok(())
    }

    /// Adds a URL, an object key or a job, which error messages call `what`.
    fn line(&mut self, line: &str, what: String) -> anyhow::Result<()> {
        let job = match line.starts_with('{') {
            true => whole(line),
            false => image(line).and_then(|image| self.job(image)),
        };
        match job.and_then(|job| message(&job)) {
            Ok(message) => self.waiting.push((what, message)),
            Err(reason) => self.fail(&what, &reason),
        }
        if self.waiting.len() >= TOGETHER { self.flush() } else { Ok(()) }
    }

    /// Adds the files below `folder`, each as its path below the base.
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
            let path = FileFetch::path(&item);
            let below = path.strip_prefix(folder).ok().filter(|below| !below.as_os_str().is_empty());
            let below = below.unwrap_or_else(|| Path::new(path.file_name().unwrap_or_default()));
            let address = join(base, &below.to_string_lossy());
            self.line(&address, item.id)?;
        }
        Ok(())
    }

    fn job(&self, image: ImageRef) -> Result<Job, String> {
        let args = self.args;
        let id = id(&args.id_prefix, image.as_str());
        if !Job::is_id(&id) {
            let remedy = "send it as a whole job, with an id of your own";
            return Err(format!("its id would have a control character (a tab?); {remedy}"));
        }
        Ok(Job {
            id: Some(id),
            idempotency_key: None,
            task: Job::DEFAULT_TASK.to_owned(),
            callback: args.callback.clone().map(|url| Callback { url }),
            callback_failures: args.callback_failures,
            metadata: args.metadata.clone(),
            // Set by a program that starts this one within a trace.
            traceparent: std::env::var("TRACEPARENT").ok(),
            input: image.into(),
        })
    }

    /// Sends the messages. Retries temporary failures; messages that the broker refuses count as failed.
    fn flush(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut tries = 0;
        while !self.waiting.is_empty() {
            let (names, messages): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().unzip();
            let results = self.runtime.handle().block_on(self.queue.send(&messages));
            let mut last = None;
            for ((what, message), result) in names.into_iter().zip(messages).zip(results) {
                match result {
                    Ok(Sent::Stored) => self.sent += 1,
                    Ok(Sent::Duplicate) => self.duplicates += 1,
                    Err(error) if error.is_transient() => {
                        self.waiting.push((what, message));
                        last = Some(error);
                    }
                    Err(error) => self.fail(&what, &error.to_string()),
                }
            }
            if let Some(error) = last {
                if start.elapsed() > self.patience {
                    bail!("{error}; {} jobs are on the queue, the others are not", self.sent);
                }
                tries += 1;
                let pause = BACKOFF.after(tries, None);
                if !self.told && !self.args.quiet && start.elapsed() + pause > SILENT {
                    self.told = true;
                    let patience = self.patience.as_secs();
                    console::say!("waiting for the queue, for up to {patience} s: {error}");
                }
                std::thread::sleep(pause);
            }
        }
        Ok(())
    }

    fn fail(&mut self, what: &str, reason: &str) {
        self.failed += 1;
        if self.failed <= TOLD {
            console::say!("error: {what}: {reason}");
        } else if self.failed == TOLD + 1 {
            console::say!("error: … and more");
        }
    }
}

/// The name of a line in error messages, without the query, which may be secret.
fn named(line: &str) -> String {
    match line.split_once('?') {
        Some((place, _)) => one_line(place, NAMED) + "?…",
        None => one_line(line, NAMED),
    }
}

fn message(job: &Job) -> Result<Message, String> {
    let body = job.to_json().map_err(|error| error.to_string())?;
    // A job without an id gets one from its content, so that the same job has the same id.
    let id = job.id.clone().unwrap_or_else(|| message_id(&String::from_utf8_lossy(&body)));
    Ok(Message { id, body })
}

/// Parses a whole job, and checks its addresses.
fn whole(line: &str) -> Result<Job, String> {
    let job = Job::parse(line.as_bytes()).map_err(|error| error.to_string())?;
    if let Some(Callback { url }) = &job.callback {
        net::check(url).map_err(|error| format!("its callback: {error}"))?;
    }
    let JobInput::Image(named) = &job.input else { return Ok(job) };
    match image(named.as_str())? {
        image if image == *named => Ok(job),
        ImageRef::Url(_) => Err("its image is a URL, but is called an object".to_owned()),
        ImageRef::Object(_) => Err("its image is an object, but is called a URL".to_owned()),
    }
}

/// Parses the image that a line names.
fn image(address: &str) -> Result<ImageRef, String> {
    match address.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()).as_deref() {
        Some("http" | "https") => match net::check(address) {
            Ok(()) => Ok(ImageRef::Url(address.to_owned())),
            Err(error) => Err(error.to_string()),
        },
        Some("s3") => Ok(ImageRef::Object(address.to_owned())),
        Some(scheme) => Err(format!(
            "no worker reads {scheme}://; it may be https://, http://, or s3:// (workers need a build with -F object-store)"
        )),
        None => Err("neither a URL (https://…), an object key (s3://bucket/key) nor a job".to_owned()),
    }
}

/// Derives a job's id from its URL. A hash replaces the query, which may be secret.
fn id(prefix: &str, address: &str) -> String {
    let id = match address.split_once('?') {
        Some((place, _)) => format!("{prefix}{place}?{}", message_id(address)),
        None => format!("{prefix}{address}"),
    };
    if id.len() <= Job::MAX_ID { id } else { message_id(&format!("{prefix}{address}")) }
}

/// Appends `below` to `base`. URLs are escaped, object keys are not.
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
    use async_trait::async_trait;
    use clap::Parser;
    use foveate::queue::{DeadLetter, Delivery, Depth, Judge, MemoryQueue, QueueError, Receipt};

    use super::*;

    /// A queue that, like NATS, rejects ids with a leading or trailing space.
    struct Picky(MemoryQueue);

    impl Picky {
        async fn send_one(&self, message: &Message) -> Result<Sent, QueueError> {
            if message.id.trim() != message.id {
                return Err(QueueError::refused("picky", "a space"));
            }
            self.0.send(std::slice::from_ref(message)).await.remove(0)
        }
    }

    #[async_trait]
    impl JobQueue for Picky {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn lease(&self) -> Duration {
            self.0.lease()
        }

        fn max_receive(&self) -> u32 {
            self.0.max_receive()
        }

        async fn send(&self, messages: &[Message]) -> Vec<Result<Sent, QueueError>> {
            let mut results = Vec::new();
            for message in messages {
                results.push(self.send_one(message).await);
            }
            results
        }

        async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
            self.0.receive(max, wait).await
        }

        async fn acknowledge(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
            self.0.acknowledge(receipts).await
        }

        async fn extend(&self, receipts: &[Receipt]) -> Vec<Result<(), QueueError>> {
            self.0.extend(receipts).await
        }

        async fn release(&self, receipts: &[Receipt], delay: Duration) -> Vec<Result<(), QueueError>> {
            self.0.release(receipts, delay).await
        }

        async fn renew(&self, delivery: &Delivery, delay: Duration) -> Result<(), QueueError> {
            self.0.renew(delivery, delay).await
        }

        async fn dead_letter(&self, delivery: &Delivery, why: &DeadLetter) -> Result<(), QueueError> {
            self.0.dead_letter(delivery, why).await
        }

        async fn review(&self, judge: &mut Judge<'_>) -> Result<(), QueueError> {
            self.0.review(judge).await
        }

        async fn depth(&self) -> Result<Depth, QueueError> {
            self.0.depth().await
        }
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EnqueueArgs,
    }

    fn arguments(inputs: &[&str]) -> EnqueueArgs {
        Line::parse_from([&["enqueue", "--queue", "memory://jobs"], inputs].concat()).args
    }

    fn feed<'a>(args: &'a EnqueueArgs, queue: &MemoryQueue) -> Feed<'a> {
        Feed::new(args, Arc::new(Picky(queue.clone())), IoRuntime::start().unwrap(), Duration::ZERO)
    }

    #[test]
    fn what_is_refused_fails_alone() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        let large = format!("s3://b/{}", "x".repeat(600));
        let secret = format!("{large}?signature=hush-hush");
        let long_id = format!(r#"{{"version":1,"id":"{}","image":{{"url":"https://x/y"}}}}"#, "i".repeat(257));
        let lines = ["s3://b/a", "s3://b/tab\there", "photo.jpg", &long_id, "", &large, &secret, "s3://b/c"];
        let text = [lines.join("\n").as_bytes(), b"\ns3://b/\xff\n"].concat();
        std::fs::write(&list, text).unwrap();
        let list = list.to_str().unwrap();
        let args = arguments(&["s3://b/space ", "--from-list", list]);

        let queue = MemoryQueue::new("jobs", PATIENCE, 5).with_max_bytes(500);
        let mut feed = feed(&args, &queue);
        feed.all(&Cancel::default()).unwrap();
        assert_eq!(feed.failed, 4, "what can be told without the queue");
        let names: Vec<_> = feed.waiting.iter().map(|(what, _)| what.as_str()).collect();
        assert_eq!((names[0], names[1]), ("s3://b/space", format!("{list}:1: s3://b/a").as_str()));
        assert!(names[3].starts_with(&format!("{list}:7: s3://b/xxx")) && names[3].ends_with("x…?…"), "{}", names[3]);
        feed.flush().unwrap();
        assert_eq!((feed.sent, feed.failed), (2, 7));
        let received = feed.runtime.handle().block_on(queue.receive(9, Duration::ZERO)).unwrap();
        let ids: Vec<_> = received.into_iter().map(|delivery| delivery.id).collect();
        assert_eq!(ids, ["s3://b/a", "s3://b/c"]);
    }

    #[test]
    fn a_broker_that_takes_no_more_ends_it_and_what_was_sent_is_known() {
        let args = arguments(&["s3://b/a", "s3://b/space ", "s3://b/b", "s3://b/c"]);
        let queue = MemoryQueue::new("jobs", PATIENCE, 5).with_max_messages(2);
        let mut feed = feed(&args, &queue);
        feed.all(&Cancel::default()).unwrap();
        let error = feed.flush().unwrap_err();
        let told = "queue jobs: it is full: it holds 2 messages; 2 jobs are on the queue, the others are not";
        assert!(error.to_string().starts_with(told), "{error}");
        assert_eq!((feed.sent, feed.failed), (2, 1));
    }

    #[test]
    fn a_broker_that_takes_nothing_is_named_after_two_seconds() {
        let args = arguments(&["s3://b/a", "s3://b/b"]);
        let queue = MemoryQueue::new("jobs", PATIENCE, 5).with_max_messages(1);
        let mut feed = Feed::new(&args, Arc::new(queue), IoRuntime::start().unwrap(), SILENT);
        feed.all(&Cancel::default()).unwrap();
        assert!(feed.flush().is_err() && feed.told);
    }

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
        let refused = |address| image(address).unwrap_err();
        assert!(refused("photo.jpg").contains("nor a job"));
        assert!(refused("ftp://x/y").starts_with("no worker reads ftp://"));
        assert!(refused("https://user:secret@x/y").contains("leave it out"));
        assert!(whole(r#"{"version":1,"image":{"object":"https://x/y"}}"#).unwrap_err().contains("called an object"));
    }
}
