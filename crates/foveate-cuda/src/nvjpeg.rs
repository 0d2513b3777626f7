//! JPEG decoding with nvJPEG, loaded at run time.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::buffer::Buffer;
use crate::capture::no_capture;
use crate::device::Device;
use crate::driver::Handle as Raw;
use crate::error::CudaError;
use crate::library::functions;
use crate::pinned::Pinned;
use crate::stream::{Event, Stream};
use crate::toolkit;

type Status = c_int;

/// `nvjpegImage_t`: the planes' addresses; an interleaved picture is plane 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NvjpegImage {
    pub(crate) channel: [*mut u8; 4],
    pub(crate) pitch: [usize; 4],
}

functions! {
    /// Declared as in nvJPEG 11.1 and unchanged since.
    Functions {
        fn nvjpegGetProperty(c_int, *mut c_int) -> Status;
        fn nvjpegCreateEx(c_int, *mut c_void, *mut c_void, c_uint, *mut Raw) -> Status;
        fn nvjpegDestroy(Raw) -> Status;
        fn nvjpegSetDeviceMemoryPadding(usize, Raw) -> Status;
        fn nvjpegSetPinnedMemoryPadding(usize, Raw) -> Status;
        fn nvjpegJpegStateCreate(Raw, *mut Raw) -> Status;
        fn nvjpegJpegStateDestroy(Raw) -> Status;
        fn nvjpegJpegStreamCreate(Raw, *mut Raw) -> Status;
        fn nvjpegJpegStreamDestroy(Raw) -> Status;
        fn nvjpegJpegStreamParse(Raw, *const u8, usize, c_int, c_int, Raw) -> Status;
        fn nvjpegJpegStreamParseHeader(Raw, *const u8, usize, Raw) -> Status;
        fn nvjpegJpegStreamGetFrameDimensions(Raw, *mut c_uint, *mut c_uint) -> Status;
        fn nvjpegDecodeBatchedInitialize(Raw, Raw, c_int, c_int, c_int) -> Status;
        fn nvjpegDecodeBatchedSupported(Raw, Raw, *mut c_int) -> Status;
        fn nvjpegDecodeBatched(Raw, Raw, *const *const u8, *const usize, *mut NvjpegImage, Raw) -> Status;
        fn nvjpegDecodeParamsCreate(Raw, *mut Raw) -> Status;
        fn nvjpegDecodeParamsDestroy(Raw) -> Status;
        fn nvjpegDecodeParamsSetOutputFormat(Raw, c_int) -> Status;
        fn nvjpegDecoderCreate(Raw, c_int, *mut Raw) -> Status;
        fn nvjpegDecoderDestroy(Raw) -> Status;
        fn nvjpegDecoderJpegSupported(Raw, Raw, Raw, *mut c_int) -> Status;
        fn nvjpegDecoderStateCreate(Raw, Raw, *mut Raw) -> Status;
        fn nvjpegBufferPinnedCreate(Raw, *mut c_void, *mut Raw) -> Status;
        fn nvjpegBufferPinnedDestroy(Raw) -> Status;
        fn nvjpegBufferDeviceCreate(Raw, *mut c_void, *mut Raw) -> Status;
        fn nvjpegBufferDeviceDestroy(Raw) -> Status;
        fn nvjpegStateAttachPinnedBuffer(Raw, Raw) -> Status;
        fn nvjpegStateAttachDeviceBuffer(Raw, Raw) -> Status;
        fn nvjpegDecodeJpegHost(Raw, Raw, Raw, Raw, Raw) -> Status;
        fn nvjpegDecodeJpegTransferToDevice(Raw, Raw, Raw, Raw, Raw) -> Status;
        fn nvjpegDecodeJpegDevice(Raw, Raw, Raw, *mut NvjpegImage, Raw) -> Status;
    }
}

// The numbers below are nvJPEG's.
const BACKEND_DEFAULT: c_int = 0;
const BACKEND_HYBRID: c_int = 1;
const BACKEND_GPU_HYBRID: c_int = 2;
const BACKEND_HARDWARE: c_int = 3;
/// libjpeg's chroma upsampling, instead of repeated samples.
const UPSAMPLING_WITH_INTERPOLATION: c_uint = 1 << 5;
const OUTPUT_RGB_INTERLEAVED: c_int = 5;
const NOT_INITIALIZED: Status = 1;
const INVALID_PARAMETER: Status = 2;
const ARCH_MISMATCH: Status = 7;
const NOT_IMPLEMENTED: Status = 9;
/// `NVJPEG_STATUS_…` in order.
const STATUS_NAMES: [&str; 11] = [
    "SUCCESS",
    "NOT_INITIALIZED",
    "INVALID_PARAMETER",
    "BAD_JPEG",
    "JPEG_NOT_SUPPORTED",
    "ALLOCATOR_FAILURE",
    "EXECUTION_FAILED",
    "ARCH_MISMATCH",
    "INTERNAL_ERROR",
    "IMPLEMENTATION_NOT_SUPPORTED",
    "INCOMPLETE_BITSTREAM",
];

