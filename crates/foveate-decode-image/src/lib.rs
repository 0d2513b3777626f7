//! decode-image (under construction).
