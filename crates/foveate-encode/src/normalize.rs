use foveate_core::PixelBatch;

/// Normalizes RGB samples as `transformers` does: `(x / 255 - mean) / std`, NHWC of either sample type to NCHW f32. The
/// encoders fold this into their weights. This reference is for tests, profiles and engines that cannot fold.
pub fn normalize_nchw(batch: PixelBatch<'_>, mean: [f32; 3], std: [f32; 3], out: &mut Vec<f32>) {
    let plane = batch.size().width as usize * batch.size().height as usize;
    let mut image = vec![0.0; plane * 3];
    out.clear();
    out.resize(batch.len() * plane * 3, 0.0);
    for (i, planes) in out.chunks_exact_mut(plane * 3).enumerate() {
        batch.widen(i * plane * 3, &mut image);
        for (channel, values) in planes.chunks_exact_mut(plane).enumerate() {
            for (value, pixel) in values.iter_mut().zip(image.chunks_exact(3)) {
                *value = (pixel[channel] / 255.0 - mean[channel]) / std[channel];
            }
        }
    }
}