/// These numbers' names in the headers.
#[cfg(test)]
pub(crate) const NUMBERS: &[(&str, i64)] = &[
    ("NVJPEG_BACKEND_DEFAULT", BACKEND_DEFAULT as i64),
    ("NVJPEG_BACKEND_HYBRID", BACKEND_HYBRID as i64),
    ("NVJPEG_BACKEND_GPU_HYBRID", BACKEND_GPU_HYBRID as i64),
    ("NVJPEG_BACKEND_HARDWARE", BACKEND_HARDWARE as i64),
    ("NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION", UPSAMPLING_WITH_INTERPOLATION as i64),
    ("NVJPEG_OUTPUT_RGBI", OUTPUT_RGB_INTERLEAVED as i64),
    ("NVJPEG_MAX_COMPONENT", 4),
    ("NVJPEG_STATUS_NOT_INITIALIZED", NOT_INITIALIZED as i64),
    ("NVJPEG_STATUS_INVALID_PARAMETER", INVALID_PARAMETER as i64),
    ("NVJPEG_STATUS_ARCH_MISMATCH", ARCH_MISMATCH as i64),
    ("NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED", NOT_IMPLEMENTED as i64),
    ("NVJPEG_STATUS_INCOMPLETE_BITSTREAM", STATUS_NAMES.len() as i64 - 1),
];

/// Asks for the numbers of engines and of cores in each; releases before 12 lack it.
// SAFETY: a type; the call justifies itself.
pub(crate) type DecoderInfo = unsafe extern "C" fn(Raw, *mut c_uint, *mut c_uint) -> Status;

/// The library, loaded once.
struct NvjpegLibrary {
    functions: Functions,
    decoder_info: Option<DecoderInfo>,
    path: String,
}

const REMEDY: &str = "install CUDA's nvJPEG, or `pip install nvidia-nvjpeg-cu12` (`nvidia-nvjpeg` for CUDA 13) and name \
                      its lib folder in FOVEATE_CUDA_LIB";

impl NvjpegLibrary {
    fn get() -> Result<&'static Self, CudaError> {
        static LIBRARY: OnceLock<Result<NvjpegLibrary, CudaError>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            let ((functions, decoder_info), path) = toolkit::find(("nvJPEG", "libnvjpeg.so", REMEDY), |library| {
                // SAFETY: the type is the one that the library's header declares for this name.
                let decoder_info = unsafe { library.get(b"nvjpegGetHardwareDecoderInfo\0") }.ok().map(|found| *found);
                Ok((Functions::of(library)?, decoder_info))
            })?;
            Ok(Self { functions, decoder_info, path })
        });
        library.as_ref().map_err(Clone::clone)
    }

    /// Converts the status of `function`: `true` for success, `false` for a failure of this image. Damaged data gives
    /// errors of any name. If the device itself failed, the next wait for it returns the error.
    fn done(&self, function: &'static str, status: Status) -> Result<bool, CudaError> {
        match status {
            0 => Ok(true),
            NOT_INITIALIZED | ARCH_MISMATCH => Err(call_error(function, status)),
            _ => Ok(false),
        }
    }

    fn check(&self, function: &'static str, status: Status) -> Result<(), CudaError> {
        if status == 0 { Ok(()) } else { Err(call_error(function, status)) }
    }
}

fn call_error(function: &'static str, status: Status) -> CudaError {
    let name = usize::try_from(status).ok().and_then(|number| STATUS_NAMES.get(number));
    let name = name.map_or_else(|| format!("error {status}"), |name| format!("NVJPEG_STATUS_{name}"));
    CudaError::Call { function, name, detail: String::new() }
}

