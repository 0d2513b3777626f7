//! Lists: files with one entry per line, or with entries that end in NUL.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::SourceError;

/// Longer entries are neither paths nor jobs.
const MAX_ENTRY: usize = 1 << 20;

/// The end of an entry of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Separator {
    /// `\n` or `\r\n`. Blank lines are skipped. A byte order mark says whether the text is UTF-8 or UTF-16; without
    /// one, lines are any bytes but NUL.
    #[default]
    Line,
    /// NUL, as `find -print0` writes it. Entries are any other bytes.
    Nul,
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListEntry<'a> {
    /// Its line, or its position in a list separated by NUL, from 1.
    pub number: u64,
    /// Its bytes without the separator, never empty; UTF-8 if the list is UTF-16.
    pub bytes: &'a [u8],
}

/// Puts a unit of UTF-16 together.
type Unit = fn([u8; 2]) -> u16;

/// Reads the entries of a list one by one.
pub struct ListReader {
    /// The list in messages.
    name: String,
    input: BufReader<Box<dyn Read>>,
    separator: Separator,
    /// If the list is UTF-16.
    utf16: Option<Unit>,
    entry: Vec<u8>,
    number: u64,
}

impl ListReader {
    /// Opens the list at `path`; `-` is standard input.
    ///
    /// # Errors
    /// If the list cannot be opened or read.
    pub fn open(path: &Path, separator: Separator) -> Result<Self, SourceError> {
        if is_standard_input(path) {
            return Self::new("standard input".to_owned(), Box::new(io::stdin()), separator);
        }
        let file = open_list(path)?;
        Self::new(path.display().to_string(), Box::new(file), separator)
    }

    fn new(name: String, mut input: Box<dyn Read>, separator: Separator) -> Result<Self, SourceError> {
        let mut start = Vec::new();
        if separator == Separator::Line {
            input.by_ref().take(3).read_to_end(&mut start).map_err(unreadable(&name))?;
        }
        let (mark, utf16): (_, Option<Unit>) = match start[..] {
            [0xEF, 0xBB, 0xBF] => (3, None),
            [0xFF, 0xFE, ..] => (2, Some(u16::from_le_bytes)),
            [0xFE, 0xFF, ..] => (2, Some(u16::from_be_bytes)),
            _ => (0, None),
        };
        start.drain(..mark);
        let input = BufReader::with_capacity(1 << 16, Box::new(io::Cursor::new(start).chain(input)) as Box<dyn Read>);
        Ok(Self { name, input, separator, utf16, entry: Vec::new(), number: 0 })
    }

    /// Returns the next entry, or `None` at the list's end.
    ///
    /// # Errors
    /// If reading fails, or the list is not what its separator says: an entry of more than 1 MiB, a line that contains
    /// NUL, invalid UTF-16.
    pub fn next_entry(&mut self) -> Result<Option<ListEntry<'_>>, SourceError> {
        while self.read_entry()? {
            if !self.is_blank() {
                return Ok(Some(ListEntry { number: self.number, bytes: &self.entry }));
            }
        }
        Ok(None)
    }

    /// Reads an entry without its separator; `false` at the list's end.
    fn read_entry(&mut self) -> Result<bool, SourceError> {
        self.entry.clear();
        self.number += 1;
        let ends = match self.separator {
            Separator::Line => b'\n',
            Separator::Nul => 0,
        };
        match self.utf16 {
            Some(unit) => self.read_utf16(unit)?,
            None => {
                let mut input = self.input.by_ref().take(MAX_ENTRY as u64 + 1);
                input.read_until(ends, &mut self.entry).map_err(unreadable(&self.name))?;
            }
        }
        let found = !self.entry.is_empty();
        self.check()?;
        self.entry.pop_if(|byte| *byte == ends);
        if self.separator == Separator::Line {
            self.entry.pop_if(|byte| *byte == b'\r');
        }
        Ok(found)
    }

    /// Reads a line of UTF-16 as UTF-8.
    fn read_utf16(&mut self, unit: Unit) -> Result<(), SourceError> {
        const NEWLINE: u16 = b'\n' as u16;
        let mut units = Vec::new();
        let mut pair = [0; 2];
        while units.last() != Some(&NEWLINE) && units.len() <= MAX_ENTRY && self.read_pair(&mut pair)? {
            units.push(unit(pair));
        }
        let line = String::from_utf16(&units).map_err(|_| self.invalid("is not valid UTF-16"))?;
        self.entry.extend_from_slice(line.as_bytes());
        Ok(())
    }

    /// Reads two bytes; `false` at the list's end.
    fn read_pair(&mut self, pair: &mut [u8; 2]) -> Result<bool, SourceError> {
        let (first, second) = pair.split_at_mut(1);
        let found = self.input.read(first).map_err(unreadable(&self.name))? > 0;
        if found {
            self.input.read_exact(second).map_err(|_| self.invalid("ends within a character of UTF-16"))?;
        }
        Ok(found)
    }

    fn check(&self) -> Result<(), SourceError> {
        if self.separator == Separator::Line && self.entry.contains(&0) {
            return Err(SourceError::NulInList { list: self.name.clone(), line: self.number });
        }
        if self.entry.len() > MAX_ENTRY {
            return Err(self.invalid(&format!("is longer than {MAX_ENTRY} bytes; is this a list?")));
        }
        Ok(())
    }

    /// Returns true if the entry stands for nothing: in a list separated by NUL, spaces may be a name.
    fn is_blank(&self) -> bool {
        match self.separator {
            Separator::Line => self.entry.trim_ascii().is_empty(),
            Separator::Nul => self.entry.is_empty(),
        }
    }

    fn invalid(&self, problem: &str) -> SourceError {
        let entry = match self.separator {
            Separator::Line => "line",
            Separator::Nul => "entry",
        };
        SourceError::Invalid(format!("{entry} {} of {} {problem}", self.number, self.name))
    }
}

