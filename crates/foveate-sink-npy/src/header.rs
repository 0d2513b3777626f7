//! The header of a `.npy` file (NumPy's NEP 1 format), written and read.

use std::io::{self, Read};

use foveate_sink::Element;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// What a `.npy` file of vectors holds: a C-ordered array `[rows, dim]` of little-endian floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// `<f4` or `<f2`.
    pub element: Element,
    /// Number of vectors.
    pub rows: u64,
    /// Components of each vector.
    pub dim: u64,
}

/// Why a file is not an array of vectors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// It could not be read, or ends within the header or the data.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// It does not start the way a `.npy` file does.
    #[error("not a .npy file")]
    NotNpy,
    /// A `.npy` file whose header is damaged, or too long to be one.
    #[error("damaged .npy header: {0}")]
    Damaged(&'static str),
    /// A sound `.npy` file of something else.
    #[error("not an array of vectors: {0}")]
    Unsupported(String),
}

impl NpyHeader {
    /// Length of the header that [`to_bytes`](Self::to_bytes) makes, where the data begin: a multiple of 64 as
    /// memory-mapping wants it, with room for any shape.
    pub const LEN: usize = 128;

    /// Longest header that is read; NumPy's own limit is 10 000 characters.
    const MAX_TEXT: usize = 10_000;

    /// The header in format 1.0, padded with blanks to [`LEN`](Self::LEN).
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let descr = match self.element {
            Element::F32 => "<f4",
            Element::F16 => "<f2",
        };
        let Self { rows, dim, .. } = self;
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
        let mut bytes = [b' '; Self::LEN];
        bytes[..6].copy_from_slice(MAGIC);
        bytes[6..8].copy_from_slice(&[1, 0]);
        bytes[8..10].copy_from_slice(&(Self::LEN as u16 - 10).to_le_bytes());
        bytes[10..10 + text.len()].copy_from_slice(text.as_bytes());
        bytes[Self::LEN - 1] = b'\n';
        bytes
    }

    /// Reads the header from the start of a file, leaving `reader` where the data begin. Formats 1.0 to 3.0.
    pub fn read(reader: &mut impl Read) -> Result<Self, NpyError> {
        let mut start = [0; 8];
        reader.read_exact(&mut start)?;
        if &start[..6] != MAGIC {
            return Err(NpyError::NotNpy);
        }
        let len = read_text_len(reader, start[6])?;
        let mut text = vec![0; len];
        reader.read_exact(&mut text)?;
        let text = std::str::from_utf8(&text).map_err(|_| NpyError::Damaged("not text"))?;
        Fields::parse(text)?.into_header()
    }

    /// Bytes of the data, or `None` when they exceed the address space.
    pub fn data_len(self) -> Option<usize> {
        let values = usize::try_from(self.rows).ok()?.checked_mul(usize::try_from(self.dim).ok()?)?;
        values.checked_mul(self.element.bytes())
    }

    /// Reads the vectors that follow the header, as f32, row-major. Takes memory only for what is really there.
    pub fn read_vectors(self, reader: &mut impl Read) -> Result<Vec<f32>, NpyError> {
        let len = self.data_len().ok_or(NpyError::Damaged("an impossible shape"))?;
        let mut bytes = Vec::new();
        reader.take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() < len {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(match self.element {
            Element::F32 => bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect(),
            Element::F16 => bytes.as_chunks().0.iter().map(|&two| half::f16::from_le_bytes(two).to_f32()).collect(),
        })
    }
}

