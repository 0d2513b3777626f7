//! The options of an address and its settings.

use std::path::PathBuf;
use std::time::Duration;

use foveate_queue::{QueueError, QueueOptions};

const SETTINGS: [&str; 6] = ["url", "endpoint", "region", "dead-letter", "credentials", "profile"];

/// Longest visibility timeout of SQS, counted from the receipt.
pub(crate) const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// A queue, and how to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqsOptions {
    pub(crate) name: String,
    /// The queue's URL, for a queue of another account, which cannot be found by name.
    pub(crate) url: Option<String>,
    /// The endpoint of another service than Amazon's.
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    /// The dead letters' queue.
    pub(crate) dead_letter: Option<String>,
    /// A credentials file, instead of the usual places.
    pub(crate) credentials: Option<PathBuf>,
    /// A profile of such a file.
    pub(crate) profile: Option<String>,
    pub(crate) lease: Option<Duration>,
    pub(crate) max_receive: u32,
    pub(crate) create: bool,
}

fn wrong(message: impl Into<String>) -> QueueError {
    QueueError::Options(message.into())
}

impl SqsOptions {
    pub(crate) fn read(options: &QueueOptions) -> Result<Self, QueueError> {
        let settings = options.settings(&SETTINGS)?;
        let SqsAddress { name: named, url, region, endpoint } = SqsAddress::parse(&options.address)?;
        for setting in ["url", "endpoint"] {
            if let Some(url) = settings.get(setting) {
                check_url(setting, url)?;
            }
        }
        Ok(Self {
            name: name("queue", named)?,
            url: settings.get("url").cloned().or(url),
            endpoint: settings.get("endpoint").cloned().or(endpoint),
            region: settings.get("region").cloned().or(region),
            dead_letter: settings.get("dead-letter").map(|given| name("dead-letter", given)).transpose()?,
            credentials: settings.get("credentials").map(PathBuf::from),
            profile: settings.get("profile").cloned(),
            lease: options.lease.map(whole_seconds).transpose()?,
            max_receive: options.max_receive.max(1),
            create: options.create,
        })
    }

    /// The dead letters' queue if neither the options nor the queue name one.
    pub(crate) fn usual_dead_letter(&self) -> String {
        match self.name.strip_suffix(FIFO) {
            Some(stem) => format!("{stem}-dead{FIFO}"),
            None => format!("{}-dead", self.name),
        }
    }
}

/// An address: `sqs://QUEUE`, or the URL by which SQS knows the queue.
struct SqsAddress<'a> {
    name: &'a str,
    url: Option<String>,
    region: Option<String>,
    endpoint: Option<String>,
}

impl<'a> SqsAddress<'a> {
    fn parse(address: &'a str) -> Result<Self, QueueError> {
        let bad =
            || wrong("that is no address; it looks like sqs://QUEUE or https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE");
        if let Some(name) = address.strip_prefix("sqs://").filter(|name| !name.is_empty()) {
            return Ok(Self { name, url: None, region: None, endpoint: None });
        }
        check_url("url", address).map_err(|_| bad())?;
        let (scheme, rest) = address.split_once("://").ok_or_else(bad)?;
        let (host, path) = rest.split_once('/').ok_or_else(bad)?;
        let name = path.rsplit('/').next().filter(|name| !name.is_empty()).ok_or_else(bad)?;
        let region = host.strip_prefix("sqs.").and_then(|rest| rest.split_once(".amazonaws.com"));
        let region = region.map(|(region, _)| region.to_owned());
        let endpoint = region.is_none().then(|| format!("{scheme}://{host}"));
        Ok(Self { name, url: Some(address.to_owned()), region, endpoint })
    }
}

/// The suffix of FIFO queues' names.
const FIFO: &str = ".fifo";

pub(crate) fn is_fifo(queue: &str) -> bool {
    queue.ends_with(FIFO)
}

