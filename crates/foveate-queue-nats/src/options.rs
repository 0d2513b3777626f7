//! The options of an address and its settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use foveate_queue::{QueueError, QueueOptions};

const SETTINGS: [&str; 7] = ["subject", "consumer", "dead-letter", "credentials", "user", "tls", "ca"];
const LIKE: &str = "it looks like nats://host:4222/STREAM";

/// A stream, its servers, and how to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NatsOptions {
    /// `host:port` of each server of one cluster.
    pub(crate) servers: Vec<String>,
    pub(crate) stream: String,
    /// The subject of new messages, unless it is the stream's own.
    pub(crate) subject: Option<String>,
    pub(crate) consumer: String,
    /// The dead letters' stream.
    pub(crate) dead_letter: String,
    pub(crate) lease: Option<Duration>,
    pub(crate) max_receive: u32,
    pub(crate) create: bool,
    pub(crate) login: Login,
    /// True if a server without TLS is refused. A server that demands TLS always gets it.
    pub(crate) tls: bool,
    /// Trusted certificates besides the system's.
    pub(crate) ca: Option<PathBuf>,
}

/// The login. It has no `Display`, and its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    Anonymous,
    /// A `.creds` file.
    File(PathBuf),
    Password(String, String),
    Token(String),
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

fn wrong(message: impl Into<String>) -> QueueError {
    QueueError::Options(message.into())
}

impl NatsOptions {
    /// Reads the options; `env` looks up the secrets, which do not belong on a command line.
    pub(crate) fn read(options: &QueueOptions, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, QueueError> {
        let (servers, stream) = address(&options.address)?;
        let settings = options.settings(&SETTINGS)?;
        let tls = match settings.get("tls").map(String::as_str) {
            None => false,
            Some("required") => true,
            Some(other) => return Err(wrong(format!("setting 'tls': '{other}'; it can only be 'required'"))),
        };
        if options.lease.is_some_and(|lease| lease.is_zero()) {
            return Err(QueueError::Lease("a lease of no time".to_owned()));
        }
        let mut consumer = "foveate".to_owned();
        let mut dead_letter = format!("{stream}-DEAD");
        for (setting, value) in [("consumer", &mut consumer), ("dead-letter", &mut dead_letter)] {
            if let Some(given) = settings.get(setting) {
                *value = name(setting, given)?.to_owned();
            }
        }
        Ok(Self {
            subject: settings.get("subject").map(|given| subject(given).map(str::to_owned)).transpose()?,
            consumer,
            dead_letter,
            lease: options.lease,
            max_receive: options.max_receive.max(1),
            create: options.create,
            login: login(settings, env)?,
            tls,
            ca: settings.get("ca").map(PathBuf::from),
            servers,
            stream,
        })
    }
}

/// The servers and the stream. Errors do not repeat text before an `@`, which may be a password.
fn address(address: &str) -> Result<(Vec<String>, String), QueueError> {
    let rest = address.strip_prefix("nats://").ok_or_else(|| wrong(format!("'{address}' is no address; {LIKE}")))?;
    if rest.contains('@') {
        let remedy = "give them in NATS_USER and NATS_PASSWORD, NATS_TOKEN or a file (setting 'credentials')";
        return Err(wrong(format!("credentials do not belong into an address, which others see; {remedy}")));
    }
    let (servers, stream) =
        rest.split_once('/').ok_or_else(|| wrong(format!("'{address}' names no stream; {LIKE}")))?;
    if servers.split(',').any(str::is_empty) {
        return Err(wrong(format!("'{address}' names no host; {LIKE}")));
    }
    Ok((servers.split(',').map(str::to_owned).collect(), name("stream", stream)?.to_owned()))
}

/// Checks the name of a stream or a consumer.
fn name<'a>(what: &str, name: &'a str) -> Result<&'a str, QueueError> {
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c)) {
        return Err(wrong(format!("{what}: '{name}'; a name there has no spaces and none of . * > / \\")));
    }
    Ok(name)
}

fn subject(subject: &str) -> Result<&str, QueueError> {
    if subject.contains(|c: char| c.is_whitespace() || c.is_control() || "*>".contains(c))
        || subject.split('.').any(str::is_empty)
    {
        return Err(wrong(format!(
            "setting 'subject': '{subject}'; it is sent to, so it has no wildcards and no spaces"
        )));
    }
    Ok(subject)
}

