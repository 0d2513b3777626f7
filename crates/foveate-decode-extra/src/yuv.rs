//! Luma and chroma planes to RGB8, as libavif does with libyuv, which is how Pillow reads AVIF.

use foveate_core::Size;
use foveate_decode::heif::CodedColor;

/// Samples of one channel.
pub(crate) struct YuvPlane {
    pub(crate) size: Size,
    pub(crate) samples: Vec<u16>,
}

/// One plane for gray, or three.
pub(crate) struct YuvImage {
    pub(crate) planes: Vec<YuvPlane>,
    /// Shifts of the chroma planes' width and height.
    pub(crate) halves: (u32, u32),
    /// Bits of a sample: 8, 10 or 12.
    pub(crate) depth: u32,
    pub(crate) color: CodedColor,
}

/// MatrixCoefficients of ITU-T H.273 that are no weights of red and blue.
const IDENTITY: u16 = 0;

impl YuvImage {
    pub(crate) fn size(&self) -> Size {
        self.planes[0].size
    }

    /// An image of the same kind and another size.
    pub(crate) fn blank(&self, size: Size) -> Self {
        let (x, y) = self.halves;
        let half = Size::new((size.width + x) >> x, (size.height + y) >> y);
        let sizes = [size, half, half];
        let planes = sizes[..self.planes.len()]
            .iter()
            .map(|&size| YuvPlane { size, samples: vec![0; size.pixels() as usize] })
            .collect();
        Self { planes, ..*self }
    }

    /// Copies a tile to its place, or what of it lies within. False if it is of another kind, or lies elsewhere.
    pub(crate) fn paste(&mut self, tile: &Self, at: Size) -> bool {
        let is_alike = (tile.planes.len(), tile.halves, tile.depth) == (self.planes.len(), self.halves, self.depth);
        if !is_alike || at.width >= self.size().width || at.height >= self.size().height {
            return false;
        }
        for (index, (plane, from)) in self.planes.iter_mut().zip(&tile.planes).enumerate() {
            let (x, y) = if index == 0 { (0, 0) } else { self.halves };
            let left = (at.width >> x) as usize;
            let width = plane.size.width as usize;
            let from_width = from.size.width as usize;
            let rows = plane.samples.chunks_exact_mut(width).skip((at.height >> y) as usize);
            for (row, tile_row) in rows.zip(from.samples.chunks_exact(from_width)) {
                let length = from_width.min(width - left);
                row[left..left + length].copy_from_slice(&tile_row[..length]);
            }
        }
        true
    }

    /// Fills `rgb`.
    ///
    /// # Errors
    /// If the colours are coded in a way that is not read.
    pub(crate) fn to_rgb(&self, rgb: &mut [u8]) -> Result<(), String> {
        let width = self.size().width as usize;
        let down = self.depth - 8;
        let [luma, chroma @ ..] = self.planes.as_slice() else { return Err("no planes".to_owned()) };
        if self.color.matrix == IDENTITY && chroma.len() == 2 {
            if self.halves != (0, 0) {
                return Err("GBR with fewer samples of two channels".to_owned());
            }
            for (index, pixel) in rgb.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                *pixel = [2, 0, 1].map(|plane: usize| self.rounded(self.planes[plane].samples[index]));
            }
            return Ok(());
        }
        if chroma.is_empty() {
            for (pixel, sample) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(&luma.samples) {
                *pixel = [self.rounded(*sample); 3];
            }
            return Ok(());
        }
        let weights = ColorWeights::of(self.color)?;
        for (y, (target, row)) in rgb.chunks_exact_mut(width * 3).zip(luma.samples.chunks_exact(width)).enumerate() {
            for (x, (pixel, sample)) in target.as_chunks_mut::<3>().0.iter_mut().zip(row).enumerate() {
                let luma = i32::from(sample >> down);
                let mut both = [128; 2];
                for (value, plane) in both.iter_mut().zip(chroma) {
                    *value = plane.at(x, y, self.halves, x + 1 == width, down);
                }
                *pixel = weights.rgb(luma, both);
            }
        }
        Ok(())
    }
}

