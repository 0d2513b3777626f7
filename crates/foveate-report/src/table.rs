//! Reading the files of a run: which there are, what they hold, and what is wrong with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::ReportError;
use crate::shown::{Num, Origin, Text};

/// A file that an experiment leaves in a run's folder, with the columns that the report reads.
pub(crate) struct Source {
    pub(crate) file: &'static str,
    /// The command that makes it.
    pub(crate) command: &'static str,
    pub(crate) words: &'static [&'static str],
    /// Columns of numbers, with their units. `%` stands for a share, of which 1 is the whole.
    pub(crate) numbers: &'static [(&'static str, &'static str)],
}

const CONTEXT_WORDS: [&str; 7] = ["model", "device", "host", "foveate", "features", "libraries", "date"];
const CONTEXT_NUMBERS: [(&str, &str); 2] = [("cores", ""), ("seed", "")];
/// Columns whose numbers may be below zero.
const SIGNED: [&str; 6] = ["drop", "drop_low", "drop_high", "error", "simulated_error", "low"];

const RATES: [(&str, &str); 3] =
    [("images_per_second", "images/s"), ("images_per_second_min", "images/s"), ("images_per_second_max", "images/s")];

/// Every file that the report knows.
pub(crate) static SOURCES: [Source; 17] = [
    Source {
        file: "profile.csv",
        command: "foveate profile PHOTOS --out DIR",
        words: &["photos", "mode", "decoder", "resizer", "encoder", "dtype", "decode_scale", "stage"],
        numbers: &[
            ("workers", ""),
            ("threads", ""),
            ("batch", ""),
            ("images", ""),
            ("total_s", "s"),
            ("share_of_wall", "%"),
            ("ms_per_image", "ms"),
            ("images_per_second", "images/s"),
        ],
    },
    Source {
        file: "decoders.csv",
        command: "foveate bench decoders PHOTOS --out DIR",
        words: &["photos", "decoder", "decode_scale", "status"],
        numbers: &[("p50_ms", "ms"), ("p90_ms", "ms")],
    },
    Source {
        file: "resizers.csv",
        command: "foveate bench resizers PHOTOS --out DIR",
        words: &["photos", "resizer", "recipe", "status"],
        numbers: &[("p50_ms", "ms"), ("p90_ms", "ms")],
    },
    Source {
        file: "sinks.csv",
        command: "foveate bench sinks --out DIR",
        words: &["sink", "variant", "status"],
        numbers: &[
            ("rows", ""),
            ("dim", ""),
            ("rows_per_second", "rows/s"),
            ("rows_per_second_min", "rows/s"),
            ("rows_per_second_max", "rows/s"),
            ("bytes_per_row", "B"),
        ],
    },
    Source {
        file: "forward.csv",
        command: "foveate bench forward PHOTOS --out DIR",
        words: &["encoder", "dtype", "status"],
        numbers: &[
            ("threads", ""),
            ("batch", ""),
            ("p50_ms", "ms"),
            ("p90_ms", "ms"),
            ("images_per_second", "images/s"),
        ],
    },
    Source {
        file: "batch_sweep.csv",
        command: "foveate bench batch-sweep PHOTOS --out DIR",
        words: &["encoder", "dtype", "status", "memory_of", "knee"],
        numbers: &[("threads", ""), ("batch", ""), RATES[0], RATES[1], RATES[2], ("peak_memory_mb", "MB")],
    },
    Source {
        file: "worker_sweep.csv",
        command: "foveate bench worker-sweep PHOTOS --out DIR",
        words: &["photos", "decoder", "resizer", "encoder", "dtype", "status", "limit", "plateau"],
        numbers: &[("workers", ""), RATES[0], RATES[1], RATES[2], ("encoder_busy", "%")],
    },
    Source {
        file: "headline.csv",
        command: "foveate bench headline PHOTOS --out DIR",
        words: &["photos", "change", "status", "limit"],
        numbers: &[
            ("step", ""),
            RATES[0],
            RATES[1],
            RATES[2],
            ("times_baseline", "×"),
            ("times_previous", "×"),
            ("encoder_busy", "%"),
        ],
    },
    Source {
        file: "extrapolation.csv",
        command: "foveate bench extrapolation PHOTOS --out DIR",
        words: &["photos", "within", "assumptions"],
        numbers: &[
            ("sample_images", ""),
            ("samples", ""),
            ("images_per_second", "images/s"),
            ("low", "images/s"),
            ("high", "images/s"),
            ("target_images", ""),
            ("hours", "h"),
            ("hours_low", "h"),
            ("hours_high", "h"),
            ("long_images", ""),
            ("long_images_per_second", "images/s"),
        ],
    },
    Source {
        file: "tuning.csv",
        command: "foveate tune PHOTOS --out DIR",
        words: &["photos", "chosen", "why"],
        numbers: &[
            ("workers", ""),
            ("threads", ""),
            ("batch", ""),
            ("prefetch", ""),
            ("readers", ""),
            RATES[0],
            RATES[1],
            RATES[2],
        ],
    },
    Source {
        file: "diagnosis.csv",
        command: "foveate diagnose PHOTOS --out DIR",
        words: &["photos", "cached", "adds", "status", "significant", "culprit"],
        numbers: &[("depth", ""), RATES[0], ("low", "images/s"), ("high", "images/s"), ("drop", "%")],
    },
    Source {
        file: "remedies.csv",
        command: "foveate diagnose PHOTOS --verify --out DIR",
        words: &["photos", "remedy", "stage", "change", "status", "why"],
        numbers: &[
            ("now", "images/s"),
            ("predicted", "images/s"),
            ("times", "×"),
            ("measured", "images/s"),
            ("error", "%"),
        ],
    },
    Source {
        file: "plan.csv",
        command: "foveate bench predictions PHOTOS --out DIR",
        words: &["photos", "decoder", "resizer", "encoder", "dtype", "limit"],
        numbers: &[
            ("workers", ""),
            ("batch", ""),
            ("predicted", "images/s"),
            ("simulated", "images/s"),
            ("measured", "images/s"),
            ("error", "%"),
            ("simulated_error", "%"),
        ],
    },
    Source {
        file: "batch_plan.csv",
        command: "foveate plan --from DIR --out DIR",
        words: &["wall", "crossover"],
        numbers: &[
            ("batch", ""),
            ("storage_ms", "ms"),
            ("cpu_ms", "ms"),
            ("compute_ms", "ms"),
            ("step_ms", "ms"),
            ("utilization", "%"),
        ],
    },
    Source {
        file: "timeline.csv",
        command: "foveate bench all PHOTOS --out DIR",
        words: &["scenario", "lane", "stage"],
        numbers: &[("start_ms", "ms"), ("end_ms", "ms"), ("batch", "")],
    },
    Source {
        file: "worker.csv",
        command: "foveate bench worker PHOTOS --out DIR",
        words: &["photos", "encoder", "change", "status"],
        numbers: &[
            ("configuration", ""),
            ("batch", ""),
            ("requests_per_second", "requests/s"),
            ("requests_per_second_min", "requests/s"),
            ("requests_per_second_max", "requests/s"),
            ("times_first", "×"),
            ("p50_ms", "ms"),
            ("p99_ms", "ms"),
            ("images_per_batch", ""),
            ("encoder_busy", "%"),
            ("cpu_busy", "%"),
            ("memory_growth_mb", "MB"),
            ("forward_sleep_ms", "ms"),
            ("photo_p50_ms", "ms"),
            ("photo_p99_ms", "ms"),
        ],
    },
    Source {
        file: "checklist.csv",
        command: "foveate bench all PHOTOS --out DIR",
        words: &["check", "question", "unit", "verdict", "advice", "source"],
        numbers: &[("value", "")],
    },
];