/// The library's release: `nvJPEG 12.4.0`. Needs the driver, but no device.
///
/// # Errors
/// [`CudaError::Library`] if it is missing, with the paths that were tried; the errors of [`Device::names`].
pub fn release() -> Result<String, CudaError> {
    let library = NvjpegLibrary::get()?;
    let mut release = [0; 3];
    for (property, number) in (0..).zip(&mut release) {
        // SAFETY: `number` is a valid place for the number; 0, 1 and 2 are a release's parts.
        let status = unsafe { (library.functions.nvjpegGetProperty)(property, number) };
        library.check("nvjpegGetProperty", status)?;
    }
    let [major, minor, patch] = release;
    Ok(format!("nvJPEG {major}.{minor}.{patch}"))
}

/// Finds the library: its [release] and the path it was loaded as (`nvJPEG 12.4.0 (libnvjpeg.so.12)`).
///
/// # Errors
/// Those of [`release`].
pub fn find() -> Result<String, CudaError> {
    Ok(format!("{} ({})", release()?, NvjpegLibrary::get()?.path))
}

/// The library's memory grows in steps of this many bytes. Without them, it grows to each picture's exact size, and
/// each time the whole device waits. A worker has several decoders with several allocations each, so larger steps take
/// gigabytes.
const PADDING: usize = 2 << 20;

/// nvJPEG on a device. Clones share the handle.
#[derive(Clone)]
pub struct NvjpegHandle(Arc<NvjpegOpened>);

struct NvjpegOpened {
    library: &'static NvjpegLibrary,
    device: Device,
    handle: Raw,
    engines: Result<(), CudaError>,
}

/// The processors that a [`NvjpegHandle`] decodes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processors {
    /// The chip's cores alone.
    Cores,
    /// Its decoding engines too, if they can be used.
    EnginesToo,
}

/// The processor for a JPEG's Huffman decoding, which is sequential, if no decoding engine does all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Huffman {
    /// The host. Supports baseline and progressive files.
    Host,
    /// The device. Supports baseline files.
    Device,
}

/// A decoded picture's destination, RGB8 `[height, width, 3]`.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The memory that contains it.
    pub buffer: &'a Buffer,
    /// Its offset in bytes.
    pub offset: usize,
    /// The number of columns.
    pub width: u32,
    /// The number of rows.
    pub height: u32,
    /// The distance between rows in bytes.
    pub pitch: usize,
}

impl Target<'_> {
    fn image(&self, device: &Device) -> Result<NvjpegImage, CudaError> {
        let Self { pitch, .. } = *self;
        if pitch / 3 < self.width as usize {
            return Err(CudaError::Misfit(format!("rows of {} pixels every {pitch} bytes", self.width)));
        }
        self.buffer.check_room((self.height as usize).saturating_mul(pitch).saturating_add(self.offset))?;
        if self.buffer.device() != device {
            return Err(CudaError::Misfit("a buffer of another device".to_owned()));
        }
        let start = std::ptr::without_provenance_mut(self.buffer.address() as usize + self.offset);
        let none = std::ptr::null_mut();
        Ok(NvjpegImage { channel: [start, none, none, none], pitch: [pitch, 0, 0, 0] })
    }
}

impl NvjpegHandle {
    /// Finds the library and initializes it on `device` for the processors in `use_of`. The chip's decoding engines may
    /// be refused for many reasons: the chip has none, or the container lacks the driver's video library.
    ///
    /// An initialization takes some hundred milliseconds, and others wait for it. So a process has one for each device
    /// and choice of processors, as long as a handle to it is left.
    ///
    /// # Errors
    /// [`CudaError::Library`] if it is missing; the library's own errors otherwise.
    pub fn new(device: &Device, use_of: Processors) -> Result<Self, CudaError> {
        static OPENED: Mutex<Vec<(Processors, Weak<NvjpegOpened>)>> = Mutex::new(Vec::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|(_, handle)| handle.strong_count() > 0);
        let mut same = opened.iter().filter(|(processors, _)| *processors == use_of);
        if let Some(handle) = same.find_map(|(_, handle)| handle.upgrade().filter(|handle| handle.device == *device)) {
            return Ok(Self(handle));
        }
        let handle = Self::open(device, use_of)?;
        opened.push((use_of, Arc::downgrade(&handle.0)));
        Ok(handle)
    }