/// Settings precede the environment, whose variables are those of NATS' own tools.
fn login(settings: &BTreeMap<String, String>, env: &dyn Fn(&str) -> Option<String>) -> Result<Login, QueueError> {
    if let Some(file) = settings.get("credentials").cloned().or_else(|| env("NATS_CREDS")) {
        return Ok(Login::File(file.into()));
    }
    if let Some(user) = settings.get("user").cloned().or_else(|| env("NATS_USER")) {
        let password = env("NATS_PASSWORD").ok_or_else(|| wrong(format!("user '{user}', but no NATS_PASSWORD")))?;
        return Ok(Login::Password(user, password));
    }
    Ok(env("NATS_TOKEN").map_or(Login::Anonymous, Login::Token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: &str, settings: &[(&str, &str)], env: &[(&str, &str)]) -> Result<NatsOptions, String> {
        let mut options = QueueOptions::new(address);
        options.settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let lookup = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        NatsOptions::read(&options, &lookup).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_names_servers_and_stream() {
        let options = read("nats://a:4222,b/JOBS", &[], &[]).unwrap();
        assert_eq!(
            (&options.servers[..], options.stream.as_str()),
            (&["a:4222".to_owned(), "b".to_owned()][..], "JOBS")
        );
        assert_eq!((options.consumer.as_str(), options.dead_letter.as_str()), ("foveate", "JOBS-DEAD"));
        assert_eq!((options.login, options.tls, options.subject), (Login::Anonymous, false, None));
        for (address, reason) in [
            ("tls://a/JOBS", "'tls://a/JOBS' is no address; it looks like nats://host:4222/STREAM"),
            ("nats://a:4222", "'nats://a:4222' names no stream; it looks like nats://host:4222/STREAM"),
            ("nats:///JOBS", "'nats:///JOBS' names no host; it looks like nats://host:4222/STREAM"),
            ("nats://a/", "stream: ''; a name there has no spaces and none of . * > / \\"),
            ("nats://a/J.B", "stream: 'J.B'; a name there has no spaces and none of . * > / \\"),
        ] {
            assert_eq!(read(address, &[], &[]).unwrap_err(), reason);
        }
    }

    #[test]
    fn settings_are_checked() {
        let refused = |name, value| read("nats://a/JOBS", &[(name, value)], &[]).unwrap_err();
        assert!(refused("subject", "jobs.*").starts_with("setting 'subject': 'jobs.*'"));
        assert!(refused("subject", "jobs..a").starts_with("setting 'subject'"));
        assert!(refused("consumer", "a b").starts_with("consumer: 'a b'"));
        assert_eq!(refused("tls", "yes"), "setting 'tls': 'yes'; it can only be 'required'");
        assert!(refused("password", "x").starts_with("unknown setting 'password'; it has subject, consumer"));
        let tls = read("nats://a/JOBS", &[("tls", "required"), ("ca", "/ca.pem")], &[]).unwrap();
        assert_eq!((tls.tls, tls.ca), (true, Some(PathBuf::from("/ca.pem"))));
    }

    #[test]
    fn who_we_are_comes_from_files_and_the_environment_and_is_not_shown() {
        let login = |settings: &[_], env: &[_]| read("nats://a/JOBS", settings, env).map(|options| options.login);
        let file = Login::File("/x.creds".into());
        assert_eq!(login(&[("credentials", "/x.creds")], &[("NATS_USER", "u")]), Ok(file.clone()));
        assert_eq!(login(&[], &[("NATS_CREDS", "/x.creds")]), Ok(file));
        let password = Login::Password("u".to_owned(), "geheim".to_owned());
        assert_eq!(login(&[("user", "u")], &[("NATS_PASSWORD", "geheim")]), Ok(password));
        assert_eq!(login(&[], &[("NATS_TOKEN", "geheim")]), Ok(Login::Token("geheim".to_owned())));
        assert_eq!(login(&[("user", "u")], &[]), Err("user 'u', but no NATS_PASSWORD".to_owned()));

        let options = read("nats://a/JOBS", &[("user", "u")], &[("NATS_PASSWORD", "geheim")]).unwrap();
        assert!(!format!("{options:?}").contains("geheim"));
        let reason = read("nats://u:geheim@a/JOBS", &[], &[]).unwrap_err();
        assert!(reason.starts_with("credentials do not belong into an address") && !reason.contains("geheim"));
    }
}