impl Source {
    fn columns(&self) -> impl Iterator<Item = &'static str> {
        let numbers = self.numbers.iter().chain(&CONTEXT_NUMBERS).map(|(name, _)| *name);
        self.words.iter().chain(&CONTEXT_WORDS).copied().chain(numbers)
    }

    fn unit(&self, column: &str) -> Option<&'static str> {
        self.numbers.iter().chain(&CONTEXT_NUMBERS).find(|(name, _)| *name == column).map(|(_, unit)| *unit)
    }
}

/// A file that was read, every column there and every number a number.
#[derive(Debug)]
pub(crate) struct Table {
    source: &'static Source,
    path: PathBuf,
    columns: BTreeMap<&'static str, usize>,
    rows: Vec<(u64, csv::StringRecord)>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.file)
    }
}

/// What is wrong where, before the file's name is known.
struct Fault {
    line: u64,
    column: String,
    problem: String,
}

impl Fault {
    fn into_error(self, path: PathBuf, source: &Source) -> ReportError {
        let Self { line, column, problem } = self;
        ReportError::Malformed { path, line, column, problem, command: source.command }
    }
}

impl Table {
    /// Reads `source` from `folder`; `None` when it is not there.
    pub(crate) fn read(folder: &Path, source: &'static Source) -> Result<Option<Self>, ReportError> {
        let path = folder.join(source.file);
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|cause| ReportError::File { path: path.clone(), cause })?,
        };
        Self::parse(&bytes, source, &path).map(Some).map_err(|fault| fault.into_error(path, source))
    }

    fn parse(bytes: &[u8], source: &'static Source, path: &Path) -> Result<Self, Fault> {
        let text = std::str::from_utf8(bytes).map_err(|error| Fault {
            line: 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() as u64,
            column: String::new(),
            problem: "the text is not UTF-8".to_owned(),
        })?;
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().map_err(|error| fault(&error))?.clone();
        let columns = find_columns(&header, source)?;
        let rows = reader
            .records()
            .map(|record| {
                let record = record.map_err(|error| fault(&error))?;
                Ok((record.position().map_or(0, csv::Position::line), record))
            })
            .collect::<Result<Vec<_>, Fault>>()?;
        if rows.is_empty() {
            let problem = "there are names of columns, but no rows".to_owned();
            return Err(Fault { line: 2, column: String::new(), problem });
        }
        let table = Self { source, path: path.to_owned(), columns, rows };
        table.check_numbers()?;
        Ok(table)
    }

    fn check_numbers(&self) -> Result<(), Fault> {
        for row in self.rows() {
            for (column, _) in self.source.numbers.iter().chain(&CONTEXT_NUMBERS) {
                let text = row.text(column);
                let problem = match text.parse::<f64>() {
                    _ if text.is_empty() => continue,
                    Err(_) => format!("'{text}' is not a number"),
                    Ok(value) if !value.is_finite() => format!("'{text}' is no finite number"),
                    Ok(value) if value < 0.0 && !SIGNED.contains(column) => format!("{text} is below zero"),
                    Ok(_) => continue,
                };
                return Err(Fault { line: row.line(), column: (*column).to_owned(), problem });
            }
        }
        Ok(())
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows.len()).map(|at| Row { table: self, at })
    }

    /// Its rows in groups of equal words in `column`, groups and rows in the file's order.
    pub(crate) fn grouped(&self, column: &'static str) -> Vec<Vec<Row<'_>>> {
        group(self.rows(), |row| row.text(column).to_owned())
    }
}