    fn open(device: &Device, use_of: Processors) -> Result<Self, CudaError> {
        let library = NvjpegLibrary::get()?;
        let opened =
            |handle, engines| Self(Arc::new(NvjpegOpened { library, device: device.clone(), handle, engines })).pad();
        let refusal = match use_of {
            Processors::EnginesToo => match Self::create(library, device, BACKEND_HARDWARE)? {
                Ok(handle) => return opened(handle, Ok(())),
                Err(status) => call_error("nvjpegCreateEx with the decoding engines", status),
            },
            Processors::Cores => CudaError::Misfit("the decoding engines are switched off".to_owned()),
        };
        let handle = Self::create(library, device, BACKEND_DEFAULT)?;
        let handle = handle.map_err(|status| call_error("nvjpegCreateEx", status))?;
        opened(handle, Err(refusal))
    }

    /// Makes the library's memory grow in large steps.
    fn pad(self) -> Result<Self, CudaError> {
        let NvjpegOpened { library, handle, .. } = &*self.0;
        let functions = &library.functions;
        // SAFETY: the handle is alive.
        let statuses = unsafe {
            [
                ("nvjpegSetDeviceMemoryPadding", (functions.nvjpegSetDeviceMemoryPadding)(PADDING, *handle)),
                ("nvjpegSetPinnedMemoryPadding", (functions.nvjpegSetPinnedMemoryPadding)(PADDING, *handle)),
            ]
        };
        statuses.into_iter().try_for_each(|(function, status)| library.check(function, status))?;
        Ok(self)
    }

    /// Initializes the library; releases that refuse the flag have only their own upsampling.
    fn create(library: &NvjpegLibrary, device: &Device, backend: c_int) -> Result<Result<Raw, Status>, CudaError> {
        // The library uses the thread's current context.
        device.call("cuCtxSetCurrent", |_| 0)?;
        let _no_capture = no_capture();
        let none = std::ptr::null_mut();
        let create = library.functions.nvjpegCreateEx;
        let mut handle = Raw::NULL;
        // SAFETY: `handle` is a valid place for the handle; without allocators the library uses its own.
        let mut status = unsafe { create(backend, none, none, UPSAMPLING_WITH_INTERPOLATION, &mut handle) };
        if matches!(status, INVALID_PARAMETER | NOT_IMPLEMENTED) {
            // SAFETY: as above.
            status = unsafe { create(backend, none, none, 0, &mut handle) };
        }
        Ok(if status == 0 { Ok(handle) } else { Err(status) })
    }

    /// The number of the chip's decoding engines, if the library says.
    ///
    /// # Errors
    /// Returns the reason why they are not used.
    pub fn engines(&self) -> Result<Option<u32>, CudaError> {
        let NvjpegOpened { library, handle, engines, .. } = &*self.0;
        engines.clone()?;
        let mut count = 0;
        let mut cores = 0;
        // SAFETY: the handle is alive; both are valid places for a number.
        let answer = library.decoder_info.map(|ask| unsafe { ask(*handle, &mut count, &mut cores) });
        Ok((answer == Some(0)).then_some(count))
    }

    /// Creates one of the library's objects in the thread's context.
    fn object(
        &self,
        function: &'static str,
        make: impl FnOnce(&Functions, Raw, &mut Raw) -> Status,
        // SAFETY: a type; `NvjpegObject::drop` justifies the call.
        destroy: impl FnOnce(&Functions) -> unsafe extern "C" fn(Raw) -> Status,
    ) -> Result<NvjpegObject, CudaError> {
        let NvjpegOpened { library, device, handle, .. } = &*self.0;
        device.call("cuCtxSetCurrent", |_| 0)?;
        let _no_capture = no_capture();
        let mut raw = Raw::NULL;
        library.check(function, make(&library.functions, *handle, &mut raw))?;
        Ok(NvjpegObject { handle: self.clone(), raw, destroy: destroy(&library.functions) })
    }

    fn stream(&self) -> Result<NvjpegObject, CudaError> {
        self.object(
            "nvjpegJpegStreamCreate",
            // SAFETY: the handle is alive, `raw` is a valid place for the object.
            |functions, handle, raw| unsafe { (functions.nvjpegJpegStreamCreate)(handle, raw) },
            |functions| functions.nvjpegJpegStreamDestroy,
        )
    }

    /// Returns true if the parsed `header` is of a picture of this size.
    fn is_of_size(&self, header: &NvjpegObject, target: [u32; 2]) -> Result<bool, CudaError> {
        let library = self.0.library;
        let [mut width, mut height] = [0; 2];
        let ask = library.functions.nvjpegJpegStreamGetFrameDimensions;
        // SAFETY: the header was parsed; both are valid places for a number.
        let status = unsafe { ask(header.raw, &mut width, &mut height) };
        Ok(library.done("nvjpegJpegStreamGetFrameDimensions", status)? && [width, height] == target)
    }
}

