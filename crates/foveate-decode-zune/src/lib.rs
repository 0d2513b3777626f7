//! decode-zune (under construction).
