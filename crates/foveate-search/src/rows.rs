use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

/// Collects the components of vectors, in memory up to some size, and beyond in a file.
#[derive(Debug)]
pub struct Collector {
    folder: PathBuf,
    /// Most components in memory.
    most: usize,
    memory: Vec<f32>,
    file: Option<BufWriter<File>>,
}

/// The components of vectors, one after the other.
#[derive(Debug)]
pub enum Components {
    /// In memory.
    Memory(Vec<f32>),
    /// In a file without a name, which ends with the value. The system keeps in memory what it has room for.
    File(Mmap),
}

impl Collector {
    /// Keeps up to `bytes` in memory. A file is made in `folder`.
    pub fn new(folder: &Path, bytes: usize) -> Self {
        Self { folder: folder.to_owned(), most: bytes / 4, memory: Vec::new(), file: None }
    }

    /// Adds components.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn extend(&mut self, components: &[f32]) -> io::Result<()> {
        if self.memory.len() + components.len() > self.most {
            self.flush()?;
        }
        self.memory.extend_from_slice(components);
        Ok(())
    }

    /// Moves what is in memory to the file.
    fn flush(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufWriter::with_capacity(1 << 20, tempfile::tempfile_in(&self.folder)?)),
        };
        for components in self.memory.chunks(1 << 14) {
            let bytes: Vec<[u8; 4]> = components.iter().map(|x| x.to_ne_bytes()).collect();
            file.write_all(bytes.as_flattened())?;
        }
        // The rest goes to the file piece by piece.
        self.memory = Vec::new();
        self.most = 1 << 20;
        Ok(())
    }

    /// Ends the collection.
    ///
    /// # Errors
    /// If the file cannot be written or mapped.
    pub fn finish(mut self) -> io::Result<Components> {
        if self.file.is_some() {
            self.flush()?;
        }
        let Some(file) = self.file else { return Ok(Components::Memory(self.memory)) };
        let file = file.into_inner()?;
        // SAFETY: the file has no name and no other handle, so nothing changes it as long as it is mapped.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file)? };
        Ok(Components::File(map))
    }
}

impl Deref for Components {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Memory(components) => components,
            // SAFETY: any bytes are an f32, and the map begins at a page and was written in whole numbers.
            #[allow(unsafe_code)]
            Self::File(map) => unsafe { std::slice::from_raw_parts(map.as_ptr().cast(), map.len() / 4) },
        }
    }
}

impl Default for Components {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_in_a_file_are_those_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<f32> = (0..10_000).map(|x| x as f32).collect();
        for bytes in [0, 4_000, 40_000] {
            let mut collector = Collector::new(folder.path(), bytes);
            all.chunks(7).for_each(|components| collector.extend(components).unwrap());
            let components = collector.finish().unwrap();
            assert_eq!(*components, *all);
            assert_eq!(matches!(components, Components::Memory(_)), bytes == 40_000);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(Collector::new(Path::new("/no/such/folder"), 0).extend(&[1.0]).is_err());
    }
}