impl Drop for NvjpegOpened {
    fn drop(&mut self) {
        let destroy = self.library.functions.nvjpegDestroy;
        // SAFETY: the handle is owned, and no work that the device was given uses it any more.
        let _ = self.device.after_all_work("nvjpegDestroy", |_| unsafe { destroy(self.handle) });
    }
}

/// One of the library's objects, with its destructor.
struct NvjpegObject {
    handle: NvjpegHandle,
    raw: Raw,
    // SAFETY: a type; `drop` justifies the call.
    destroy: unsafe extern "C" fn(Raw) -> Status,
}

impl Drop for NvjpegObject {
    /// Ignores errors: they mean that the context is lost, and its objects with it.
    fn drop(&mut self) {
        let _ = self.handle.0.device.call("cuCtxSetCurrent", |_| 0);
        let _no_capture = no_capture();
        // SAFETY: the object is owned. Its owner has waited for the device's work with it.
        unsafe { (self.destroy)(self.raw) };
    }
}

/// Decodes images one by one: the host's part before [`Self::decode`] returns, the device's part asynchronously. Two
/// decoders that take turns keep both busy.
pub struct ImageDecoder {
    handle: NvjpegHandle,
    state: NvjpegObject,
    pinned: NvjpegObject,
    buffer: NvjpegObject,
    stream: NvjpegObject,
    params: NvjpegObject,
    decoder: NvjpegObject,
    /// Recorded after the device's part of the last image.
    done: Event,
}

impl ImageDecoder {
    /// Creates a decoder with its own memory between host and device, which grows to the largest image's size.
    ///
    /// # Errors
    /// The library's own errors.
    pub fn new(handle: &NvjpegHandle, huffman: Huffman) -> Result<Self, CudaError> {
        let backend = match huffman {
            Huffman::Host => BACKEND_HYBRID,
            Huffman::Device => BACKEND_GPU_HYBRID,
        };
        let none = std::ptr::null_mut();
        let decoder = handle.object(
            "nvjpegDecoderCreate",
            // SAFETY: the handle is alive, `raw` is a valid place for the object; likewise below.
            |functions, handle, raw| unsafe { (functions.nvjpegDecoderCreate)(handle, backend, raw) },
            |functions| functions.nvjpegDecoderDestroy,
        )?;
        let state = handle.object(
            "nvjpegDecoderStateCreate",
            // SAFETY: as above; the decoder is alive too.
            |functions, handle, raw| unsafe { (functions.nvjpegDecoderStateCreate)(handle, decoder.raw, raw) },
            |functions| functions.nvjpegJpegStateDestroy,
        )?;
        let pinned = handle.object(
            "nvjpegBufferPinnedCreate",
            // SAFETY: as above; without an allocator the library uses its own.
            |functions, handle, raw| unsafe { (functions.nvjpegBufferPinnedCreate)(handle, none, raw) },
            |functions| functions.nvjpegBufferPinnedDestroy,
        )?;
        let buffer = handle.object(
            "nvjpegBufferDeviceCreate",
            // SAFETY: as above.
            |functions, handle, raw| unsafe { (functions.nvjpegBufferDeviceCreate)(handle, none, raw) },
            |functions| functions.nvjpegBufferDeviceDestroy,
        )?;
        let params = handle.object(
            "nvjpegDecodeParamsCreate",
            // SAFETY: as above.
            |functions, handle, raw| unsafe { (functions.nvjpegDecodeParamsCreate)(handle, raw) },
            |functions| functions.nvjpegDecodeParamsDestroy,
        )?;
        let stream = handle.stream()?;
        let done = Event::new(&handle.0.device)?;
        let lane = Self { handle: handle.clone(), state, pinned, buffer, stream, params, decoder, done };
        lane.attach()?;
        Ok(lane)
    }

    fn attach(&self) -> Result<(), CudaError> {
        let library = self.handle.0.library;
        let Functions {
            nvjpegDecodeParamsSetOutputFormat: set_format,
            nvjpegStateAttachPinnedBuffer: attach_pinned,
            nvjpegStateAttachDeviceBuffer: attach_device,
            ..
        } = library.functions;
        // SAFETY: the objects are alive, and live as long as the state.
        let statuses = unsafe {
            [
                ("nvjpegDecodeParamsSetOutputFormat", set_format(self.params.raw, OUTPUT_RGB_INTERLEAVED)),
                ("nvjpegStateAttachPinnedBuffer", attach_pinned(self.state.raw, self.pinned.raw)),
                ("nvjpegStateAttachDeviceBuffer", attach_device(self.state.raw, self.buffer.raw)),
            ]
        };
        statuses.into_iter().try_for_each(|(function, status)| library.check(function, status))
    }