impl YuvImage {
    /// A sample that needs no others, as libavif itself converts it.
    fn rounded(&self, sample: u16) -> u8 {
        let most = (1 << self.depth) - 1;
        let black = if self.color.is_full_range { 0 } else { 16 << (self.depth - 8) };
        let range = if self.color.is_full_range { most } else { 219 << (self.depth - 8) };
        ((2 * 255 * (i32::from(sample) - black).clamp(0, range) + range) / (2 * range)) as u8
    }
}

impl YuvPlane {
    /// Four times the value between two samples of a row, nearer to the first one.
    fn across(&self, near_x: usize, far_x: usize, y: usize, down: u32) -> i32 {
        let row = &self.samples[y * self.size.width as usize..];
        3 * i32::from(row[near_x] >> down) + i32::from(row[far_x] >> down)
    }

    /// The value at a pixel of the whole image: the sample, or what lies between samples.
    fn at(&self, x: usize, y: usize, halves: (u32, u32), is_last: bool, down: u32) -> i32 {
        let width = self.size.width as usize;
        let height = self.size.height as usize;
        let (near_x, far_x) = neighbours(x, halves.0, width);
        // libyuv does not interpolate the last pixel of a row.
        let far_x = if is_last { near_x } else { far_x };
        let (near_y, far_y) = neighbours(y, halves.1, height);
        match halves {
            (0, 0) => i32::from(self.samples[y * width + x] >> down),
            (1, 0) => (self.across(near_x, far_x, y, down) + 2) >> 2,
            _ => {
                let near = self.across(near_x, far_x, near_y, down);
                let far = self.across(near_x, far_x, far_y, down);
                (3 * near + far + 8) >> 4
            }
        }
    }
}

/// The nearest two samples of a row or column, of which there is one for two pixels.
fn neighbours(at: usize, halves: u32, length: usize) -> (usize, usize) {
    if halves == 0 {
        return (at, at);
    }
    let near = at / 2;
    let far = if at % 2 == 1 { (near + 1).min(length - 1) } else { near.saturating_sub(1) };
    (near, far)
}

/// libyuv's fixed-point conversion: six fractional bits.
struct ColorWeights {
    luma: i32,
    bias: i32,
    red: i32,
    green: [i32; 2],
    blue: i32,
}

impl ColorWeights {
    fn of(color: CodedColor) -> Result<Self, String> {
        // Weights of red and blue in luma.
        let (red, blue) = match color.matrix {
            1 => (0.2126, 0.0722),
            // Unspecified counts as BT.601.
            2 | 5 | 6 => (0.299, 0.114),
            4 => (0.3, 0.11),
            7 => (0.212, 0.087),
            9 => (0.2627, 0.0593),
            other => return Err(format!("colours with matrix {other} of ITU-T H.273")),
        };
        let green = 1.0 - red - blue;
        let (luma, bias, chroma) = match color.is_full_range {
            true => (16320, 32, 64.0),
            false => (18997, -1160, 64.0 * 255.0 / 224.0),
        };
        let weights =
            [2.0 * (1.0 - red), 2.0 * blue * (1.0 - blue) / green, 2.0 * red * (1.0 - red) / green, 2.0 * (1.0 - blue)];
        let weights = weights.map(|value: f64| (value * chroma).round() as i32);
        Ok(Self {
            luma,
            bias,
            red: weights[0],
            green: [weights[1], weights[2]],
            // It was a byte of seven bits.
            blue: weights[3].min(128),
        })
    }

    fn rgb(&self, luma: i32, [blue, red]: [i32; 2]) -> [u8; 3] {
        let luma = ((luma * 0x0101 * self.luma) >> 16) + self.bias;
        let blue = blue - 128;
        let red = red - 128;
        let sums = [luma + red * self.red, luma - blue * self.green[0] - red * self.green[1], luma + blue * self.blue];
        sums.map(|sum| (sum >> 6).clamp(0, 255) as u8)
    }
}
