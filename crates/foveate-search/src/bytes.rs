use std::io::{self, Read, Write};

/// Numbers that are read or written together.
pub(crate) const CHUNK: usize = 1 << 13;

pub(crate) fn put<T: Copy, const N: usize>(
    out: &mut dyn Write,
    items: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> io::Result<()> {
    items
        .chunks(CHUNK)
        .try_for_each(|items| out.write_all(items.iter().map(|&item| bytes(item)).collect::<Vec<_>>().as_flattened()))
}

pub(crate) fn get<T, const N: usize>(
    input: &mut dyn Read,
    items: &mut [T],
    of_bytes: impl Fn([u8; N]) -> T,
) -> io::Result<()> {
    for items in items.chunks_mut(CHUNK) {
        let mut bytes = vec![[0; N]; items.len()];
        input.read_exact(bytes.as_flattened_mut())?;
        items.iter_mut().zip(bytes).for_each(|(item, bytes)| *item = of_bytes(bytes));
    }
    Ok(())
}
