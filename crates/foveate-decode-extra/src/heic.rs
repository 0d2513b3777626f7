//! HEIC with libheif, which is found at run time: its codecs are a matter of the system.
//!
//! The primary image comes upright, as the container asks for.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use foveate_core::{PixelBuf, Size};
use foveate_decode::{DecodeError, ImageFormat};
use libloading::Library;

use crate::read_image::{ReadImage, admit};

const FORMAT: ImageFormat = ImageFormat::Heic;

/// Their names in `heif.h`.
const COLORSPACE_RGB: c_int = 1;
const CHROMA_INTERLEAVED_RGB: c_int = 10;
const CHANNEL_INTERLEAVED: c_int = 10;
const UNSUPPORTED_FILETYPE: c_int = 3;
const UNSUPPORTED_FEATURE: c_int = 4;

/// `heif_error`, whose message lives as long as the context.
#[repr(C)]
struct HeifError {
    code: c_int,
    subcode: c_int,
    message: *const c_char,
}

/// `heif_context`, `heif_image_handle` and `heif_image`, which only the library looks into.
type Opaque = *mut c_void;

/// The library's functions, of any release since 1.3.
struct LibHeif {
    version: unsafe extern "C" fn() -> *const c_char,
    context_alloc: unsafe extern "C" fn() -> Opaque,
    context_free: unsafe extern "C" fn(Opaque),
    read_from_memory: unsafe extern "C" fn(Opaque, *const u8, usize, *const c_void) -> HeifError,
    primary_handle: unsafe extern "C" fn(Opaque, *mut Opaque) -> HeifError,
    handle_width: unsafe extern "C" fn(Opaque) -> c_int,
    handle_height: unsafe extern "C" fn(Opaque) -> c_int,
    handle_release: unsafe extern "C" fn(Opaque),
    decode: unsafe extern "C" fn(Opaque, *mut Opaque, c_int, c_int, *const c_void) -> HeifError,
    image_width: unsafe extern "C" fn(Opaque, c_int) -> c_int,
    image_height: unsafe extern "C" fn(Opaque, c_int) -> c_int,
    plane: unsafe extern "C" fn(Opaque, c_int, *mut c_int) -> *const u8,
    image_release: unsafe extern "C" fn(Opaque),
    /// Since 1.13: otherwise each image takes four threads of its own.
    max_threads: Option<unsafe extern "C" fn(Opaque, c_int)>,
}

/// The library, loaded once.
///
/// # Errors
/// The reason why there is none, and the remedy.
fn library() -> Result<&'static LibHeif, &'static str> {
    static LOADED: OnceLock<Result<LibHeif, String>> = OnceLock::new();
    LOADED.get_or_init(|| LibHeif::load().map_err(|error| error.to_string())).as_ref().map_err(String::as_str)
}

const NAME: &str = if cfg!(windows) {
    "heif.dll"
} else if cfg!(target_os = "macos") {
    "libheif.1.dylib"
} else {
    "libheif.so.1"
};

impl LibHeif {
    fn load() -> Result<Self, libloading::Error> {
        // SAFETY: libheif's initializers have no conditions, the types of its functions are those of `heif.h`, which
        // has kept them since 1.3, and the library stays loaded until the process ends.
        unsafe {
            let library = Box::leak(Box::new(Library::new(NAME)?));
            // Since 1.13: codecs that are files of their own are found so.
            if let Ok(init) = library.get::<unsafe extern "C" fn(*mut c_void) -> HeifError>(c"heif_init") {
                init(ptr::null_mut());
            }
            Ok(Self {
                version: *library.get(c"heif_get_version")?,
                context_alloc: *library.get(c"heif_context_alloc")?,
                context_free: *library.get(c"heif_context_free")?,
                read_from_memory: *library.get(c"heif_context_read_from_memory_without_copy")?,
                primary_handle: *library.get(c"heif_context_get_primary_image_handle")?,
                handle_width: *library.get(c"heif_image_handle_get_width")?,
                handle_height: *library.get(c"heif_image_handle_get_height")?,
                handle_release: *library.get(c"heif_image_handle_release")?,
                decode: *library.get(c"heif_decode_image")?,
                image_width: *library.get(c"heif_image_get_width")?,
                image_height: *library.get(c"heif_image_get_height")?,
                plane: *library.get(c"heif_image_get_plane_readonly")?,
                image_release: *library.get(c"heif_image_release")?,
                max_threads: library.get(c"heif_context_set_max_decoding_threads").ok().map(|function| *function),
            })
        }
    }
}