fn read_text_len(reader: &mut impl Read, major: u8) -> Result<usize, NpyError> {
    let mut len = [0; 4];
    match major {
        1 => reader.read_exact(&mut len[..2])?,
        2 | 3 => reader.read_exact(&mut len)?,
        _ => return Err(NpyError::Unsupported(format!("format version {major}"))),
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > NpyHeader::MAX_TEXT { Err(NpyError::Damaged("it is too long")) } else { Ok(len) }
}

/// The header's dictionary.
#[derive(Default)]
struct Fields {
    descr: Option<String>,
    fortran_order: Option<bool>,
    shape: Option<Vec<u64>>,
}

impl Fields {
    /// Parses a Python literal like `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
    fn parse(text: &str) -> Result<Self, NpyError> {
        let mut rest = Cursor(text);
        let mut fields = Self::default();
        rest.expect('{')?;
        while !rest.eat('}') {
            let key = rest.string()?;
            rest.expect(':')?;
            fields.set(key, &mut rest)?;
            if !rest.eat(',') {
                rest.expect('}')?;
                break;
            }
        }
        if rest.0.trim().is_empty() { Ok(fields) } else { Err(NpyError::Damaged("text after the dictionary")) }
    }

    fn set(&mut self, key: &str, rest: &mut Cursor<'_>) -> Result<(), NpyError> {
        match key {
            "descr" => self.descr = Some(rest.descr()?.to_owned()),
            "fortran_order" => self.fortran_order = Some(rest.boolean()?),
            "shape" => self.shape = Some(rest.tuple()?),
            _ => return Err(NpyError::Damaged("an unknown key")),
        }
        Ok(())
    }

    fn into_header(self) -> Result<NpyHeader, NpyError> {
        let (Some(descr), Some(fortran_order), Some(shape)) = (self.descr, self.fortran_order, self.shape) else {
            return Err(NpyError::Damaged("a key is missing"));
        };
        let element = match descr.as_str() {
            "<f4" => Element::F32,
            "<f2" => Element::F16,
            _ => return Err(NpyError::Unsupported(format!("elements are {descr:?}, not '<f4' or '<f2'"))),
        };
        match shape[..] {
            _ if fortran_order => Err(NpyError::Unsupported("columns come first (fortran_order)".to_owned())),
            [rows, dim] => Ok(NpyHeader { element, rows, dim }),
            _ => Err(NpyError::Unsupported(format!("{} dimensions, not 2", shape.len()))),
        }
    }
}

/// What is left of the dictionary's text.
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    fn eat(&mut self, wanted: char) -> bool {
        let rest = self.0.trim_start().strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, wanted: char) -> Result<(), NpyError> {
        if self.eat(wanted) { Ok(()) } else { Err(NpyError::Damaged("not a dictionary")) }
    }

    fn string(&mut self) -> Result<&'a str, NpyError> {
        let quote = if self.eat('"') { '"' } else { self.expect('\'').map(|()| '\'')? };
        let (text, rest) = self.0.split_once(quote).ok_or(NpyError::Damaged("a string does not end"))?;
        self.0 = rest;
        Ok(text)
    }

    fn descr(&mut self) -> Result<&'a str, NpyError> {
        if self.0.trim_start().starts_with('[') {
            return Err(NpyError::Unsupported("elements are records".to_owned()));
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        let text = self.0.trim_start();
        let (value, rest) = match (text.strip_prefix("True"), text.strip_prefix("False")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(NpyError::Damaged("fortran_order is neither True nor False")),
        };
        self.0 = rest;
        Ok(value)
    }

    fn tuple(&mut self) -> Result<Vec<u64>, NpyError> {
        self.expect('(')?;
        let mut numbers = Vec::new();
        while !self.eat(')') {
            numbers.push(self.number()?);
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(numbers)
    }

    fn number(&mut self) -> Result<u64, NpyError> {
        let text = self.0.trim_start();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        self.0 = &text[end..];
        text[..end].parse().map_err(|_| NpyError::Damaged("a shape that is no number"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_text(text: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[1, 0]);
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    fn read(text: &str) -> Result<NpyHeader, NpyError> {
        NpyHeader::read(&mut with_text(text).as_slice())
    }

    #[test]
    fn what_other_writers_write_is_read() {
        let expected = NpyHeader { element: Element::F32, rows: 3, dim: 4 };
        for text in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n",
            "{\"shape\":(3,4),\"descr\":\"<f4\",\"fortran_order\":False}",
            " { 'fortran_order' : False , 'shape' : ( 3 , 4 , ) , 'descr' : '<f4' }\n",
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_array_of_vectors_is_named() {
        let shown = |text: &str| read(text).unwrap_err().to_string();
        assert!(shown("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }").contains("<f8"));
        assert!(shown("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }").contains("fortran_order"));
        assert!(shown("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }").contains("1 dimensions"));
        assert!(shown("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }").contains("records"));
        assert!(shown("{'descr': '<f4', 'shape': (3, 4), }").contains("missing"));
        assert!(shown("{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 4), }").contains("number"));
        assert!(shown("{'descr': '<f4").contains("does not end"));
        assert!(matches!(NpyHeader::read(&mut &b"PAR1PAR1PAR1"[..]), Err(NpyError::NotNpy)));
        assert!(matches!(NpyHeader::read(&mut &b"\x93NUM"[..]), Err(NpyError::Io(_))));
    }

    #[test]
    fn an_impossible_shape_takes_no_memory() {
        let header = NpyHeader { element: Element::F32, rows: u64::MAX, dim: 3 };
        assert!(matches!(header.read_vectors(&mut io::empty()), Err(NpyError::Damaged(_))));
        let header = NpyHeader { element: Element::F32, rows: 1 << 40, dim: 3 };
        assert!(matches!(header.read_vectors(&mut io::empty()), Err(NpyError::Io(_))));
    }

    proptest! {
        #[test]
        fn a_header_comes_back(rows: u64, dim: u64, wide: bool) {
            let element = if wide { Element::F32 } else { Element::F16 };
            let header = NpyHeader { element, rows, dim };
            let bytes = header.to_bytes();
            prop_assert_eq!(bytes.len() % 64, 0);
            prop_assert_eq!(NpyHeader::read(&mut bytes.as_slice()).unwrap(), header);
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>, text in "[{}()<>,:'a-zA-Z0-9 ]{0,80}") {
            let _ = NpyHeader::read(&mut bytes.as_slice());
            let _ = read(&text);
        }
    }
}
