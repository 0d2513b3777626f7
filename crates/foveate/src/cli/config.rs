//! `--config FILE`: reads long options from a TOML file and puts them before those of the command line, which take
//! precedence.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::CommandFactory;
use foveate::lab::Setting;
use toml::{Table, Value};

use super::args::Cli;

const OPTION: &str = "--config";
/// The section of the file with a drift budget and the evidence that the options keep it. It holds no options.
const EVIDENCE: &str = "drift-budget";
/// Its section with the part of a job's fingerprint that the evidence is for.
const FINGERPRINT: &str = "fingerprint";
/// Parts of a fingerprint that the evidence leaves out: the model's path is private, its weights have a hash, and the
/// others affect no vector's direction.
const IRRELEVANT: [&str; 4] = ["model", "max_pixels", "allow_truncated", "normalize"];

/// Inserts the file's arguments behind the subcommand's name, if the arguments name a file.
///
/// # Errors
/// Fails if the file cannot be read, is not TOML, or has an option that the command does not know.
pub(crate) fn expand(args: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
    let Some(path) = named(&args) else { return Ok(args) };
    let command = args.get(1).and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let options = read_table(&path).and_then(|table| options(&command, &table));
    let options = options.with_context(|| format!("cannot use the configuration {}", path.display()))?;
    let mut all = args;
    all.splice(2..2, options.into_iter().map(OsString::from));
    Ok(all)
}

fn read_table(path: &Path) -> anyhow::Result<Table> {
    Ok(std::fs::read_to_string(path)?.parse()?)
}

/// Returns the file that the arguments name.
fn named(args: &[OsString]) -> Option<PathBuf> {
    for (at, arg) in args.iter().enumerate().take_while(|(_, arg)| *arg != "--").skip(2) {
        if arg == OPTION {
            return args.get(at + 1).map(PathBuf::from);
        }
        if let Some(path) = arg.to_str().and_then(|arg| arg.strip_prefix(OPTION)?.strip_prefix('=')) {
            return Some(path.into());
        }
    }
    None
}

/// Converts a table to arguments of `command`.
fn options(command: &str, table: &Table) -> anyhow::Result<Vec<String>> {
    let cli = Cli::command();
    let known = cli.find_subcommand(command).with_context(|| format!("there is no command '{command}'"))?;
    let mut options = Vec::new();
    for (name, value) in table.iter().filter(|(name, _)| *name != EVIDENCE) {
        if name == "config" || !known.get_arguments().any(|arg| arg.get_long() == Some(name)) {
            bail!(
                "'{command}' has no option '{name}'; options are named as on the command line (`foveate {command} --help`)"
            );
        }
        let values = match value {
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            options.extend(option(name, value)?);
        }
    }
    Ok(options)
}

fn option(name: &str, value: &Value) -> anyhow::Result<Option<String>> {
    Ok(match value {
        Value::Boolean(on) => on.then(|| format!("--{name}")),
        Value::String(text) => Some(format!("--{name}={text}")),
        Value::Integer(_) | Value::Float(_) => Some(format!("--{name}={value}")),
        _ => bail!("'{name}' is {}; it takes a word, a number, true, false, or several of them", value.type_str()),
    })
}

/// A drift budget, and the evidence that a configuration keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    /// Budget, sample and figures by name.
    pub(crate) facts: Table,
    /// The fingerprint of the vectors that were measured.
    pub(crate) fingerprint: BTreeMap<String, String>,
}

impl Evidence {
    /// Reads the section of a configuration file; `None` if it has none.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or the section is not such a one.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        let evidence = read_table(path).and_then(Self::of);
        evidence.with_context(|| format!("cannot use the drift budget in {}", path.display()))
    }

    fn of(mut table: Table) -> anyhow::Result<Option<Self>> {
        let Some(section) = table.remove(EVIDENCE) else { return Ok(None) };
        let mut facts: Table = section.try_into()?;
        let fingerprint = facts.remove(FINGERPRINT).with_context(|| format!("[{EVIDENCE}] has no {FINGERPRINT}"))?;
        Ok(Some(Self { facts, fingerprint: fingerprint.try_into()? }))
    }

    /// Returns the first difference between the vectors that were measured and a job's, if there is one.
    pub(crate) fn difference(&self, job: &BTreeMap<String, String>) -> Option<String> {
        // The rest of a job's fingerprint is about its inputs and its output.
        let of_backends = job.keys().filter(|name| name.starts_with("encoder.") || name.starts_with("decoder."));
        for name in self.fingerprint.keys().chain(of_backends) {
            let measured = self.fingerprint.get(name).map_or("(none)", String::as_str);
            let now = job.get(name).map_or("(none)", String::as_str);
            if measured != now {
                return Some(format!("{name} is {now}, not {measured}"));
            }
        }
        None
    }

    /// Returns the entries of a manifest, by name.
    pub(crate) fn info(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.facts.iter().map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (format!("{EVIDENCE}.{name}"), text)
        })
    }

    /// Returns the section of the file.
    fn section(&self) -> Table {
        let fingerprint = self.fingerprint.iter().map(|(name, value)| (name.clone(), Value::String(value.clone())));
        let fingerprint = fingerprint.filter(|(name, _)| !IRRELEVANT.contains(&name.as_str()));
        let mut section = self.facts.clone();
        section.insert(FINGERPRINT.to_owned(), Value::Table(fingerprint.collect()));
        section
    }
}