    /// Decodes `jpeg` into `target`: the picture is complete once `stream` has done its work so far. Returns `false` if
    /// the library cannot decode it, or its size is not the target's; the content of `target` is unspecified then.
    ///
    /// Waits first for the device's part of this decoder's previous image.
    ///
    /// # Errors
    /// [`CudaError::Misfit`] if the target's memory is too small; the library's own errors otherwise.
    pub fn decode(&mut self, stream: &Stream, jpeg: &[u8], target: &Target<'_>) -> Result<bool, CudaError> {
        let NvjpegOpened { library, device, handle, .. } = &*self.handle.0;
        let mut image = target.image(device)?;
        // Until then, the device uses the library's memory for this decoder.
        self.done.synchronize()?;
        if !self.parse(jpeg, [target.width, target.height])? {
            return Ok(false);
        }
        device.call("cuCtxSetCurrent", |_| 0)?;
        // The library's memory may grow.
        let _no_capture = no_capture();
        let [decoder, state, params, parsed] = [&self.decoder, &self.state, &self.params, &self.stream].map(|o| o.raw);
        let functions = &library.functions;
        // SAFETY: the objects are alive and belong together, and only this call reads `jpeg`, which was parsed.
        let status = unsafe { (functions.nvjpegDecodeJpegHost)(*handle, decoder, state, params, parsed) };
        if !library.done("nvjpegDecodeJpegHost", status)? {
            return Ok(false);
        }
        stream.need(target.buffer.allocation());
        // SAFETY: as above; the target is as large as the picture, whose size was parsed, and is freed only after the
        // device's work. The decoder's memory is not touched before `done`.
        let (transferred, decoded) = unsafe {
            let to_device = functions.nvjpegDecodeJpegTransferToDevice;
            let transferred = to_device(*handle, decoder, state, parsed, stream.handle());
            let on_device = functions.nvjpegDecodeJpegDevice;
            let mut decoded = 0;
            if transferred == 0 {
                decoded = on_device(*handle, decoder, state, &mut image, stream.handle());
            }
            (transferred, decoded)
        };
        stream.record(&self.done)?;
        Ok(library.done("nvjpegDecodeJpegTransferToDevice", transferred)?
            && library.done("nvjpegDecodeJpegDevice", decoded)?)
    }

    /// Returns true if the library can decode it, and its size is this one.
    fn parse(&self, jpeg: &[u8], size: [u32; 2]) -> Result<bool, CudaError> {
        let NvjpegOpened { library, handle, .. } = &*self.handle.0;
        let functions = &library.functions;
        let parsed = self.stream.raw;
        // SAFETY: the slice has that many bytes; they are not kept beyond `decode`.
        let status = unsafe { (functions.nvjpegJpegStreamParse)(*handle, jpeg.as_ptr(), jpeg.len(), 0, 0, parsed) };
        if !library.done("nvjpegJpegStreamParse", status)? || !self.handle.is_of_size(&self.stream, size)? {
            return Ok(false);
        }
        let mut unsupported: c_int = 1;
        // SAFETY: the objects are alive, and `unsupported` is a valid place for the answer.
        let status = unsafe {
            (functions.nvjpegDecoderJpegSupported)(self.decoder.raw, parsed, self.params.raw, &mut unsupported)
        };
        Ok(library.done("nvjpegDecoderJpegSupported", status)? && unsupported == 0)
    }
}

impl Drop for ImageDecoder {
    fn drop(&mut self) {
        // An error means that the context is lost, and the work with it.
        let _ = self.done.synchronize();
    }
}

/// A JPEG that the engines can decode, with a target of its size. Only [`Engines::take`] makes one, because the engines
/// write as many bytes as the file says.
#[derive(Clone, Copy, Debug)]
pub struct TakenJpeg<'a> {
    jpeg: &'a [u8],
    target: Target<'a>,
}

/// Decodes many images at a time on the chip's engines.
pub struct Engines {
    handle: NvjpegHandle,
    state: NvjpegObject,
    header: NvjpegObject,
    /// The batch size that the library is prepared for.
    batch: usize,
    /// Memory for pictures that only fill a batch.
    spare: Option<Buffer>,
    /// The encoded images, in memory that the engines read directly.
    bytes: Option<Pinned>,
    /// Recorded after the last batch.
    done: Event,
}