/// The text is not repeated: it may be an address with credentials.
fn name(what: &str, name: &str) -> Result<String, QueueError> {
    let stem = name.strip_suffix(FIFO).unwrap_or(name);
    if stem.is_empty() || name.len() > 80 || stem.contains(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c)) {
        return Err(wrong(format!(
            "{what}: a queue's name has up to 80 letters, digits, - and _ (and may end in .fifo); its address is the setting 'url'"
        )));
    }
    Ok(name.to_owned())
}

fn check_url(setting: &str, url: &str) -> Result<(), QueueError> {
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match host.map(|rest| rest.split('/').next().unwrap_or_default()) {
        Some(host) if host.contains('@') => Err(wrong(format!("setting '{setting}': credentials do not belong there"))),
        Some(host) if !host.is_empty() => Ok(()),
        _ => Err(wrong(format!("setting '{setting}': it looks like https://host"))),
    }
}

fn whole_seconds(lease: Duration) -> Result<Duration, QueueError> {
    if lease.subsec_nanos() != 0 || lease.is_zero() || lease > LONGEST {
        let reason = format!("a lease of {lease:?}: SQS takes whole seconds, from 1 to 43200 (12 hours)");
        return Err(QueueError::Lease(reason));
    }
    Ok(lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: &str, settings: &[(&str, &str)], lease: Option<Duration>) -> Result<SqsOptions, String> {
        let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let options = QueueOptions { lease, settings, ..QueueOptions::new(address) };
        SqsOptions::read(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_names_a_queue() {
        let dead = |address| read(address, &[], None).map(|options| options.usual_dead_letter());
        assert_eq!(dead("sqs://jobs_1"), Ok("jobs_1-dead".to_owned()));
        assert_eq!(dead("sqs://jobs.fifo"), Ok("jobs-dead.fifo".to_owned()));
        for address in ["sqs://", "jobs", "https://u:geheim@host/1/jobs", "https://host", "https://host/1/"] {
            assert!(
                dead(address).unwrap_err().starts_with("that is no address; it looks like sqs://QUEUE or https://")
            );
        }
        for address in ["sqs://a/b", "sqs://user:geheim@host", "sqs://.fifo", "sqs://a.b"] {
            let reason = dead(address).unwrap_err();
            assert!(reason.starts_with("queue: a queue's name has") && !reason.contains("geheim"), "{reason}");
        }
    }

    #[test]
    fn a_queue_has_a_url_too() {
        let read = |address| {
            let SqsOptions { name, url, region, endpoint, .. } = read(address, &[], None).unwrap();
            assert_eq!(url.as_deref(), Some(address));
            (name, region, endpoint)
        };
        let [jobs, region] = ["jobs", "eu-central-1"].map(str::to_owned);
        assert_eq!(read("https://sqs.eu-central-1.amazonaws.com/1/jobs"), (jobs.clone(), Some(region), None));
        let endpoint = Some("http://localhost:4566".to_owned());
        assert_eq!(read("http://localhost:4566/000000000000/jobs"), (jobs, None, endpoint));
    }

    #[test]
    fn settings_are_checked() {
        let refused = |name, value| read("sqs://jobs", &[(name, value)], None).unwrap_err();
        assert_eq!(refused("endpoint", "localhost:5000"), "setting 'endpoint': it looks like https://host");
        assert_eq!(refused("url", "https://u:geheim@host/q"), "setting 'url': credentials do not belong there");
        assert!(refused("secret", "x").starts_with("unknown setting 'secret'; it has url, endpoint, region"));
        assert!(refused("dead-letter", "a b").starts_with("dead-letter: a queue's name has"));
    }

    #[test]
    fn a_lease_is_what_sqs_can_count() {
        for lease in [Duration::ZERO, Duration::from_millis(1500), Duration::from_secs(43201)] {
            assert!(read("sqs://jobs", &[], Some(lease)).unwrap_err().contains("SQS takes whole seconds"));
        }
        let longest = read("sqs://jobs", &[], Some(Duration::from_secs(43200))).unwrap();
        assert_eq!(longest.lease, Some(Duration::from_secs(43200)));
    }
}