/// Items in groups of equal keys, in order of first appearance.
pub(crate) fn group<T, K: PartialEq>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<Vec<T>> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn fault(error: &csv::Error) -> Fault {
    let line = error.position().map_or(1, csv::Position::line);
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => format!("{len} fields instead of {expected_len}"),
        _ => error.to_string(),
    };
    Fault { line, column: String::new(), problem }
}

fn find_columns(header: &csv::StringRecord, source: &Source) -> Result<BTreeMap<&'static str, usize>, Fault> {
    let find = |name: &'static str| {
        let mut found = header.iter().enumerate().filter(|(_, column)| *column == name).map(|(at, _)| at);
        let problem = match (found.next(), found.next()) {
            (Some(at), None) => return Ok((name, at)),
            (Some(_), Some(_)) => "there are two such columns",
            (None, _) => "there is no such column",
        };
        Err(Fault { line: 1, column: name.to_owned(), problem: problem.to_owned() })
    };
    source.columns().map(find).collect()
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    table: &'a Table,
    at: usize,
}

impl<'a> Row<'a> {
    fn line(&self) -> u64 {
        self.table.rows[self.at].0
    }

    /// What the file says.
    ///
    /// # Panics
    /// When the column is not in the list of the file's columns: a defect of this crate.
    pub(crate) fn text(&self, column: &str) -> &'a str {
        let at = *self.table.columns.get(column).unwrap_or_else(|| panic!("{:?}: '{column}'", self.table.source));
        &self.table.rows[self.at].1[at]
    }

    pub(crate) fn is(&self, column: &str, word: &str) -> bool {
        self.text(column) == word
    }

    fn origin(&self, column: &'static str) -> Origin {
        Origin { file: self.table.source.file, line: self.line(), column, text: self.text(column).to_owned() }
    }

    /// A word or more, traced where it has digits.
    pub(crate) fn word(&self, column: &'static str) -> Text {
        Text::word(self.text(column), self.origin(column))
    }

    /// The name of its set of photos, without their sizes.
    pub(crate) fn set(&self) -> Text {
        let name = self.text("photos").split(',').next().unwrap_or_default();
        Text::word(name, self.origin("photos"))
    }

    /// The same as part of a sentence.
    pub(crate) fn photos(&self) -> Text {
        let name = self.set();
        if name.plain() == "as given" { "photos as given".into() } else { name + " photos" }
    }

    /// A number, `None` where the file has none.
    pub(crate) fn number(&self, column: &'static str) -> Option<Num> {
        let value = self.text(column).parse().ok()?;
        let unit = self.table.source.unit(column).unwrap_or_default();
        Some(Num { value, unit, how: "", from: vec![self.origin(column)] })
    }

    /// A number that has to be there.
    pub(crate) fn need(&self, column: &'static str) -> Result<Num, ReportError> {
        self.number(column).ok_or_else(|| {
            let problem = "the number is missing".to_owned();
            let fault = Fault { line: self.line(), column: column.to_owned(), problem };
            fault.into_error(self.table.path.clone(), self.table.source)
        })
    }

    /// What keeps the row from having figures, if its status says so.
    pub(crate) fn not_run(&self) -> Option<Text> {
        (!self.is("status", "ok")).then(|| self.word("status"))
    }
}