impl Engines {
    /// Creates the decoder if the handle has engines; `None` otherwise.
    ///
    /// # Errors
    /// The library's own errors.
    pub fn new(handle: &NvjpegHandle) -> Result<Option<Self>, CudaError> {
        if handle.0.engines.is_err() {
            return Ok(None);
        }
        let state = handle.object(
            "nvjpegJpegStateCreate",
            // SAFETY: the handle is alive, `raw` is a valid place for the object.
            |functions, handle, raw| unsafe { (functions.nvjpegJpegStateCreate)(handle, raw) },
            |functions| functions.nvjpegJpegStateDestroy,
        )?;
        let header = handle.stream()?;
        let done = Event::new(&handle.0.device)?;
        Ok(Some(Self { handle: handle.clone(), state, header, batch: 0, spare: None, bytes: None, done }))
    }

    /// Returns true if the device still works on the last batch.
    ///
    /// # Errors
    /// The driver's errors.
    pub fn is_busy(&self) -> Result<bool, CudaError> {
        Ok(!self.done.has_happened()?)
    }

    /// Returns `jpeg` with its `target` if the engines can decode it, and its size is the target's.
    ///
    /// # Errors
    /// The library's own errors.
    pub fn take<'a>(&self, jpeg: &'a [u8], target: Target<'a>) -> Result<Option<TakenJpeg<'a>>, CudaError> {
        let is_taken = self.supports(jpeg, [target.width, target.height])?;
        Ok(is_taken.then_some(TakenJpeg { jpeg, target }))
    }

    fn supports(&self, jpeg: &[u8], size: [u32; 2]) -> Result<bool, CudaError> {
        let NvjpegOpened { library, device, handle, .. } = &*self.handle.0;
        device.call("cuCtxSetCurrent", |_| 0)?;
        let functions = &library.functions;
        let header = self.header.raw;
        // SAFETY: the slice has that many bytes, and only this call reads them.
        let status = unsafe { (functions.nvjpegJpegStreamParseHeader)(*handle, jpeg.as_ptr(), jpeg.len(), header) };
        if !library.done("nvjpegJpegStreamParseHeader", status)? || !self.handle.is_of_size(&self.header, size)? {
            return Ok(false);
        }
        let mut unsupported: c_int = 1;
        // SAFETY: the objects are alive, and `unsupported` is a valid place for the answer.
        let status = unsafe { (functions.nvjpegDecodeBatchedSupported)(*handle, header, &mut unsupported) };
        Ok(library.done("nvjpegDecodeBatchedSupported", status)? && unsupported == 0)
    }

