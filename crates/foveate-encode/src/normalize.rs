use foveate_core::PixelBatch;

/// Normalizes RGB u8 samples as `transformers` does: `(x / 255 - mean) / std`, NHWC u8 to NCHW f32. The encoders fold
/// this into their weights. This reference is for tests, profiles and engines that cannot fold.
pub fn normalize_nchw(batch: PixelBatch<'_>, mean: [f32; 3], std: [f32; 3], out: &mut Vec<f32>) {
    let plane = batch.size().width as usize * batch.size().height as usize;
    out.clear();
    out.resize(batch.as_slice().len(), 0.0);
    for (image, planes) in batch.as_slice().chunks_exact(plane * 3).zip(out.chunks_exact_mut(plane * 3)) {
        for (channel, values) in planes.chunks_exact_mut(plane).enumerate() {
            for (value, pixel) in values.iter_mut().zip(image.chunks_exact(3)) {
                *value = (f32::from(pixel[channel]) / 255.0 - mean[channel]) / std[channel];
            }
        }
    }
}