/// The library's release, or why there is none.
pub(crate) fn described() -> Result<String, String> {
    let library = library()?;
    // SAFETY: it is a constant string.
    Ok(unsafe { CStr::from_ptr((library.version)()) }.to_string_lossy().into_owned())
}

/// A value of the library's, and the function that frees it.
struct OwnedHeic {
    value: Opaque,
    free: unsafe extern "C" fn(Opaque),
}

impl Drop for OwnedHeic {
    fn drop(&mut self) {
        if !self.value.is_null() {
            // SAFETY: the value came from the library, and nothing uses it afterwards.
            unsafe { (self.free)(self.value) }
        }
    }
}

pub(crate) fn decode(encoded: &[u8], out: &mut PixelBuf) -> Result<ReadImage, DecodeError> {
    let heif = library().map_err(|reason| {
        let remedy = "install it (`apt install libheif1`, `brew install libheif`), or convert the file to PNG or JPEG";
        DecodeError::unsupported(FORMAT, format!("libheif was not found ({reason}); {remedy}"))
    })?;
    // SAFETY: every value is of the library's, alive, and of the type that its function takes; `context` and `handle`
    // are freed after what came from them, and `encoded` outlives both. A plane has `height` rows at a distance of
    // `stride`, of three bytes for each of `width` pixels.
    unsafe {
        let context = OwnedHeic { value: (heif.context_alloc)(), free: heif.context_free };
        if let Some(max_threads) = heif.max_threads {
            // Images are decoded side by side already, and 0 is the calling thread.
            max_threads(context.value, 0);
        }
        checked((heif.read_from_memory)(context.value, encoded.as_ptr(), encoded.len(), ptr::null()))?;
        let mut handle = OwnedHeic { value: ptr::null_mut(), free: heif.handle_release };
        checked((heif.primary_handle)(context.value, &raw mut handle.value))?;
        let width = (heif.handle_width)(handle.value).max(0).cast_unsigned();
        let size = Size::new(width, (heif.handle_height)(handle.value).max(0).cast_unsigned());
        // Planes of two bytes for a sample, and interleaved pixels.
        admit(FORMAT, size, size.pixels().saturating_mul(9), out)?;
        let mut image = OwnedHeic { value: ptr::null_mut(), free: heif.image_release };
        let options = ptr::null();
        let image_at = &raw mut image.value;
        checked((heif.decode)(handle.value, image_at, COLORSPACE_RGB, CHROMA_INTERLEAVED_RGB, options))?;
        let width = (heif.image_width)(image.value, CHANNEL_INTERLEAVED).max(0).cast_unsigned();
        let found = Size::new(width, (heif.image_height)(image.value, CHANNEL_INTERLEAVED).max(0).cast_unsigned());
        let mut stride = 0;
        let plane = (heif.plane)(image.value, CHANNEL_INTERLEAVED, &raw mut stride);
        let row = size.width as usize * 3;
        let stride = usize::try_from(stride).unwrap_or(0);
        if found != size || plane.is_null() || stride < row {
            return Err(DecodeError::corrupt(FORMAT, format!("its image is {found}, and the container says {size}")));
        }
        for (y, target) in out.reset(size)?.chunks_exact_mut(row).enumerate() {
            target.copy_from_slice(std::slice::from_raw_parts(plane.add(y * stride), row));
        }
        Ok(ReadImage { size, is_clipped: false })
    }
}

fn checked(error: HeifError) -> Result<(), DecodeError> {
    if error.code == 0 {
        return Ok(());
    }
    let message = if error.message.is_null() {
        format!("libheif's error {}.{}", error.code, error.subcode)
    } else {
        // SAFETY: it is a string that lives as long as the context.
        unsafe { CStr::from_ptr(error.message) }.to_string_lossy().into_owned()
    };
    Err(match error.code {
        UNSUPPORTED_FILETYPE | UNSUPPORTED_FEATURE => {
            let remedy = "its codec may be a package of its own (`apt install libheif-plugin-libde265`)";
            DecodeError::unsupported(FORMAT, format!("{message}; {remedy}"))
        }
        _ if message.contains("End of data") => DecodeError::truncated(FORMAT, message),
        _ => DecodeError::corrupt(FORMAT, message),
    })
}
