//! The header of a `.npy` file (NumPy's NEP 1 format).

use foveate_sink::Element;

/// A vector file's `.npy` header: a C-ordered array `[rows, dim]` of little-endian floats.
///
/// The `npyz` crate reads such files, and the tests read ours with it. Its writer is not used, because it needs the
/// shape before the first row, and its header's length depends on the shape. This header has the same length for every
/// shape, so that the rows can come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NpyHeader {
    /// `<f4` or `<f2`.
    pub(crate) element: Element,
    /// Number of vectors.
    pub(crate) rows: u64,
    /// Components of each vector.
    pub(crate) dim: u64,
}

impl NpyHeader {
    /// Length of the header, where the data begins: a multiple of 64 for memory-mapping, with room for any shape.
    pub(crate) const LEN: usize = 128;

    /// The header in format 1.0, padded with blanks to [`LEN`](Self::LEN).
    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let descr = match self.element {
            Element::F32 => "<f4",
            Element::F16 => "<f2",
        };
        let Self { rows, dim, .. } = self;
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
        let mut bytes = [b' '; Self::LEN];
        bytes[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
        bytes[8..10].copy_from_slice(&(Self::LEN as u16 - 10).to_le_bytes());
        bytes[10..10 + text.len()].copy_from_slice(text.as_bytes());
        bytes[Self::LEN - 1] = b'\n';
        bytes
    }
}

#[cfg(test)]
mod tests {
    use npyz::{DType, Order};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn npyz_reads_what_was_written(rows: u64, dim: u64, wide: bool) {
            let (element, name) = if wide { (Element::F32, "<f4") } else { (Element::F16, "<f2") };
            let bytes = NpyHeader { element, rows, dim }.to_bytes();
            prop_assert_eq!(bytes.len() % 64, 0);
            let mut rest = bytes.as_slice();
            let header = npyz::NpyHeader::from_reader(&mut rest).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!((header.shape(), header.order()), (&[rows, dim][..], Order::C));
            prop_assert_eq!(header.dtype(), DType::Plain(name.parse().unwrap()));
        }
    }
}
