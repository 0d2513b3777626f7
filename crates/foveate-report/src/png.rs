//! Figures as PNG.

use resvg::{tiny_skia, usvg};

use crate::ReportError;
use crate::font::{MEDIUM, REGULAR};

/// Pixels of the PNG per pixel of the SVG, so that it is sharp on high-resolution screens.
const SCALE: f32 = 2.0;

/// Draws `svg` with only the bundled fonts, so that every machine gives the same pixels.
pub(crate) fn rasterize(figure: &'static str, svg: &str) -> Result<Vec<u8>, ReportError> {
    let failed = |cause| ReportError::Figure { figure, cause };
    let mut options = usvg::Options { font_family: "Roboto".to_owned(), ..usvg::Options::default() };
    for font in [REGULAR, MEDIUM] {
        options.fontdb_mut().load_font_data(font.to_vec());
    }
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| failed(error.into()))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed("it has no size".into()))?;
    let mut pixels = tiny_skia::Pixmap::new(size.width(), size.height())
        .ok_or_else(|| failed(format!("{} x {} pixels are too many", size.width(), size.height()).into()))?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(error.into()))
}
