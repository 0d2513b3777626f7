use foveate_core::CHANNELS;

/// Folds the normalization of pixels into the patch embedding, which then takes raw u8 samples (as f32, 0 to 255):
/// `W' = W · rescale / std` and `b' = b − Σ W · mean / std`, the sum over all inputs of an output. Returns `(W', b')`.
///
/// `weight` is `[hidden, 3, patch, patch]` row-major, `bias` `[hidden]`. The result is computed in f64 and rounded
/// once, so the folded layer is as close to the exact one as f32 weights allow.
///
/// # Panics
/// If `weight` is not `bias.len()` times three planes of equal size.
pub fn fold_normalization(
    weight: &[f32],
    bias: &[f32],
    mean: [f32; 3],
    std: [f32; 3],
    rescale_factor: f64,
) -> (Vec<f32>, Vec<f32>) {
    let inputs = weight.len().checked_div(bias.len()).unwrap_or(0);
    let plane = inputs / CHANNELS;
    assert!(
        plane > 0 && plane * CHANNELS * bias.len() == weight.len(),
        "a weight of {} values does not go with a bias of {}",
        weight.len(),
        bias.len()
    );
    let mut folded_weight = Vec::with_capacity(weight.len());
    let mut folded_bias = Vec::with_capacity(bias.len());
    for (filter, &b) in weight.chunks_exact(inputs).zip(bias) {
        let mut shift = 0.0;
        for (channel, values) in filter.chunks_exact(plane).enumerate() {
            let mean = f64::from(mean[channel]);
            let std = f64::from(std[channel]);
            folded_weight.extend(values.iter().map(|&w| (f64::from(w) * rescale_factor / std) as f32));
            shift += values.iter().map(|&w| f64::from(w)).sum::<f64>() * mean / std;
        }
        folded_bias.push((f64::from(b) - shift) as f32);
    }
    (folded_weight, folded_bias)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_pixels_through_folded_weights_are_normalized_pixels_through_the_original() {
        let hidden = 5;
        let plane = 16;
        let weight: Vec<f32> = (0..hidden * 3 * plane).map(|i| ((i * 37 % 101) as f32 - 50.0) / 70.0).collect();
        let bias: Vec<f32> = (0..hidden).map(|i| i as f32 - 2.0).collect();
        let mean = [0.485, 0.456, 0.406];
        let std = [0.229, 0.224, 0.225];
        let pixels: Vec<f64> = (0..3 * plane).map(|i| (i * 53 % 256) as f64).collect();

        let (folded, shifted) = fold_normalization(&weight, &bias, mean, std, 1.0 / 255.0);
        for o in 0..hidden {
            let at = |i: usize| o * 3 * plane + i;
            let exact: f64 = (0..3 * plane)
                .map(|i| {
                    let mean = f64::from(mean[i / plane]);
                    let std = f64::from(std[i / plane]);
                    f64::from(weight[at(i)]) * (pixels[i] / 255.0 - mean) / std
                })
                .sum::<f64>()
                + f64::from(bias[o]);
            let got = (0..3 * plane).map(|i| f64::from(folded[at(i)]) * pixels[i]).sum::<f64>() + f64::from(shifted[o]);
            assert!((exact - got).abs() < 1e-5, "{exact} {got}");
        }
    }

    #[test]
    #[should_panic(expected = "does not go with")]
    fn a_weight_that_is_no_patch_embedding_is_refused() {
        fold_normalization(&[0.0; 10], &[0.0; 2], [0.0; 3], [1.0; 3], 1.0);
    }
}