impl std::fmt::Debug for ListReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListReader").field("name", &self.name).field("number", &self.number).finish_non_exhaustive()
    }
}

pub(crate) fn is_standard_input(list: &Path) -> bool {
    list.as_os_str() == "-"
}

/// Opens a list for reading.
pub(crate) fn open_list(path: &Path) -> Result<fs::File, SourceError> {
    fs::File::open(path)
        .map_err(|source| SourceError::Io { action: format!("open the list {}", path.display()), source })
}

fn unreadable(name: &str) -> impl FnOnce(io::Error) -> SourceError {
    let action = format!("read {name}");
    move |source| SourceError::Io { action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(separator: Separator, list: &[u8]) -> Result<Vec<(u64, String)>, String> {
        let mut entries = Vec::new();
        let mut list = ListReader::new("list".to_owned(), Box::new(io::Cursor::new(list.to_vec())), separator).unwrap();
        while let Some(ListEntry { number, bytes }) = list.next_entry().map_err(|error| error.to_string())? {
            entries.push((number, String::from_utf8_lossy(bytes).into_owned()));
        }
        Ok(entries)
    }

    fn encoded(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(unit).collect()
    }

    #[test]
    fn every_encoding_of_a_list_gives_the_same_entries() {
        let text = "a.jpg\r\n \n\r\n  b # c.jpg \nü/日本🦊.png\r\nlast";
        let want = [(1, "a.jpg"), (4, "  b # c.jpg "), (5, "ü/日本🦊.png"), (6, "last")];
        let want: Vec<_> = want.map(|(number, entry)| (number, entry.to_owned())).into();
        let marked = format!("\u{feff}{text}");
        let little = encoded(&marked, u16::to_le_bytes);
        let big = encoded(&marked, u16::to_be_bytes);
        for list in [text.as_bytes(), marked.as_bytes(), &little, &big] {
            assert_eq!(read(Separator::Line, list), Ok(want.clone()));
        }
        for empty in [&b""[..], b"\n", b"\xef\xbb\xbf", b"\xff\xfe"] {
            assert_eq!(read(Separator::Line, empty), Ok(Vec::new()));
        }
    }

    #[test]
    fn between_nuls_is_anything() {
        let list = b"\xff\xfe\n.jpg\0\0 \0two\nlines\r\0last";
        let entries = ["\u{fffd}\u{fffd}\n.jpg", " ", "two\nlines\r", "last"].map(str::to_owned);
        let numbers = [1, 3, 4, 5];
        assert_eq!(read(Separator::Nul, list), Ok(numbers.into_iter().zip(entries).collect()));
    }

    #[test]
    fn what_is_no_list_of_this_kind_is_told() {
        let line = |list: &[u8]| read(Separator::Line, list).unwrap_err();
        assert!(line(b"a\nb\0c\0").starts_with("line 2 of list contains NUL"));
        assert!(line(&encoded("a.jpg\n", u16::to_le_bytes)).contains("UTF-16 without a byte order mark"));
        assert_eq!(line(b"\xff\xfea\0\n"), "line 1 of list ends within a character of UTF-16");
        assert_eq!(line(b"\xff\xfe\0\xd8\n\0"), "line 1 of list is not valid UTF-16");
        assert!(line(&vec![b'x'; MAX_ENTRY + 2]).starts_with("line 1 of list is longer than"));
        assert!(read(Separator::Nul, &vec![b'x'; MAX_ENTRY + 2]).unwrap_err().starts_with("entry 1 of list is longer"));
    }
}
