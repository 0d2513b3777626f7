//! The conformance suite on the CPU preprocessor.

use std::sync::Arc;

use foveate_decode_exact::ExactDecoder;
use foveate_preprocess::CpuPreprocessor;
use foveate_preprocess::conformance::{Subject, check};
use foveate_resize_fir::FirResizer;

#[test]
fn the_cpu_conforms() {
    check(&Subject::on_host(&|options| {
        Ok(Box::new(CpuPreprocessor::open(
            Arc::new(|| Ok(Box::new(ExactDecoder::new(Default::default())))),
            Arc::new(|| Ok(Box::new(FirResizer::new()))),
            options,
        )?))
    }));
}