    /// Decodes images into their targets, which are complete once `stream` has done its work so far. Returns `false` if
    /// the library refuses the whole batch; the targets' content is unspecified then.
    ///
    /// Waits first for the previous batch and for the stream's earlier work. The bytes are copied.
    ///
    /// # Errors
    /// [`CudaError::Misfit`] if a target's memory is too small; the library's own errors otherwise.
    pub fn decode(&mut self, stream: &Stream, jpegs: &[TakenJpeg<'_>]) -> Result<bool, CudaError> {
        // Until then, the device uses the memory for the bytes and the library's own.
        self.done.synchronize()?;
        let images: Result<Vec<NvjpegImage>, CudaError> =
            jpegs.iter().map(|taken| taken.target.image(&self.handle.0.device)).collect();
        let mut images = images?;
        let mut pointers = self.load(jpegs)?;
        let mut lengths: Vec<usize> = jpegs.iter().map(|taken| taken.jpeg.len()).collect();
        // Preparing the library takes memory, so a batch of at least 7/8 of the last one is filled with repetitions.
        let is_near = jpegs.len() <= self.batch && 8 * jpegs.len() >= 7 * self.batch;
        let batch = if is_near { self.batch } else { jpegs.len() };
        if let Some(least) = (0..jpegs.len()).min_by_key(|&at| lengths[at]).filter(|_| batch > jpegs.len()) {
            let filling = self.filling(&jpegs[least].target)?;
            images.resize(batch, filling);
            pointers.resize(batch, pointers[least]);
            lengths.resize(batch, lengths[least]);
        }
        // Engines do not follow the stream's order: they write the targets as soon as they are asked.
        stream.synchronize()?;
        let no_capture = no_capture();
        if !self.prepare(batch)? {
            return Ok(false);
        }
        jpegs.iter().for_each(|taken| stream.need(taken.target.buffer.allocation()));
        let NvjpegOpened { library, handle, .. } = &*self.handle.0;
        // SAFETY: there are as many pointers, lengths and images as the library was prepared for. The bytes stay until
        // `done`. `image` found room for pictures of the targets' sizes, which `take` found to be the files' own;
        // `filling` has room for the picture that it repeats. The memory is freed only after the device's work.
        let status = unsafe {
            let decode = library.functions.nvjpegDecodeBatched;
            let bytes = pointers.as_ptr();
            let images = images.as_mut_ptr();
            decode(*handle, self.state.raw, bytes, lengths.as_ptr(), images, stream.handle())
        };
        stream.record(&self.done)?;
        drop(no_capture);
        let is_done = library.done("nvjpegDecodeBatched", status)?;
        if !is_done {
            // Other decoders get the same targets, to which engines may still be writing.
            stream.synchronize()?;
        }
        Ok(is_done)
    }

    /// Returns memory for a picture as large as `like`, to which any number may be written at once: nothing reads it.
    fn filling(&mut self, like: &Target<'_>) -> Result<NvjpegImage, CudaError> {
        let bytes = like.height as usize * like.pitch;
        let buffer = match self.spare.take().filter(|spare| spare.bytes() >= bytes) {
            Some(kept) => kept,
            None => Buffer::zeroed(&self.handle.0.device, bytes.next_power_of_two())?,
        };
        let buffer = self.spare.insert(buffer);
        Target { buffer, offset: 0, ..*like }.image(&self.handle.0.device)
    }

    fn prepare(&mut self, batch: usize) -> Result<bool, CudaError> {
        let NvjpegOpened { library, device, handle, .. } = &*self.handle.0;
        device.call("cuCtxSetCurrent", |_| 0)?;
        if self.batch == batch {
            return Ok(true);
        }
        let count = c_int::try_from(batch).unwrap_or(c_int::MAX);
        // SAFETY: the objects are alive, and the state is idle.
        let status = unsafe {
            let initialize = library.functions.nvjpegDecodeBatchedInitialize;
            initialize(*handle, self.state.raw, count, 1, OUTPUT_RGB_INTERLEAVED)
        };
        let ready = library.done("nvjpegDecodeBatchedInitialize", status)?;
        self.batch = if ready { batch } else { 0 };
        Ok(ready)
    }

    /// Copies the images' bytes one behind the other, and returns where each begins.
    fn load(&mut self, jpegs: &[TakenJpeg<'_>]) -> Result<Vec<*const u8>, CudaError> {
        let bytes = jpegs.iter().map(|taken| taken.jpeg.len()).sum::<usize>();
        let mut pinned = match self.bytes.take().filter(|pinned| pinned.bytes() >= bytes) {
            Some(kept) => kept,
            None => Pinned::new(&self.handle.0.device, bytes.next_power_of_two())?,
        };
        let mut free = pinned.as_mut_slice();
        let mut pointers = Vec::with_capacity(jpegs.len());
        for TakenJpeg { jpeg, .. } in jpegs {
            let (place, rest) = free.split_at_mut(jpeg.len());
            place.copy_from_slice(jpeg);
            pointers.push(place.as_ptr());
            free = rest;
        }
        self.bytes = Some(pinned);
        Ok(pointers)
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        // An error means that the context is lost, and the work with it.
        let _ = self.done.synchronize();
    }
}

/// Without a driver, the library of this `release` says what it is and does not start. The one of CUDA 12.0 refuses our
/// flag before that, which [`NvjpegHandle::new`] expects.
#[cfg(test)]
pub(crate) fn refuse_without_a_device(functions: &Functions, release: usize) {
    let mut major = 0;
    let none = std::ptr::null_mut();
    // SAFETY: `major` is a valid place for the number.
    assert_eq!(unsafe { (functions.nvjpegGetProperty)(0, &mut major) }, 0);
    assert_eq!(usize::try_from(major), Ok(release));
    let create = |flags| {
        let mut handle = Raw::NULL;
        // SAFETY: `handle` is a valid place for the handle; there are no allocators.
        unsafe { (functions.nvjpegCreateEx)(BACKEND_DEFAULT, none, none, flags, &mut handle) }
    };
    assert_ne!(create(0), 0);
    assert_eq!(create(UPSAMPLING_WITH_INTERPOLATION), if release == 12 { INVALID_PARAMETER } else { create(0) });
}