/// Writes the setting that tuning chose, with `comment` above it. With evidence, it includes backends and precision.
pub(crate) fn write(
    path: &Path,
    setting: &Setting,
    evidence: Option<&Evidence>,
    comment: &[String],
) -> anyhow::Result<()> {
    let mut table = Table::new();
    if let Some(evidence) = evidence {
        let words = [
            ("decoder", setting.decoder.as_str()),
            ("decode-scale", setting.decode_scale()),
            ("resizer", setting.resizer.as_str()),
            ("encoder", setting.encoder.as_str()),
            ("dtype", setting.dtype.name()),
        ];
        table.extend(words.map(|(name, word)| (name.to_owned(), Value::String(word.to_owned()))));
        table.insert(EVIDENCE.to_owned(), Value::Table(evidence.section()));
    }
    let counts = [
        ("batch", setting.batch),
        ("workers", setting.workers),
        ("readers", setting.readers),
        ("threads", setting.threads),
        ("prefetch", setting.prefetch),
        ("requests", setting.requests),
    ];
    for (name, count) in counts {
        table.insert(name.to_owned(), Value::Integer(i64::try_from(count)?));
    }
    let comment: String = comment.iter().map(|line| format!("# {line}\n")).collect();
    std::fs::write(path, format!("{comment}{table}")).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(toml: &str, rest: &[&str]) -> anyhow::Result<Vec<String>> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), toml)?;
        let config = format!("--config={}", file.path().display());
        let args = ["foveate", "embed"].iter().chain(rest).map(OsString::from).chain([OsString::from(config)]);
        let all = expand(args.collect())?;
        Ok(all.iter().take(all.len() - 1).map(|arg| arg.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn options_of_the_file_come_first_and_the_command_line_wins() {
        let all = expanded("batch = 16\nmodel = 'seeded:tiny'\nstrict = true\nquiet = false", &["photos", "-b", "8"]);
        assert_eq!(
            all.unwrap(),
            ["foveate", "embed", "--batch=16", "--model=seeded:tiny", "--strict", "photos", "-b", "8"]
        );
        let all = ["foveate", "embed", "--batch=16", "x", "-o", "y", "--batch", "8"];
        let super::super::args::Command::Embed(embed) = <Cli as clap::Parser>::parse_from(all).command else {
            panic!("embed")
        };
        assert_eq!(embed.job.engine.batch, 8);
    }

    #[test]
    fn mistakes_are_named() {
        let problem = |toml| format!("{:#}", expanded(toml, &[]).unwrap_err());
        assert!(problem("wrokers = 2").contains("no option 'wrokers'"));
        assert!(problem("batch = {a = 1}").contains("table"));
        assert!(problem("batch =").contains("cannot use the configuration"));
        assert!(problem("config = 'x'").contains("no option 'config'"));
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("foveate.toml");
        let setting = Setting {
            decoder: "exact".to_owned(),
            scale: foveate::DecodeScale::Exact,
            resizer: "fir".to_owned(),
            recipe: "hf".to_owned(),
            encoder: "fused".to_owned(),
            dtype: foveate::encode::DType::F32,
            batch: 16,
            workers: 3,
            readers: 2,
            threads: 4,
            prefetch: 1,
            requests: 64,
        };
        write(&path, &setting, None, &["chosen".to_owned()]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# chosen\n"), "{text}");
        assert_eq!(options("embed", &text.parse().unwrap()).unwrap().len(), 6);
        assert!(Evidence::read(&path).unwrap().is_none());

        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(owned).collect::<Vec<_>>();
        let fingerprint: BTreeMap<_, _> = pairs(&[("dtype", "f32"), ("model", "a/tiny")]).into_iter().collect();
        let facts = Table::from_iter([("min-cosine".to_owned(), Value::Float(0.999))]);
        write(&path, &setting, Some(&Evidence { facts, fingerprint: fingerprint.clone() }), &[]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(options("embed", &text.parse().unwrap()).unwrap().len(), 11);
        let evidence = Evidence::read(&path).unwrap().unwrap();
        assert_eq!(evidence.info().collect::<Vec<_>>(), pairs(&[("drift-budget.min-cosine", "0.999")]));
        let job = |more: &[(&str, &str)]| fingerprint.clone().into_iter().chain(pairs(more)).collect();
        assert_eq!(evidence.difference(&job(&[("model", "b/tiny"), ("shard", "1/2")])), None);
        assert_eq!(evidence.difference(&job(&[("dtype", "f16")])).unwrap(), "dtype is f16, not f32");
        assert!(evidence.difference(&job(&[("encoder.optimization", "basic")])).is_some());
    }
}
